"""What all obligations of one table share: symbols for its view, and a solver that holds its hypotheses."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import z3  # type: ignore[import-untyped]
from attrs import frozen

from kvescrow.checks.prove.encoding import Encoder, Path, Symbols, Types, record_of, view_of
from kvescrow.checks.prove.solver import Solver
from kvescrow.checks.prove.step import Case, premises
from kvescrow.spec.language.expressions import Expression
from kvescrow.spec.language.table import Event, Row, Table, effects_of


@frozen(eq=False)
class TableContext:
    """A table in Z3."""

    table: Table
    encoder: Encoder
    effort: int
    types: Types
    view: Symbols

    def solver(self) -> Solver:
        """Return a solver without hypotheses."""
        return Solver(self.encoder.context, self.effort)

    def small(self) -> list[z3.BoolRef]:
        """Return the wish that every number of the view be small."""
        return self.encoder.small(self.types, self.view)


def table_context(table: Table, effort: int) -> TableContext:
    """Return the symbols of `table` in a new Z3 context."""
    encoder = Encoder()
    types = {(entity.name, name): kind for entity in table.entities for name, kind in entity.fields.items()}
    return TableContext(table, encoder, effort, types, encoder.symbols(types))


@frozen(eq=False)
class EventContext:
    """One event of a table in Z3. `now` has the symbols of the view and of the event's parameters."""

    base: TableContext
    event: Event
    types: Types
    now: Symbols
    solver: Solver
    """Holds every assumption and invariant that may be relied on before the event."""

    @property
    def table(self) -> Table:
        """Return the table."""
        return self.base.table

    def term(self, expression: Expression) -> z3.ExprRef:
        """Return the term for `expression` before the event."""
        return self.base.encoder.term(expression, self.now)

    def is_in(self, state: object) -> z3.BoolRef:
        """Return that the moved entity is in `state`."""
        return self.term(self.table.state == state)

    def fires(self, row: Row) -> z3.BoolRef:
        """Return that the row's source and guard hold, whatever earlier rows do."""
        return self.term(self.table.state.is_in(row.sources) & row.when)

    def case(self, model: z3.ModelRef) -> Case:
        """Return the case that `model` describes."""
        view = view_of(self.table.schema, self.types, self.now, model)
        return Case(view, self.event.name, record_of("event", self.types, self.now, model))

    def assumed(self) -> list[z3.BoolRef]:
        """Return the assumptions about this event, and the ranges of its parameters."""
        parameters = {path: kind for path, kind in self.types.items() if path[0] == "event"}
        return [
            *self.base.encoder.domains(parameters, self.now),
            *(
                self.term(assumption.holds)
                for assumption in self.table.assumptions
                if assumption.events is not None and self.event.name in assumption.events
            ),
        ]

    def small(self) -> list[z3.BoolRef]:
        """Return the wish that every number of the view and of the event be small."""
        return self.base.encoder.small(self.types, self.now)


@contextmanager
def event_context(base: TableContext, event: Event, solver: Solver) -> Iterator[EventContext]:
    """Push the hypotheses about `event` on top of what `solver` holds."""
    parameters: Types = {("event", name): kind for name, kind in event.parameters.items()}
    now = {**base.view, **base.encoder.symbols(parameters)}
    context = EventContext(base, event, {**base.types, **parameters}, now, solver)
    with solver.scope():
        solver.assume(context.assumed())
        yield context


def standing(base: TableContext, *, invariants: bool) -> Iterable[z3.BoolRef]:
    """Return the hypotheses that hold before every event: domains, assumptions, and the invariants if wanted."""
    yield from base.encoder.domains(base.types, base.view)
    for assumption in base.table.assumptions:
        if assumption.events is None:
            yield base.encoder.term(assumption.holds, base.view)
    if invariants:
        for invariant in base.table.invariants:
            yield base.encoder.term(invariant.holds, base.view)


def hypotheses(context: EventContext) -> Iterator[tuple[str, z3.BoolRef]]:
    """Yield every hypothesis before the event with its name."""
    for name, expression in premises(context.table, context.event.name):
        yield name, context.term(expression)


@frozen(eq=False)
class After:
    """The state after a row, ghosts included, and the fields in which it may differ from the state before."""

    symbols: Symbols
    changed: frozenset[Path]


def state_after(context: EventContext, row: Row) -> After:
    """Return the terms of the state after `row`."""
    moved = dict(context.now)
    for effect in effects_of(context.table, row):
        moved[effect.target.path] = context.term(effect.value)
    changed = {effect.target.path for effect in effects_of(context.table, row)}
    final = dict(moved)
    for ghost in context.table.ghosts:
        path = ghost.target.path
        final[path] = z3.simplify(context.base.encoder.term(ghost.update, moved, context.now))
        if not final[path].eq(context.now[path]):
            changed.add(path)
    return After(final, frozenset(changed))
