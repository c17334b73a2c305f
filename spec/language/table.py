"""Rows, invariants, and the table that holds them, checked when it is built.

A table moves one entity. Rows of one event are read in order and the first that fires decides; so every
(state, event) cell must have a row, and a refusing row has no effect. Whatever is wrong in a table is raised
at import as a `TableError` that names the row.
"""

import re
from collections.abc import Iterable, Mapping
from enum import Enum
from functools import cached_property

from attrs import define, field, frozen

from kvescrow.spec.language.expressions import (
    NOBODY,
    TRUE,
    Before,
    Binary,
    Effect,
    Entity,
    Expression,
    ExpressionError,
    Field,
    Kind,
    Type,
    all_of,
    type_name,
    type_of,
    walk,
)
from kvescrow.spec.vocabulary import Decision, Reason

_REQUIREMENT = re.compile(r"^[A-Z]{3}-\d+$")


class TableError(Exception):
    """A table that does not decide every case, or that contradicts itself; the message names the row."""


@frozen
class Reply:
    """What a row answers."""

    decision: Decision
    reason: Reason = Reason.NONE

    def __str__(self) -> str:
        return self.decision.value if self.reason is Reason.NONE else f"{self.decision.value} {self.reason.value}"


@frozen
class Event:
    """A kind of event with its typed parameters; guards read them as fields of the entity `event`."""

    name: str
    parameters: Mapping[str, Type]
    note: str


@frozen(eq=False)
class Row:
    """One transition: in one of `sources`, on `event`, where `when` holds and no earlier row fired."""

    id: str
    event: str
    sources: tuple[Enum, ...]
    reply: Reply
    cites: tuple[str, ...]
    note: str
    when: Expression = TRUE
    to: Enum | None = None
    """Target state; None stays."""
    do: tuple[Effect, ...] = ()

    @property
    def changes_nothing(self) -> bool:
        """Whether the row leaves the whole view as it was."""
        return self.to is None and not self.do


@frozen(eq=False)
class Invariant:
    """Holds in every reachable state, for any number of entities."""

    name: str
    holds: Expression
    cites: tuple[str, ...]
    note: str


@frozen(eq=False)
class StepRule:
    """Holds over every step: `holds` may read `before(field)`. `events` limits it; None means every event."""

    name: str
    holds: Expression
    cites: tuple[str, ...]
    note: str
    events: frozenset[str] | None = None


@frozen(eq=False)
class Assumption:
    """Taken for granted of the rest of the world or of an event; what is proved rests on it.

    `events` limits it to the events whose parameters it reads; None means every event.
    """

    name: str
    holds: Expression
    note: str
    events: frozenset[str] | None = None


@frozen(eq=False)
class Sometimes:
    """A situation that must be reached, so that an "always" beside it is not empty."""

    name: str
    reached: Expression
    note: str


@frozen(eq=False)
class Ghost:
    """A field that exists for the proof alone: after each step it gets the value of `update`.

    `update` reads the state after the row plainly and the state before it through `before(...)`.
    """

    target: Field
    update: Expression
    note: str


@frozen(eq=False)
class NonInterference:
    """Two runs of `event` that one caller cannot tell apart get the same answer (SCO-4).

    Take any two views, each with the invariants and assumptions, and the same event parameters. Where they
    agree as `same` and `same_when` say, the replies agree, and so do the values of `same` after the step.
    """

    name: str
    event: str
    same: tuple[Expression, ...]
    """Equal in both runs: what the caller may see in any case."""
    same_when: tuple[tuple[Expression, tuple[Expression, ...]], ...]
    """(condition, expressions): where the condition holds in either run, both agree on the expressions."""
    cites: tuple[str, ...]
    note: str


