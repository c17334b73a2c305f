"""Reservations of a lifecycle as events of a ledger.

An instance leaves time and identities out, so each move is given its circumstances here: the current life and
generation are read from the ledger; leases are long, and where a move says "after its lease", every other lease is
renewed and the clock is moved just past this one. Where the circumstances cannot be had in this state (a request
comes first in the queue that the move says does not), the move is not realised, and is counted as such.
"""

from collections.abc import Mapping
from functools import cache
from typing import cast

from attrs import evolve, frozen

from kvescrow.checks.explore.conformance.clone import cloned
from kvescrow.checks.explore.conformance.graph import Answer, Graph
from kvescrow.checks.explore.conformance.walk import Said
from kvescrow.checks.explore.instance import Instance, Move
from kvescrow.checks.explore.instances.lifecycle import LATE, STALE, STRANGER
from kvescrow.checks.targets.protocols import LedgerSetup, LedgerTarget, TenantSetup
from kvescrow.checks.targets.protocols import Subject as Target
from kvescrow.spec.vocabulary import (
    TERMINAL_STATES,
    Cancel,
    Decision,
    Extend,
    Fence,
    Finish,
    Forget,
    Key,
    LedgerEvent,
    LedgerSnapshot,
    Preempt,
    Promote,
    Reason,
    Receipt,
    Renew,
    ReservationSnapshot,
    ReservationState,
    Reserve,
    Start,
    StopOutcome,
    Sweep,
    Tick,
)

S = ReservationState

LEASE, RETENTION, WAIT, DEADLINE = 10**9, 10**12, 10**15, 10**17
"""Microseconds, each so much longer than the one before that a clock moved past some never reaches the next."""
_FAR = 1000
"""How far a stale life or generation is from every real one."""
_CIRCUMSTANTIAL = frozenset({"reserve", "promote", "forget", "finish"})
"""Events whose circumstances cannot be had in every state."""
_LEASED = (S.RESERVED, S.RUNNING)
_DONE: Said = (Decision.NOTED, Reason.NONE)
"""The clock was moved."""


class LedgerDriver:
    """Opens ledgers for a lifecycle instance."""

    def __init__(self, instance: Instance, target: Target) -> None:
        self.graph = Graph(instance)
        self.moves = instance.moves
        self.key_of_move = [key_of(move.binds["reservation"]) for move in instance.moves]
        self.keys = [key_of(p.name) for p in instance.places if p.name.startswith("reservation ")]
        tenants = {p.name: p.reads_as for p in instance.places if p.name.startswith("tenant ")}
        pool = instance.place_by_name["pool"].reads_as
        self._target = target
        self._setup = LedgerSetup(
            pool_limit=cast(int, pool["limit"]),
            tenants={
                name: TenantSetup(cast(int, t["limit"]), cast(int, t["budget"]), cast(int, t["queue_limit"]))
                for name, t in tenants.items()
            },
            retention=RETENTION,
        )
        self.tenants = self._setup.tenants
        self.messages: dict[object, LedgerEvent] = {}
        self._expected: dict[int, object] = {}

    def open(self) -> "LedgerSubject":
        """Return a fresh ledger."""
        return LedgerSubject(self, self._target.open(self._setup), {}, {})

    def expected(self, state: int) -> object:
        """Return states, bounds and accounts of `state`."""
        if state not in self._expected:
            named = self.graph.form.views.named(self.graph.codes(state))
            records = tuple((named[f"{place(key)}.state"], named[f"{place(key)}.bound"]) for key in self.keys)
            accounts = tuple(
                tuple(named[f"{name}.{field}"] for field in ("active", "held", "queued")) for name in self.tenants
            )
            self._expected[state] = (records, accounts, named["pool.active"])
        return self._expected[state]


@cache
def key_of(name: str) -> Key:
    """Return the key that stands for a reservation place: one object a place, so that look-ups need not compare."""
    return Key(f"tenant {int(name.rsplit(maxsplit=1)[-1]) % 2}", name)


def place(key: Key) -> str:
    """Return the reservation place that a key stands for."""
    return key.request


@frozen
class _Mark:
    """What is read of a record to name it in an event."""

    state: ReservationState
    life: int
    generation: int
    owner: str


_UNKNOWN = _Mark(S.ABSENT, 1, 1, "")


