"""A history replayed in the order of its commit numbers: every answer must be the tables' answer."""

from collections.abc import Iterator
from typing import cast

from kvescrow.checks.concurrency.faults import Fault, Finding, fault_of
from kvescrow.checks.concurrency.history import Answer, Call, Change, Terms, key_of, told
from kvescrow.spec.vocabulary import (
    LedgerEvent,
    LedgerSnapshot,
    Reason,
    ReservationState,
    Reserve,
    Tick,
)
from kvescrow.spec.world.ledger import LedgerWorld
from kvescrow.spec.world.outcome import MutableRecord, Outcome

_TELLS_NOTHING = {Reason.FORBIDDEN, Reason.FORGED}


class Replay:
    """The world of the tables, moved change by change, and asked about events between two changes."""

    def __init__(self, terms: Terms) -> None:
        self._world = terms.world()
        self._wrong: dict[str, int] = {}

    def change(self, change: Change, *, authentic: bool = True) -> Iterator[Finding]:
        """Apply `change` and yield what is wrong with its answer."""
        self._set_clock(change)
        free = self._free(change.event)
        outcome = self._world.apply(change.event, authentic=authentic)
        expected = self._answer(change.event, outcome, free)
        yield from self._compare(
            f"change {change.seq}, {told(change.event)}", change.event, change.answer, outcome, expected
        )

    def question(self, call: Call, until: int | None) -> Iterator[Finding]:
        """Yield what is wrong with an answer that says that nothing changed.

        The ledger's clock at that moment lies between the change before and `until`, that of the change after; any
        moment there may explain the answer. None: there is no change after it.
        """
        found = cast(Answer, call.answer)
        first: tuple[Outcome, Answer] | None = None
        clock = cast(int, self._world.pool["clock"])
        for moment in self._moments(call.event, clock, until):
            outcome, expected = self._try(call, moment)
            if _same(found, expected):
                return
            first = first or (outcome, expected)
        if first is not None:
            yield from self._compare(str(call), call.event, found, *first)

    def end(self, final: LedgerSnapshot) -> Iterator[Finding]:
        """Yield where the ledger's last state is not what its changes come to."""
        expected = self._world.snapshot()
        yield from _counter("pool.active", final.pool_active, expected.pool_active)
        for name, account in expected.tenants.items():
            found = final.tenants.get(name)
            if found is None:
                yield Finding(Fault.LOST, f"tenant {name}", "it has no account")
                continue
            for field in ("active", "held", "queued", "spent", "overrun"):
                yield from _counter(f"tenant {name}, {field}", getattr(found, field), getattr(account, field))
            for field in ("limit", "budget"):
                if getattr(found, field) != getattr(account, field):
                    what = f"{getattr(found, field)}; the changes come to {getattr(account, field)}"
                    yield Finding(Fault.WRONG_STATE, f"tenant {name}, {field}", what)
        yield from self._reservations(final, expected)

    def _reservations(self, final: LedgerSnapshot, expected: LedgerSnapshot) -> Iterator[Finding]:
        for key in sorted({*final.reservations, *expected.reservations}):
            found, right = final.reservations.get(key), expected.reservations.get(key)
            where = f"reservation {key.tenant}/{key.request}"
            if found is None:
                yield Finding(Fault.LOST, where, f"it is not there; the changes come to {right}")
            elif found != right:
                yield Finding(Fault.WRONG_STATE, where, f"{found}; the changes come to {right}")
        if final.queue != expected.queue:
            yield Finding(Fault.WRONG_STATE, "queue", f"{final.queue}; the changes come to {expected.queue}")

    def _compare(
        self, where: str, event: LedgerEvent, found: Answer, outcome: Outcome, expected: Answer
    ) -> Iterator[Finding]:
        if (found.decision, found.reason) != (expected.decision, expected.reason):
            yield Finding(fault_of(found, outcome), where, f"{found}; {outcome.row} gives {expected}")
        elif _identity(found) != _identity(expected):
            yield Finding(Fault.WRONG_ANSWER, where, f"{found}; {outcome.row} gives {expected}")
        yield from self._compare_free(where, event, found, expected)

    def _compare_free(self, where: str, event: LedgerEvent, found: Answer, expected: Answer) -> Iterator[Finding]:
        if found.free is None or expected.free is None:
            return
        if expected.reason in _TELLS_NOTHING:
            if found.free != expected.free:
                yield Finding(Fault.WRONG_ANSWER, where, "it tells what is free to someone who may not ask")
            return
        key = key_of(event)
        for account, told_free, left in zip(
            (f"tenant {key.tenant}" if key is not None else "no tenant", "the pool"),
            found.free,
            expected.free,
            strict=True,
        ):
            wrong = told_free - left
            # A counter that is wrong once stays wrong, so each new difference is told once.
            if wrong != self._wrong.get(account, 0) and wrong != 0:
                fault = Fault.CHARGED_WITHOUT_WORK if wrong < 0 else Fault.WORK_WITHOUT_CHARGE
                yield Finding(fault, where, f"{told_free} were free in {account}; the reservations leave {left}")
            self._wrong[account] = wrong

    def _try(self, call: Call, moment: int) -> tuple[Outcome, Answer]:
        """Return the answer at `moment`, and leave the world as it was."""
        kept = _Kept(self._world, call.event)
        self._world.pool["clock"] = moment
        free = self._free(call.event)
        outcome = self._world.apply(call.event, authentic=call.authentic)
        answer = self._answer(call.event, outcome, free)
        kept.restore()
        return outcome, answer

    def _moments(self, event: LedgerEvent, clock: int, until: int | None) -> Iterator[int]:
        """Yield the moments at which the answer to `event` may change, `clock` first."""
        yield clock
        limits: set[int] = set()
        key = key_of(event)
        asked = [self._world.reservations[key]] if key in self._world.reservations else []
        for record in [*asked, *(self._world.reservations[waiting] for waiting in self._world.queue)]:
            r = cast("dict[str, int]", record)
            limits |= {r["lease"], r["expires"], r["retained"], r["deadline"] - r["least_service"] + 1}
        if isinstance(event, Reserve):
            limits.add(event.deadline - event.least_service + 1)
        yield from sorted(limit for limit in limits if limit > clock and (until is None or limit <= until))

    def _set_clock(self, change: Change) -> None:
        """Let the world's clock show what the ledger's showed; a `Tick` moves it by itself."""
        if change.now is None:
            return
        clock = cast(int, self._world.pool["clock"])
        if not isinstance(change.event, Tick) or change.now > max(clock, change.event.now):
            self._world.pool["clock"] = max(change.now, clock)

    def _free(self, event: LedgerEvent) -> tuple[int, int]:
        key = key_of(event)
        tenant = self._world.tenants.get(key.tenant) if key is not None else None
        pool = self._world.pool
        in_tenant = cast(int, tenant["limit"]) - cast(int, tenant["active"]) if tenant is not None else 0
        return in_tenant, cast(int, pool["limit"]) - cast(int, pool["active"])

    def _answer(self, event: LedgerEvent, outcome: Outcome, free: tuple[int, int]) -> Answer:
        if outcome.reason in _TELLS_NOTHING:
            return Answer(outcome.decision, outcome.reason, free=(0, 0))
        key = key_of(event)
        if key is None or not key.request:
            return Answer(outcome.decision, outcome.reason, free=free)
        record = self._world.reservations.get(key)
        state = ReservationState.ABSENT if record is None else cast(ReservationState, record["state"])
        life, generation = (cast(int, record[name]) if record else 0 for name in ("life", "generation"))
        return Answer(outcome.decision, outcome.reason, state, life, generation, free=free)