@define(eq=False, slots=False)
class Table:
    """A transition table. Building it checks it; afterwards it is read-only by convention of its users."""

    name: str
    moves: Entity
    """The entity whose `state` field the rows change."""
    state_type: type[Enum]
    entities: tuple[Entity, ...]
    """All entities of the view, `moves` included, `event` excluded."""
    events: tuple[Event, ...]
    rows: tuple[Row, ...]
    initial: Expression
    """What holds of a view before anything happened."""
    note: str
    invariants: tuple[Invariant, ...] = ()
    rules: tuple[StepRule, ...] = ()
    assumptions: tuple[Assumption, ...] = ()
    sometimes: tuple[Sometimes, ...] = ()
    ghosts: tuple[Ghost, ...] = field(default=())
    non_interference: tuple[NonInterference, ...] = ()

    def __attrs_post_init__(self) -> None:
        """Refuse a table that is incomplete or badly typed."""
        _check_names(self)
        for row in self.rows:
            _check_row(self, row)
        _check_cells(self)
        _check_properties(self)

    @cached_property
    def cells(self) -> Mapping[tuple[Enum, str], tuple[Row, ...]]:
        """Return the rows of each (state, event) cell, in reading order."""
        return {
            (state, event.name): tuple(row for row in self.rows if row.event == event.name and state in row.sources)
            for state in self.state_type
            for event in self.events
        }

    @cached_property
    def row_by_id(self) -> Mapping[str, Row]:
        """Return the rows by id."""
        return {row.id: row for row in self.rows}

    @cached_property
    def schema(self) -> Mapping[str, Entity]:
        """Return the entities of the view by name, without `event`."""
        return {entity.name: entity for entity in self.entities}

    def event(self, name: str) -> Event:
        """Return the event called `name`."""
        return next(event for event in self.events if event.name == name)

    @property
    def state(self) -> Field:
        """Return the field that rows move."""
        return Field(self.moves.name, "state", self.state_type)


def effects_of(table: Table, row: Row) -> tuple[Effect, ...]:
    """Return all effects of `row`, the change of state included."""
    if row.to is None:
        return row.do
    return (table.state.becomes(row.to), *row.do)


def guards_of(row: Row) -> tuple[Expression, ...]:
    """Return the conjuncts of the row's guard; none where it always fires."""
    return tuple(_conjuncts(row.when)) if row.when is not TRUE else ()


def _conjuncts(expression: Expression) -> Iterable[Expression]:
    if isinstance(expression, Binary) and expression.operator == "and":
        yield from _conjuncts(expression.left)
        yield from _conjuncts(expression.right)
    else:
        yield expression


def parameter_entity(event: Event) -> Entity:
    """Return the entity through which rows read the parameters of `event`."""
    return Entity("event", event.parameters, settled=True)


def merged_event_entity(events: Iterable[Event]) -> Entity:
    """Return one `event` entity with the parameters of all `events`, for writing rows."""
    parameters: dict[str, Type] = {}
    for event in events:
        for name, kind in event.parameters.items():
            if parameters.setdefault(name, kind) is not kind:
                raise TableError(f"event parameter `{name}` has two types")
    return Entity("event", parameters, settled=True)


def _check_names(table: Table) -> None:
    if not table.rows:
        raise TableError(f"table {table.name}: it has no rows")
    for kind, names in (
        ("row", [row.id for row in table.rows]),
        ("event", [event.name for event in table.events]),
        (
            "property",
            [
                *(invariant.name for invariant in table.invariants),
                *(rule.name for rule in table.rules),
                *(assumption.name for assumption in table.assumptions),
                *(promise.name for promise in table.non_interference),
            ],
        ),
        ("entity", [entity.name for entity in table.entities]),
    ):
        doubled = sorted({name for name in names if names.count(name) > 1})
        if doubled:
            raise TableError(f"table {table.name}: duplicate {kind} {', '.join(doubled)}")
    if table.moves not in table.entities:
        raise TableError(f"table {table.name}: it moves `{table.moves.name}`, which is not in its view")
    if table.moves.fields.get("state") is not table.state_type:
        raise TableError(f"table {table.name}: `{table.moves.name}.state` is not {table.state_type.__name__}")


def _check_row(table: Table, row: Row) -> None:
    def fail(problem: str) -> TableError:
        return TableError(f"row {row.id}: {problem}")

    prefix = f"{table.name}.{row.event}."
    if not row.id.startswith(prefix) or row.id == prefix:
        raise fail(f"its id must be `{prefix}<name>`")
    if row.event not in {event.name for event in table.events}:
        raise fail(f"unknown event `{row.event}`")
    if not row.sources or any(not isinstance(s, table.state_type) for s in row.sources):
        raise fail(f"its sources must be states of {table.state_type.__name__}")
    if len(set(row.sources)) != len(row.sources):
        raise fail("a source state is named twice")
    if row.to is not None and not isinstance(row.to, table.state_type):
        raise fail(f"its target {row.to} is not a state of {table.state_type.__name__}")
    if not row.note.strip():
        raise fail("it has no note")
    bad = [cite for cite in row.cites if not _REQUIREMENT.match(cite)]
    if bad or not row.cites:
        raise fail(f"it must cite requirement ids, not {', '.join(bad) or 'nothing'}")
    if row.reply.decision.changes_nothing and not row.changes_nothing:
        raise fail(f"it answers {row.reply} and so must change nothing")
    if row.changes_nothing and not row.reply.decision.changes_nothing:
        raise fail(f"it answers {row.reply} but has no effect")
    try:
        _check_expressions(table, row)
    except ExpressionError as error:
        raise fail(str(error)) from error


