"""Driving a ledger: every event of the reservation and account tables, for a few keys of a few tenants."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import cast

from attrs import evolve, frozen

from kvescrow.checks.fuzz.aiming import Aim, Blocked
from kvescrow.checks.fuzz.compiled import Address
from kvescrow.checks.fuzz.coverage import Coverage
from kvescrow.checks.fuzz.differences import shown
from kvescrow.checks.fuzz.driver import INVARIANTS_EVERY, Driver, Step, next_goals, rotated
from kvescrow.checks.fuzz.goals import Goal, goals_of
from kvescrow.checks.fuzz.guard import opened
from kvescrow.checks.targets.protocols import LedgerFacts, LedgerSetup, TenantSetup
from kvescrow.checks.targets.subject import Subject
from kvescrow.spec.language.interpreter import Record, Value, View
from kvescrow.spec.language.table import Row
from kvescrow.spec.tables.registry import TABLE_BY_NAME
from kvescrow.spec.vocabulary import (
    Cancel,
    Extend,
    Fence,
    Finish,
    ForceRelease,
    Forget,
    Key,
    LedgerEvent,
    Preempt,
    Promote,
    Reason,
    Receipt,
    Renew,
    ReportUsage,
    ReservationState,
    Reserve,
    SetBudget,
    SetPoolLimit,
    SetTenantLimit,
    Start,
    StopOutcome,
    Sweep,
    Tick,
)
from kvescrow.spec.world.ledger import ACCOUNT_EVENTS, LedgerWorld, TenantTerms
from kvescrow.spec.world.outcome import Outcome

RESERVATION, ACCOUNT = TABLE_BY_NAME["reservation"], TABLE_BY_NAME["account"]

KEYS = (*(Key(tenant, request) for request in ("r1", "r2", "r3") for tenant in ("a", "b")), Key("nobody", "r1"))
_CONFIGURED = KEYS[:-1]
_NAMES: Mapping[str, Sequence[Value]] = {"digest": ("d1", "d2"), "owner": ("w1", "w2")}
_LEVERS = {
    ("pool", "clock"): ("tick", False),
    ("tenant", "limit"): ("set_tenant_limit", True),
    ("pool", "limit"): ("set_pool_limit", False),
    ("tenant", "budget"): ("set_budget", True),
}
"""Field -> the event that sets it, and whether it is a tenant's: how a way is cleared that parameters cannot clear."""
MOST_LEVERS = 3
"""Ways that are tried to clear in one step."""
FAR = 1000
"""A deadline that no run reaches by itself."""
_UNTOLD = (Reason.FORBIDDEN, Reason.FORGED)

_EVENTS: Mapping[str, Callable[..., LedgerEvent]] = {
    "reserve": Reserve,
    "promote": Promote,
    "start": Start,
    "extend": Extend,
    "report_usage": ReportUsage,
    "cancel": Cancel,
    "preempt": Preempt,
    "renew": Renew,
    "sweep": Sweep,
    "force_release": ForceRelease,
    "forget": Forget,
}


_PARAMETERS = {event.name: tuple(event.parameters) for table in (RESERVATION, ACCOUNT) for event in table.events}


@frozen(eq=False)
class Now:
    """What modest parameters are made from."""

    record: Record
    clock: int
    turn: int

    @property
    def is_known(self) -> bool:
        """Return whether there is such a record."""
        return self.record["state"] is not ReservationState.ABSENT

    def after(self, field: str, more: int) -> int:
        """Return a field of the record and `more`."""
        return cast(int, self.record[field]) + more