class _Kept:
    """The parts of a world that one event may touch."""

    def __init__(self, world: LedgerWorld, event: LedgerEvent) -> None:
        self._world = world
        self._key = key_of(event)
        self._pool = dict(world.pool)
        self._tenant: MutableRecord | None = None
        self._record: MutableRecord | None = None
        if self._key is not None:
            self._tenant = dict(world.tenants[self._key.tenant]) if self._key.tenant in world.tenants else None
            record = world.reservations.get(self._key)
            self._record = dict(record) if record is not None else None
        self._queue = list(world.queue)

    def restore(self) -> None:
        """Put them back."""
        world, key = self._world, self._key
        world.pool.update(self._pool)
        world.queue[:] = self._queue
        if key is None:
            return
        if self._tenant is not None:
            world.tenants[key.tenant].update(self._tenant)
        if self._record is None:
            world.reservations.pop(key, None)
        else:
            world.reservations[key] = self._record


def _identity(answer: Answer) -> tuple[ReservationState | None, int, int]:
    return answer.state, answer.life, answer.generation


def _same(found: Answer, expected: Answer) -> bool:
    return (
        found.decision is expected.decision
        and found.reason is expected.reason
        and _identity(found) == _identity(expected)
        and (found.free is None or found.free == expected.free)
    )


def _counter(where: str, found: int, expected: int) -> Iterator[Finding]:
    if found != expected:
        fault = Fault.CHARGED_WITHOUT_WORK if found > expected else Fault.WORK_WITHOUT_CHARGE
        yield Finding(fault, where, f"{found}; the changes come to {expected}")