class LedgerSubject:
    """A ledger, with the deadline that each record was given and the time at which it ended."""

    def __init__(
        self, driver: LedgerDriver, target: LedgerTarget, deadlines: dict[Key, int], ended: dict[Key, int]
    ) -> None:
        self._driver = driver
        self._target = target
        self._deadlines = deadlines
        self._ended = ended
        self._seen: LedgerSnapshot | None = None
        self._marks: dict[Key, _Mark] = {}
        """What was read of the records of the snapshot that was seen last."""

    # --- what shows ---------------------------------------------------------------------------------------------------

    def shows(self) -> object:
        """Return states, bounds and accounts; an ended record shows a bound of 1, as in the instance."""
        snapshot = self._snapshot(fresh=True)
        records = tuple(_shown(snapshot.reservations.get(key)) for key in self._driver.keys)
        accounts = tuple(
            (account.active, account.held, account.queued)
            for account in (snapshot.tenants[name] for name in self._driver.tenants)
        )
        return records, accounts, snapshot.pool_active

    def _snapshot(self, *, fresh: bool = False) -> LedgerSnapshot:
        if self._seen is None or fresh:
            self._seen = self._target.snapshot()
            self._marks = {}
        return self._seen

    def copy(self) -> "LedgerSubject":
        """Return a copy of the ledger."""
        made = LedgerSubject(self._driver, cloned(self._target), dict(self._deadlines), dict(self._ended))
        made._seen, made._marks = self._seen, self._marks
        return made

    def close(self) -> None:
        """Close the ledger."""
        self._target.close()

    # --- doing a move -------------------------------------------------------------------------------------------------

    def do(self, answer: Answer) -> Said | None:
        """Do the event of the move; None where its circumstances cannot be had."""
        driver = self._driver
        move, key = driver.moves[answer.move], driver.key_of_move[answer.move]
        mark = (self._seen and self._marks.get(key)) or self._mark(key)
        if move.event in _CIRCUMSTANTIAL and not self._is_possible(move, key, mark):
            return None
        if not answer.keeps and move.given["pool", "clock"] == LATE:
            refused = self._let_lapse(key, mark)
            if refused is not _DONE:
                return refused
        message = self._message(answer.move, move, key, mark)
        facts = self._target.submit(message)
        if not answer.keeps:
            self._seen = None
            if facts.state in TERMINAL_STATES and mark.state not in TERMINAL_STATES:
                self._ended[key] = self._snapshot().clock
        return facts.decision, facts.reason

    def _mark(self, key: Key) -> _Mark:
        snapshot = self._snapshot()
        mark = self._marks.get(key)
        if mark is None:
            record = snapshot.reservations.get(key)
            mark = _UNKNOWN
            if record is not None:
                mark = _Mark(record.state, record.life, record.generation or 1, record.owner)
            self._marks[key] = mark
        return mark

    def _is_possible(self, move: Move, key: Key, mark: _Mark) -> bool:
        waits = (move.event == "reserve" and mark.state is S.ABSENT) or (
            move.event == "promote" and mark.state is S.QUEUED
        )
        if waits and self._others_first(key) != bool(move.given["queue", "ahead"]):
            return False
        if move.event == "forget" and mark.state in TERMINAL_STATES and move.given["pool", "clock"] != LATE:
            return self._snapshot().clock < self._ended[key] + RETENTION
        # A record that never ran has no owner whose receipt could be its own.
        return not (move.event == "finish" and mark.state is not S.ABSENT and not mark.owner)

    def _others_first(self, key: Key) -> bool:
        snapshot = self._snapshot()
        for other in snapshot.queue:
            if other == key:
                return False
            record, account = snapshot.reservations[other], snapshot.tenants[other.tenant]
            if record.expires > snapshot.clock and account.active + record.bound <= account.limit:
                return True
        return False

    def _let_lapse(self, key: Key, mark: _Mark) -> Said | None:
        """Move the clock past the limit of one record and of no other.

        Returns `_DONE` where that is done, None where it cannot be, and the reply where the ledger refused a step.
        """
        snapshot = self._snapshot()
        record = snapshot.reservations[key]
        moment = record.lease if mark.state in _LEASED else record.expires
        if mark.state in TERMINAL_STATES:
            moment = self._ended[key] + RETENTION
        if moment <= snapshot.clock:
            return _DONE
        others = {k: r for k, r in snapshot.reservations.items() if k != key}
        if any(r.state is S.QUEUED and r.expires <= moment for r in others.values()):
            return None
        if any(r.state not in TERMINAL_STATES and self._deadlines[k] <= moment for k, r in others.items()):
            return None
        longer = moment - snapshot.clock + LEASE
        for other, r in others.items():
            if r.state in _LEASED and r.lease <= moment:
                facts = self._target.submit(Renew(other, r.life, r.owner, r.generation, longer))
                if facts.decision.changes_nothing:
                    return facts.decision, facts.reason
        facts = self._target.submit(Tick(moment))
        self._seen = None
        return _DONE

    def _message(self, number: int, move: Move, key: Key, mark: _Mark) -> LedgerEvent:
        deadline = 0
        if move.event == "reserve":
            if mark.state is S.ABSENT:
                self._deadlines[key] = self._snapshot().clock + DEADLINE
            deadline = self._deadlines[key]
        remembered = (number, mark.life, mark.generation, deadline)
        messages = self._driver.messages
        if remembered not in messages:
            messages[remembered] = self._said(move, key, mark, deadline)
        return messages[remembered]

    def _said(self, move: Move, key: Key, mark: _Mark, deadline: int) -> LedgerEvent:
        p: Mapping[str, object] = move.parameters
        life = mark.life + (_FAR if p.get("life") == STALE else 0)
        generation = mark.generation + (_FAR if p.get("generation") == STALE else 0)
        owner = "stranger" if p.get("owner") == STRANGER else "worker"
        match move.event:
            case "reserve":
                wait = WAIT if p["max_wait"] else 0
                return Reserve(key, cast(int, p["amount"]), "digest", deadline, 0, wait, LEASE)
            case "promote":
                return Promote(key, LEASE)
            case "start":
                return Start(key, life, owner, LEASE)
            case "extend":
                return Extend(key, owner, generation, cast(int, p["bound"]))
            case "cancel":
                return Cancel(key, life)
            case "preempt":
                return Preempt(key, generation)
            case "renew":
                return Renew(key, life, owner, generation, LEASE)
            case "sweep":
                return Sweep(key)
            case "forget":
                return Forget(key)
            case "finish":
                outcome = cast(StopOutcome, p["outcome"])
                receipt = self._target.sign(Receipt("pool", key, owner, generation, 0, outcome, 0, "", b""))
                return Finish(receipt if p["authentic"] else evolve(receipt, mac=receipt.mac[:-1] + b"?"))
            case "fence":
                return self._target.sign_fence(Fence(key, owner, "", b""))
        raise ValueError(f"the lifecycle has no event {move.event}")


def _shown(record: ReservationSnapshot | None) -> tuple[ReservationState, int]:
    if record is None:
        return S.ABSENT, 0
    return record.state, 1 if record.state in TERMINAL_STATES else record.bound