def _check_expressions(table: Table, row: Row) -> None:
    event = table.event(row.event)
    check_expression(table, row.when, event, Kind.BOOLEAN)
    targets = [effect.target.path for effect in effects_of(table, row)]
    for effect in effects_of(table, row):
        kind = type_of(effect.target)
        check_expression(table, effect.target, None, kind)
        if not (kind is Kind.NAME and effect.value is NOBODY):
            check_expression(table, effect.value, event, kind)
        if table.schema[effect.target.entity].settled:
            raise ExpressionError(f"`{effect.target}` belongs to the rest of the world and cannot be written")
    doubled = sorted({".".join(path) for path in targets if targets.count(path) > 1})
    if doubled:
        raise ExpressionError(f"{', '.join(doubled)} is written twice")


def check_expression(
    table: Table, expression: Expression, event: Event | None, wanted: Type, *, two_states: bool = False
) -> None:
    """Raise `ExpressionError` unless `expression` is of type `wanted` and reads only what is in the view.

    `event` is None where no parameter may be read; `two_states` allows `before(...)`.
    """
    parameters: Mapping[str, Type] = event.parameters if event else {}
    for node in walk(expression):
        if isinstance(node, Before) and not two_states:
            raise ExpressionError(f"`{node}` reads an older state, which only step rules may")
        if isinstance(node, Field):
            entity = table.schema.get(node.entity)
            known = parameters if node.entity == "event" else (entity.fields if entity else {})
            if node.name not in known:
                raise ExpressionError(f"unknown field `{node}`")
    found = type_of(expression)
    if found is not wanted:
        raise ExpressionError(f"`{expression}` is {type_name(found)}, not {type_name(wanted)}")


def _check_cells(table: Table) -> None:
    for (state, event), rows in table.cells.items():
        if not rows:
            raise TableError(f"table {table.name}: no row decides `{event}` in {state.name}")
        always = next((index for index, row in enumerate(rows) if row.when is TRUE), len(rows))
        if always < len(rows) - 1:
            raise TableError(
                f"row {rows[always + 1].id}: it can never fire in {state.name}, "
                f"since {rows[always].id} before it always does"
            )


def _check_properties(table: Table) -> None:
    try:
        check_expression(table, table.initial, None, Kind.BOOLEAN)
        for invariant in table.invariants:
            _named(invariant.name, table, invariant.holds, None)
        for situation in table.sometimes:
            _named(situation.name, table, situation.reached, None)
        properties: tuple[StepRule | Assumption, ...] = (*table.rules, *table.assumptions)
        for prop in properties:
            known = {event.name for event in table.events}
            names = prop.events if prop.events is not None else known
            for name in sorted(names):
                if name not in known:
                    raise ExpressionError(f"{prop.name}: unknown event `{name}`")
                _named(prop.name, table, prop.holds, table.event(name))
        for ghost in table.ghosts:
            check_expression(table, ghost.update, None, type_of(ghost.target), two_states=True)
        for promise in table.non_interference:
            _check_non_interference(table, promise)
    except ExpressionError as error:
        raise TableError(f"table {table.name}: {error}") from error


def _check_non_interference(table: Table, promise: NonInterference) -> None:
    if promise.event not in {event.name for event in table.events}:
        raise ExpressionError(f"{promise.name}: unknown event `{promise.event}`")
    event = table.event(promise.event)
    try:
        for visible in (*promise.same, *(part for _, parts in promise.same_when for part in parts)):
            check_expression(table, visible, event, type_of(visible))
        for condition, _ in promise.same_when:
            check_expression(table, condition, event, Kind.BOOLEAN)
    except ExpressionError as error:
        raise ExpressionError(f"{promise.name}: {error}") from error


def _named(name: str, table: Table, holds: Expression, event: Event | None) -> None:
    try:
        check_expression(table, holds, event, Kind.BOOLEAN, two_states=event is not None)
    except ExpressionError as error:
        raise ExpressionError(f"{name}: {error}") from error


def conjunction(table: Table) -> Expression:
    """Return the conjunction of all invariants of `table`."""
    return all_of(*(invariant.holds for invariant in table.invariants))