_NEUTRAL: Mapping[str, Callable[[Now], Value]] = {
    "authorised": lambda now: True,
    "authentic": lambda now: True,
    "amount": lambda now: now.record["amount"] if now.is_known else 1 + now.turn % 4,
    "digest": lambda now: now.record["digest"] if now.is_known else "d1",
    "deadline": lambda now: (
        now.record["deadline"] if now.is_known else now.clock + (FAR, 20, 8, FAR)[now.turn // 4 % 4]
    ),
    "least_service": lambda now: now.turn // 16 % 3,
    "max_wait": lambda now: (0, 4, 9, 2)[now.turn % 4],
    "lease": lambda now: 1 + (now.turn * 3) % 8,
    "life": lambda now: now.record["life"],
    "owner": lambda now: now.record["owner"] or "w1",
    "generation": lambda now: now.record["generation"] or 1,
    "bound": lambda now: now.after("bound", 1),
    "used": lambda now: now.after("used", now.turn % 3),
    "outcome": lambda now: tuple(StopOutcome)[now.turn % 3],
}
"""Parameters that speak of the record as it is, or ask for something modest."""


def setup_of(shape: int) -> LedgerSetup:
    """Return a small configuration: two tenants whose limits together exceed the pool, so that both can refuse."""
    shape, pool = divmod(shape, 5)
    shape, spare = divmod(shape, 3)
    shape, queue = divmod(shape, 3)
    shape, retention = divmod(shape, 3)
    shape, budget = divmod(shape, 3)
    pool_limit = 6 + pool
    tenants = {
        "a": TenantSetup(limit=pool_limit - spare, budget=(1000, 40, 15)[budget], queue_limit=(2, 1, 3)[queue]),
        "b": TenantSetup(limit=pool_limit - 1, budget=1000, queue_limit=(2, 0, 1)[queue]),
    }
    return LedgerSetup(pool_limit=pool_limit, tenants=tenants, retention=(5, 0, 30)[retention])


class LedgerDriver(Driver):
    """A ledger world beside a ledger target."""

    tables = (RESERVATION, ACCOUNT)
    setup: LedgerSetup

    def __init__(self, coverage: Coverage, subject: Subject) -> None:
        super().__init__(coverage, subject)
        self._recent: Key = KEYS[0]
        self._views: dict[tuple[str, Key | None], View] = {}

    def setup_of(self, shape: int) -> LedgerSetup:
        """Return a small configuration."""
        return setup_of(shape)

    def open_with(self, setup: LedgerSetup) -> None:
        """Open world and target as `setup` says."""
        self.setup = setup
        terms = {name: TenantTerms(t.limit, t.budget, t.queue_limit) for name, t in setup.tenants.items()}
        self.world = LedgerWorld(setup.pool_limit, terms, setup.retention, self.watch)
        self.target = opened(self.subject, setup)
        self.told.append(Step(lambda: f"open {shown(setup)}"))

    def close(self) -> None:
        """Close the target."""
        if self.target is not None:
            self.target.close()

    def restart(self) -> None:
        """Close the target and open it again; nothing may have changed."""
        self.told.append(Step(lambda: "restart"))
        self.done.append(("restart", ()))
        self.answer("restart", "the same state", self.target.restart)
        self.check("restart", (("snapshot", self.world.snapshot(), self.target.snapshot()),), ())

    # --- choosing an event --------------------------------------------------------------------------------------------

    def act(self, goal: Goal, who: int, turn: int) -> None:
        """Do one event of the goal's kind."""
        if goal.table is ACCOUNT:
            self._act_on_accounts(goal, who, turn)
            return
        event = goal.row.event
        keys = self._keys(who)
        for key in keys:
            if self._state(key) in goal.row.sources:
                solved = self._solved(goal, key, turn)
                if not isinstance(solved, Blocked):
                    self.perform(event, key, solved, turn)
                    return
        view = self._view(event, keys[0])
        self.perform(event, keys[0], _AIM[event].varied(goal.row, view, self._neutral(event, view, turn), turn), turn)

    def approach(self, goal: Goal, who: int, turn: int) -> bool:
        """Take the next row of a shortest way to the goal, for the first key that has one; or clear the way."""
        if goal.table is ACCOUNT:
            self._act_on_accounts(goal, who, turn)
            return True
        blocked: list[tuple[Blocked, str, Key]] = []
        for key in self._keys(who):
            for step in next_goals(goal, self._state(key), turn):
                solved = self._solved(step, key, turn)
                if not isinstance(solved, Blocked):
                    self.perform(step.row.event, key, solved, turn)
                    return step is goal
                blocked.append((solved, step.row.event, key))
        blocked = rotated(blocked, turn)[:MOST_LEVERS]
        if not any(self._pull_lever(*one) for one in blocked):
            fields = {field for one, _, _ in blocked for field in one.fields}
            helpful = [helper for helper, written in _WRITERS if written & fields] or [helper for helper, _ in _WRITERS]
            self._help(helpful[turn % len(helpful)], who, turn)
        return False

    def _help(self, goal: Goal, who: int, turn: int) -> None:
        """Do the goal's row for any key, if need be after a lever."""
        blocked: list[tuple[Blocked, str, Key]] = []
        for key in self._keys(who):
            if self._state(key) in goal.row.sources:
                solved = self._solved(goal, key, turn)
                if not isinstance(solved, Blocked):
                    self.perform(goal.row.event, key, solved, turn)
                    return
                blocked.append((solved, goal.row.event, key))
        if not any(self._pull_lever(*one) for one in blocked[:MOST_LEVERS]):
            self.act(goal, who, turn)

    def _solved(self, goal: Goal, key: Key, turn: int) -> Record | Blocked:
        event = goal.row.event
        view = self._view(event, key)
        return _AIM[event].solve(goal, view, self._neutral(event, view, turn), _NAMES.__getitem__, turn)

    def _pull_lever(self, blocked: Blocked, event: str, key: Key) -> bool:
        """Move the clock or a limit so that what blocks gives way, where one of them does that."""
        view = self._view(event, key)
        clock = cast(int, self.world.pool["clock"])
        for address, (lever, of_tenant) in _LEVERS.items():
            for value in cast(Iterator[int], blocked.cures(view, address)):
                if value >= 0 and (lever != "tick" or clock < value < clock + FAR):
                    (name,) = _PARAMETERS[lever]
                    self.perform(lever, Key(key.tenant, "") if of_tenant else None, {name: value}, 0)
                    return True
        return False

    def _state(self, key: Key) -> object:
        record = self.world.reservations.get(key)
        return _ABSENT if record is None else record["state"]

    def _view(self, event: str, key: Key | None) -> View:
        """Return what a row of `event` would see; it stays the same until an event is done."""
        found = self._views.get((event, key))
        if found is None:
            found = self._views[event, key] = self.world.view(event, key)
        return found

    def _keys(self, who: int) -> list[Key]:
        """Return the keys to try in order: the one touched last comes first, to act and then victimise."""
        others = [key for key in KEYS if key != self._recent]
        return rotated([self._recent, *others], who)

    def _neutral(self, event: str, view: View, turn: int) -> Record:
        """Return parameters that speak of the record as it is, or ask for something modest."""
        now = Now(view["reservation"], cast(int, self.world.pool["clock"]), turn)
        return {name: _NEUTRAL[name](now) for name in _PARAMETERS[event]}

    def _act_on_accounts(self, goal: Goal, who: int, turn: int) -> None:
        event = goal.row.event
        tenant = None if event in ("tick", "set_pool_limit") else ("a", "b", "nobody")[who % 3]
        if goal.is_row and goal.row.id.endswith(".unknown"):
            tenant = "nobody"
        key = None if tenant is None else Key(tenant, "")
        view = self._view(event, key)
        (name,) = _PARAMETERS[event]
        moments = self._moments(event, tenant)
        neutral = {name: moments[turn % len(moments)]}
        solved = _AIM[event].solve(goal, view, neutral, _NAMES.__getitem__, turn // len(moments))
        self.perform(event, key, neutral if isinstance(solved, Blocked) else solved, turn)

    def _moments(self, event: str, tenant: str | None) -> list[int]:
        """Return the values at which something tips over: time limits, and limits that just fit or just do not."""
        records = self.world.reservations
        clock = cast(int, self.world.pool["clock"])
        if event == "tick":
            limits = {
                cast(int, value) + nudge
                for record in records.values()
                for value in (
                    record["lease"],
                    record["expires"],
                    record["retained"],
                    cast(int, record["deadline"]) - cast(int, record["least_service"]) + 1,
                )
                for nudge in (0, -1)
            }
            return [clock + 1, *sorted(limit for limit in limits if clock < limit < clock + FAR)]
        account = self.world.pool if tenant is None else self.world.tenants.get(tenant, {})
        bounds = {cast(int, record["bound"]) for record in records.values()} | {1, 4}
        if event == "set_budget":
            base = cast(int, account.get("spent", 0)) + cast(int, account.get("held", 0))
            return [1000, *sorted({base + bound - less for bound in bounds for less in (0, 1, 2)})]
        base = cast(int, account.get("active", 0))
        return [10, *sorted({base + bound - less for bound in bounds for less in (0, 1, 2)} | {base - 1, base, 0})]

    # --- doing it -----------------------------------------------------------------------------------------------------

    def perform(self, event: str, key: Key | None, parameters: Record, turn: int) -> tuple[Outcome, LedgerFacts]:
        """Do one event on both sides and compare reply, identities and the whole snapshot."""
        self.done.append(("perform_again", (event, key, self._shifted(key, parameters, -1), turn)))
        if "lease" in parameters:
            # The event's constructor refuses any other, so no such event can be sent.
            parameters = {**parameters, "lease": max(1, cast(int, parameters["lease"]))}
        message = self.message(event, key, parameters, turn)
        authentic = "".join(f" authentic={parameters[name]}" for name in parameters if name == "authentic")
        step = Step(lambda: f"{event} {shown(message)}{authentic}")
        self.told.append(step)
        self._views.clear()
        outcome = self.world.apply_named(event, key, parameters)
        specified = self._facts(outcome, key)
        step.row = outcome.row
        reply = self.answer(step, specified, lambda: self.target.submit(message))
        self.check(
            step,
            (("reply", specified, reply), ("snapshot", self.world.snapshot(), self.target.snapshot())),
            self.world.violations() if len(self.told) % INVARIANTS_EVERY == 0 else (),
        )
        if key in _CONFIGURED:
            self._recent = key
        return outcome, reply

    def perform_again(self, event: str, key: Key | None, parameters: Record, turn: int) -> None:
        """Do an event of another run, whose life and generation are given as distances from the record's own."""
        self.perform(event, key, self._shifted(key, parameters, 1), turn)

    def _shifted(self, key: Key | None, parameters: Record, sign: int) -> Record:
        """Return `parameters` with the record's life and generation added or taken away.

        A run without some of its events draws other identities; what spoke of the current one still does.
        """
        record = self.world.reservations.get(key) if key is not None else None
        if record is None:
            return parameters
        moved = {name: parameters[name] for name in ("life", "generation") if name in parameters}
        return {
            **parameters,
            **{name: cast(int, value) + sign * cast(int, record[name]) for name, value in moved.items()},
        }

    def _facts(self, outcome: Outcome, key: Key | None) -> LedgerFacts:
        record = self.world.reservations.get(key) if key is not None else None
        if key is None or not key.request or outcome.reason in _UNTOLD:
            return LedgerFacts(outcome.decision, outcome.reason)
        if record is None:
            return LedgerFacts(outcome.decision, outcome.reason, _ABSENT)
        return LedgerFacts(
            outcome.decision,
            outcome.reason,
            cast(ReservationState, record["state"]),
            cast(int, record["life"]),
            cast(int, record["generation"]),
        )

    def message(self, event: str, key: Key | None, parameters: Record, turn: int) -> LedgerEvent:
        """Return the event record that says what `parameters` say, with a proof that is as authentic as they say."""
        values = dict(parameters)
        if event in ACCOUNT_EVENTS:
            (value,) = cast(tuple[int, ...], tuple(values.values()))
            return _account_event(event, key, value)
        assert key is not None, "events of a reservation have a key"
        authentic = values.pop("authentic", True)
        if event == "finish":
            receipt = Receipt(pool=self.setup.pool, key=key, last_ticket=0, key_id="", mac=b"", **values)  # type: ignore[arg-type]
            signed = self.target.sign(receipt)
            return Finish(signed if authentic else _forged(signed, turn))
        if event == "fence":
            fence: Fence = self.target.sign_fence(Fence(key, cast(str, values["owner"]), key_id="", proof=b""))
            return fence if authentic else evolve(fence, proof=_spoiled(fence.proof))
        return _EVENTS[event](key=key, **values)


def _account_event(event: str, key: Key | None, value: int) -> LedgerEvent:
    if event == "tick":
        return Tick(value)
    if key is None:
        return SetPoolLimit(value)
    return SetBudget(key.tenant, value) if event == "set_budget" else SetTenantLimit(key.tenant, value)


def _forged(signed: Receipt, turn: int) -> Receipt:
    """Return a receipt that its owner did not sign: another MAC, or a field changed under the old one."""
    return (
        evolve(signed, mac=_spoiled(signed.mac)),
        evolve(signed, used=signed.used + 1),
        evolve(signed, generation=signed.generation + 1),
        evolve(signed, key_id=signed.key_id + "x"),
        evolve(signed, pool=signed.pool + "x"),
        evolve(signed, mac=b""),
    )[turn % 6]


def _spoiled(mac: bytes) -> bytes:
    return bytes([mac[0] ^ 1, *mac[1:]]) if mac else b"?"


_ABSENT = ReservationState.ABSENT
_LINE_UP = frozenset({"reservation.reserve.pool_capacity_queued", "reservation.reserve.behind_others_queued"})
"""Rows after which someone waits who lacks nothing but room in the pool."""


def _good_for(row: Row) -> frozenset[Address]:
    """Return the fields for whose sake a row is done. One that shortens the queue is not done for its length."""
    written = {effect.target.path for effect in row.do}
    if row.to is not ReservationState.QUEUED:
        written -= {("tenant", "queued")}
    return frozenset(written | ({("queue", "ahead")} if row.id in _LINE_UP else set()))


_WRITERS = [
    (goal, _good_for(goal.row)) for goal in goals_of(RESERVATION) if goal.is_row and not goal.row.changes_nothing
]
"""Rows that change something, with the fields that they are good for: what to do where no step leads nearer."""
_AIM = {event.name: aim for table in (RESERVATION, ACCOUNT) for aim in [Aim(table)] for event in table.events}
