"""The states of a ledger world as values that can be remembered and returned to."""

from typing import cast

from kvescrow.checks.concurrency.history import Answer, Call, Terms, key_of
from kvescrow.spec.language.interpreter import Value
from kvescrow.spec.vocabulary import Decision, Key, Reason, ReservationState

Values = tuple[Value, ...]
State = tuple[Values, tuple[Values, ...], tuple[tuple[Key, Values], ...], tuple[Key, ...]]
"""Pool, tenants, reservations by key, queue."""

_TELLS_NOTHING = {Reason.FORBIDDEN, Reason.FORGED}


class States:
    """One world that is put into any state, asked for one answer, and read again."""

    def __init__(self, terms: Terms) -> None:
        self._world = terms.world()
        self._fields: tuple[str, ...] = ()
        self._first = self._read()
        self._shown: State | None = self._first

    def first(self) -> State:
        """Return the state of the empty ledger."""
        return self._first

    def after(self, state: State, call: Call, names: Answer | None) -> tuple[Answer, State]:
        """Return what the tables answer to `call` in `state`, and the state after it.

        With `names` the life and the generation that it tells are the next ones drawn, where they are new.
        """
        self._write(state)
        if names is not None:
            for drawn, name in (("next_life", names.life), ("next_generation", names.generation)):
                self._world.pool[drawn] = max(name, cast(int, self._world.pool[drawn]))
        outcome = self._world.apply(call.event, authentic=call.authentic)
        answer = self._answer(call, outcome.decision, outcome.reason)
        if outcome.decision.changes_nothing:
            # Names alone may have moved what is drawn next, so the world is written again before the next call.
            self._shown = None if names is not None else state
            return answer, state
        after = self._shown = self._read()
        return answer, after

    def _answer(self, call: Call, decision: Decision, reason: Reason) -> Answer:
        key = key_of(call.event)
        if key is None or not key.request or reason in _TELLS_NOTHING:
            return Answer(decision, reason)
        record = self._world.reservations.get(key)
        if record is None:
            return Answer(decision, reason, ReservationState.ABSENT)
        state, life, generation = (record[name] for name in ("state", "life", "generation"))
        return Answer(decision, reason, cast(ReservationState, state), cast(int, life), cast(int, generation))

    def _read(self) -> State:
        world = self._world
        if world.reservations:
            self._fields = tuple(next(iter(world.reservations.values())))
        return (
            tuple(world.pool.values()),
            tuple(tuple(tenant.values()) for tenant in world.tenants.values()),
            tuple((key, tuple(world.reservations[key].values())) for key in sorted(world.reservations)),
            tuple(world.queue),
        )

    def _write(self, state: State) -> None:
        if state is self._shown:
            return
        pool, tenants, reservations, queue = state
        world = self._world
        world.pool.update(zip(world.pool, pool, strict=True))
        for tenant, values in zip(world.tenants.values(), tenants, strict=True):
            tenant.update(zip(tenant, values, strict=True))
        world.reservations = {key: dict(zip(self._fields, values, strict=True)) for key, values in reservations}
        world.queue = list(queue)
        self._shown = state
