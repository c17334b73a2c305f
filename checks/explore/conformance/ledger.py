"""Reservations of a lifecycle as events of a ledger.

An instance leaves time and identities out, so each move is given its circumstances here: the current life and
generation are read from the ledger; leases are long, and where a move says "after its lease", every other lease is
renewed and the clock is moved just past this one. Some circumstances are not to be had in every way to be in a state:
which request comes first follows from the order of the queue, so each order is a variant of its own; a receipt of the
record's owner takes a record that has run. Some are not to be had in a state at all, and then `do` says why.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import cast

from attrs import evolve, field, frozen

from kvescrow.checks.explore.conformance.checkpoint import Checkpoint
from kvescrow.checks.explore.conformance.clone import cloned
from kvescrow.checks.explore.conformance.graph import Answer, Graph, Said
from kvescrow.checks.explore.instance import Instance
from kvescrow.checks.explore.instances.lifecycle import LATE, STALE, STRANGER
from kvescrow.checks.targets.protocols import LedgerSetup, LedgerTarget, TenantSetup
from kvescrow.checks.targets.subject import Subject as Target
from kvescrow.checks.targets.typed import misfit
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
OWNER = "worker"
_QUEUED_EVENTS = frozenset({"reserve", "promote"})
_LEASED = (S.RESERVED, S.RUNNING)
_DONE: Said = (Decision.NOTED, Reason.NONE)
"""The clock was moved."""
NO_ONE_WAITS = "no one else waits who lacks only room in the pool"
SOMEONE_WAITS = "someone waits who lacks only room in the pool, and who comes now is last"


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
        self.varying = frozenset(n for n, move in enumerate(self.moves) if move.event in ("finish", "forget"))
        self.slot_of_key = {key: slot for slot, key in enumerate(self.keys)}
        self.slot_of_move = [self.slot_of_key[key] for key in self.key_of_move]
        self.asks_queue = [move.event in _QUEUED_EVENTS for move in self.moves]
        self.is_late = [move.given["pool", "clock"] == LATE for move in self.moves]
        self._marks: dict[object, Mark] = {}
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

    def mark(self, slot: int, record: ReservationSnapshot | None, deadline: int) -> "Mark":
        """Return what is read of a record, which is the same object for all records of which the same is read."""
        read = (S.ABSENT, 1, 1, "") if record is None else (record.state, record.life, record.generation, record.owner)
        known = (slot, *read, deadline)
        if known not in self._marks:
            state, life, generation, owner = read
            self._marks[known] = Mark(state, life, generation or 1, owner, deadline)
        return self._marks[known]


@cache
def key_of(name: str) -> Key:
    """Return the key that stands for a reservation place: one object a place, so that look-ups need not compare."""
    return Key(f"tenant {int(name.rsplit(maxsplit=1)[-1]) % 2}", name)


def place(key: Key) -> str:
    """Return the reservation place that a key stands for."""
    return key.request


@frozen(eq=False)
class Mark:
    """What is read of a record to name it in an event, and the events that name it."""

    state: ReservationState
    life: int
    generation: int
    owner: str
    deadline: int
    """Of a record that is absent, the one that it would be given now."""
    messages: dict[int, LedgerEvent] = field(factory=dict)
    """Move -> its event."""


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
        self._marks: dict[int, Mark] = {}
        """What was read of the records of the snapshot that was seen last, by slot."""
        self._firsts: dict[int, bool] = {}
        """Whether another comes first, by slot, in that snapshot."""
        self._spoilt = False

    # --- what shows ---------------------------------------------------------------------------------------------------

    def shows(self) -> object:
        """Return states, bounds and accounts; an ended record shows a bound of 1, as in the instance."""
        self._forget()
        snapshot = self._snapshot()
        records = tuple(_shown(snapshot.reservations.get(key)) for key in self._driver.keys)
        accounts = tuple(
            (account.active, account.held, account.queued)
            for account in (snapshot.tenants[name] for name in self._driver.tenants)
        )
        return records, accounts, snapshot.pool_active

    def misfit(self) -> str:
        """Return what of the snapshot has not its declared type."""
        return misfit(self._snapshot(), LedgerSnapshot)

    def variant(self) -> int:
        """Return the order of the queue, and which of those that wait have run: two digits each."""
        snapshot = self._snapshot()
        number, slots, records = 0, self._driver.slot_of_key, snapshot.reservations
        for key in snapshot.queue:
            number = (number * (len(slots) + 1) + slots[key] + 1) * 2 + bool(records[key].owner)
        return number

    def _snapshot(self) -> LedgerSnapshot:
        if self._seen is None:
            self._seen = self._target.snapshot()
        return self._seen

    def _forget(self) -> None:
        """Forget what was seen, since the ledger may have changed."""
        if self._seen is not None:
            self._seen, self._marks, self._firsts = None, {}, {}

    def copy(self) -> "LedgerSubject":
        """Return a copy of the ledger."""
        made = LedgerSubject(self._driver, cloned(self._target), dict(self._deadlines), dict(self._ended))
        made._seen = self._seen
        return made

    def hold(self) -> Callable[[], None]:
        """Return what brings the ledger back to where it is now."""
        ledger = Checkpoint(self._target)
        deadlines, ended = dict(self._deadlines), dict(self._ended)
        seen, marks, firsts = self._seen, self._marks, self._firsts

        def bring_back() -> None:
            ledger.restore()
            self._deadlines, self._ended = dict(deadlines), dict(ended)
            self._seen, self._marks, self._firsts, self._spoilt = seen, marks, firsts, False

        return bring_back

    def close(self) -> None:
        """Close the ledger."""
        self._target.close()

    # --- doing a move -------------------------------------------------------------------------------------------------

    def do(self, answer: Answer) -> Said | str | None:
        """Do the event of the move."""
        driver, number = self._driver, answer.move
        slot = driver.slot_of_move[number]
        mark = self._marks.get(slot) or self._mark(slot)
        if driver.asks_queue[number]:
            why = self._why_not_queued(number, slot, mark)
            if why != "":
                return why
        elif number in driver.varying and not self._may_end(number, mark):
            return None
        if not answer.keeps and driver.is_late[number]:
            refused = self._let_lapse(driver.keys[slot], mark)
            if refused is not _DONE:
                return refused
        message = mark.messages.get(number)
        if message is None:
            message = mark.messages[number] = self._said(number, mark)
        facts = self._target.submit(message)
        if not answer.keeps:
            self._changed(driver.keys[slot], mark, facts.state)
        return facts.decision, facts.reason

    def can(self, move: int) -> bool:
        """Return whether there is an owner to sign the receipt of a move, or a retention that still runs."""
        slot = self._driver.slot_of_move[move]
        return self._may_end(move, self._marks.get(slot) or self._mark(slot))

    def _changed(self, key: Key, mark: Mark, state: ReservationState | None) -> None:
        """Take note of what a change means for the times of its record."""
        self._forget()
        if mark.state is S.ABSENT:
            self._deadlines[key] = mark.deadline
        elif state in TERMINAL_STATES and mark.state not in TERMINAL_STATES:
            self._ended[key] = self._snapshot().clock

    def _mark(self, slot: int) -> Mark:
        key, snapshot = self._driver.keys[slot], self._snapshot()
        record = snapshot.reservations.get(key)
        deadline = snapshot.clock + DEADLINE if record is None else self._deadlines[key]
        mark = self._marks[slot] = self._driver.mark(slot, record, deadline)
        return mark

    def _why_not_queued(self, number: int, slot: int, mark: Mark) -> str | None:
        """Return why another does, or does not, come first as the move says; empty where it is as it says."""
        move = self._driver.moves[number]
        if mark.state is not (S.ABSENT if move.event == "reserve" else S.QUEUED):
            return ""
        first = self._firsts.get(slot)
        if first is None:
            first = self._firsts[slot] = any(self._waiting(self._driver.keys[slot], before=True))
        if first == bool(move.given["queue", "ahead"]):
            return ""
        if not first:
            return None if any(self._waiting(self._driver.keys[slot], before=False)) else NO_ONE_WAITS
        return SOMEONE_WAITS if mark.state is S.ABSENT else None

    def _waiting(self, key: Key, *, before: bool) -> Iterator[bool]:
        """Tell of each other key that waits, before `key` or anywhere, whether it lacks only room in the pool."""
        snapshot = self._snapshot()
        for other in snapshot.queue:
            if other != key:
                record, account = snapshot.reservations[other], snapshot.tenants[other.tenant]
                yield record.expires > snapshot.clock and account.active + record.bound <= account.limit
            elif before:
                return

    def _may_end(self, number: int, mark: Mark) -> bool:
        """Return whether a receipt has an owner to sign it, or a retention still runs, as the move says."""
        if self._driver.moves[number].event == "finish":
            return bool(mark.owner) or mark.state is S.ABSENT
        if mark.state not in TERMINAL_STATES or self._driver.is_late[number]:
            return True
        return self._snapshot().clock < self._ended[self._driver.key_of_move[number]] + RETENTION

    def _let_lapse(self, key: Key, mark: Mark) -> Said:
        """Move the clock past the limit of one record, and past no other lease.

        Where another waits no longer than this one, or has its deadline earlier, the ledger is spoilt by it.
        Returns `_DONE`, or the reply where the ledger refused a step.
        """
        snapshot = self._snapshot()
        record = snapshot.reservations[key]
        moment = record.expires if mark.state is S.QUEUED else record.lease
        if mark.state in TERMINAL_STATES:
            moment = self._ended[key] + RETENTION
        if moment <= snapshot.clock:
            return _DONE
        others = {k: r for k, r in snapshot.reservations.items() if k != key and r.state not in TERMINAL_STATES}
        self._spoilt = any(
            self._deadlines[k] <= moment or (r.state is S.QUEUED and r.expires <= moment) for k, r in others.items()
        )
        longer = moment - snapshot.clock + LEASE
        for other, r in others.items():
            if r.state in _LEASED and r.lease <= moment:
                facts = self._target.submit(Renew(other, r.life, r.owner, r.generation, longer))
                if facts.decision.changes_nothing:
                    return facts.decision, facts.reason
        self._target.submit(Tick(moment))
        self._forget()
        return _DONE

    def spoilt(self) -> bool:
        """Return whether others have waited too long, so that what they could do in this state they cannot any more."""
        return self._spoilt

    def _said(self, number: int, mark: Mark) -> LedgerEvent:
        move, key = self._driver.moves[number], self._driver.key_of_move[number]
        p: Mapping[str, object] = move.parameters
        life = mark.life + (_FAR if p.get("life") == STALE else 0)
        generation = mark.generation + (_FAR if p.get("generation") == STALE else 0)
        owner = "stranger" if p.get("owner") == STRANGER else OWNER
        match move.event:
            case "reserve":
                wait = WAIT if p["max_wait"] else 0
                return Reserve(key, cast(int, p["amount"]), "digest", mark.deadline, 0, wait, LEASE)
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
