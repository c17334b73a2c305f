"""Moves as they look for one shape of binding: everything that the instance knows is folded into guards and effects.

Bindings have one shape where they differ by the names of their places alone. What is compiled, and what is found out by
running it, is then shared between them.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import cached_property

from attrs import field, frozen

from kvescrow.checks.explore.folding import Folded, as_python, difference, fold, literal
from kvescrow.checks.explore.instance import Address, Known, Move, Place
from kvescrow.spec.language.expressions import TRUE, Expression, Field, Kind, Literal, reads
from kvescrow.spec.language.table import Row, effects_of


@frozen(eq=False)
class Shape:
    """What entities are bound to, up to the names of the places: bindings of one shape share all compiled code."""

    binds: Mapping[str, Place]
    given: Mapping[Address, Known]
    _reads: dict[int, frozenset[Address]] = field(factory=dict, init=False)

    @cached_property
    def owner(self) -> Mapping[str, str]:
        """Return, for each entity, the first entity that is bound to the same place."""
        first: dict[str, str] = {}
        return {entity: first.setdefault(place.name, entity) for entity, place in self.binds.items()}

    @cached_property
    def fields(self) -> tuple[Address, ...]:
        """Return the kept fields, as (owning entity, field)."""
        entities = dict.fromkeys(self.owner.values())
        return tuple((entity, name) for entity in entities for name in self.binds[entity].kept)

    @cached_property
    def position(self) -> Mapping[Address, int]:
        """Return the position of each kept field."""
        return {address: index for index, address in enumerate(self.fields)}

    def meaning(self, field: Field) -> Expression:
        """Return what `field` reads before the step, over the kept fields."""
        if field.path in self.given:
            return self.known(self.given[field.path], self.meaning)
        place = self.binds[field.entity]
        if field.name in place.kept:
            return Field(self.owner[field.entity], field.name, field.type)
        own = {place.entity.name: field.entity}
        return self.known(
            place.unkept(field.name), lambda inner: self.meaning(Field(own[inner.entity], inner.name, inner.type))
        )

    def known(self, known: Known, meaning: Callable[[Field], Expression]) -> Expression:
        """Return what an instance knows as an expression, with `meaning` filled in."""
        if isinstance(known, Expression):
            return fold(known, lambda inner, _: meaning(inner))
        return literal(known)

    def reads(self, expression: Expression) -> frozenset[Address]:
        """Return what `expression` reads, by the entity that owns it here."""
        if id(expression) not in self._reads:
            self._reads[id(expression)] = frozenset(
                (self.owner.get(entity, ""), name) for entity, name in reads(expression)
            )
        return self._reads[id(expression)]

    def python(self, expressions: Sequence[Expression]) -> list[Folded]:
        """Return folded expressions as functions of the kept fields."""
        return as_python(expressions, lambda field: self.position[field.path])

    def fold(self, expression: Expression) -> Expression:
        """Return `expression` over the state before a step, folded."""
        return fold(expression, lambda inner, _: self.meaning(inner))


@frozen
class FoldedRow:
    """What a row does to the kept fields, and the rules that are left to check."""

    id: str
    changes: tuple[tuple[int, Folded], ...]
    """(position of the field, new value)."""
    shifts: tuple[tuple[int, Folded], ...]
    """(position of the field, what is added to it), where that does not depend on the field."""
    rules: tuple[tuple[str, Folded], ...]


@frozen(eq=False)
class _Rule:
    """A step rule of the event."""

    name: str
    holds: Expression
    reads: frozenset[Address]
    """What it reads, by the entity that owns it here."""


class FoldedMove:
    """A move for one shape of binding."""

    def __init__(self, move: Move, shape: Shape) -> None:
        self._table = move.table
        self._event = move.event
        self._shape = shape
        self._parameters = {name: shape.known(known, shape.meaning) for name, known in move.parameters.items()}
        self.where = None if move.where is TRUE else shape.python([shape.fold(move.where)])[0]
        self.state = shape.python([shape.meaning(move.table.state)])[0]
        self._cells: dict[Enum, list[tuple[Folded | None, Row]]] = {}
        self._rows: dict[str, FoldedRow] = {}
        self._rules = [
            _Rule(f"{move.table.name}.{rule.name}", rule.holds, shape.reads(rule.holds))
            for rule in move.table.rules
            if rule.events is None or move.event in rule.events
        ]
        self._unmoved: dict[str, Expression] = {}

    def cell(self, state: Enum) -> list[tuple[Folded | None, Row]]:
        """Return the rows that can decide in `state`, in order, with the guards that are left of them."""
        if state not in self._cells:
            self._cells[state] = self._folded_cell(state)
        return self._cells[state]

    def _folded_cell(self, state: Enum) -> list[tuple[Folded | None, Row]]:
        found: list[tuple[Folded | None, Row]] = []
        for row in self._table.cells[state, self._event]:
            guard = fold(row.when, self._before)
            if isinstance(guard, Literal):
                if guard.value:
                    return [*found, (None, row)]
                continue
            found.append((self._shape.python([guard])[0], row))
        return found

    def row(self, row: Row) -> FoldedRow:
        """Return what `row` does."""
        if row.id not in self._rows:
            self._rows[row.id] = self._folded_row(row)
        return self._rows[row.id]

    def _before(self, field: Field, _: bool) -> Expression:
        return self._parameters[field.name] if field.entity == "event" else self._shape.meaning(field)

    def _folded_row(self, row: Row) -> FoldedRow:
        shape = self._shape
        written = {
            (shape.owner[effect.target.entity], effect.target.name): fold(effect.value, self._before)
            for effect in effects_of(self._table, row)
        }

        def after(field: Field, old: bool) -> Expression:
            if not old and field.entity != "event":
                value = written.get((shape.owner.get(field.entity, ""), field.name))
                if value is not None:
                    return value
            return self._before(field, old)

        ghosts = [ghost for ghost in self._table.ghosts if ghost.target.entity in shape.binds]
        written.update({(shape.owner[g.target.entity], g.target.name): fold(g.update, after) for g in ghosts})
        rules = [
            (rule.name, self._where_unmoved(rule) if rule.reads.isdisjoint(written) else fold(rule.holds, after))
            for rule in self._rules
        ]
        kept = [(name, rule) for name, rule in rules if not (isinstance(rule, Literal) and rule.value)]
        functions = shape.python([rule for _, rule in kept])
        stored = {address: value for address, value in written.items() if address in shape.position}
        stored.update(self._rounded(written))
        possible = {address: self._shift(address, value) for address, value in stored.items()}
        shifts = {address: shift for address, shift in possible.items() if shift is not None}
        changes = {address: value for address, value in stored.items() if address not in shifts}
        return FoldedRow(
            row.id,
            self._numbered(changes),
            self._numbered(shifts),
            tuple(zip((name for name, _ in kept), functions, strict=True)),
        )

    def _where_unmoved(self, rule: "_Rule") -> Expression:
        """Return a rule where a row writes nothing that it reads: the same for all such rows."""
        if rule.name not in self._unmoved:
            self._unmoved[rule.name] = fold(rule.holds, self._before)
        return self._unmoved[rule.name]

    def _numbered(self, values: Mapping[Address, Expression]) -> tuple[tuple[int, Folded], ...]:
        shape = self._shape
        return tuple(zip((shape.position[a] for a in values), shape.python(list(values.values())), strict=True))

    def _shift(self, address: Address, value: Expression) -> Expression | None:
        """Return what is added to the field at `address` where `value` is the field plus something else."""
        entity, name = address
        if self._shape.binds[entity].entity.fields[name] is not Kind.INTEGER:
            return None
        shift = difference(value, Field(*address, Kind.INTEGER))
        return None if address in reads(shift) else shift

    def _rounded(self, written: Mapping[Address, Expression]) -> dict[Address, Expression]:
        shape = self._shape
        rounded: dict[Address, Expression] = {}
        for entity in {entity for entity, _ in written}:
            place = shape.binds[entity]

            def after(field: Field, _: bool, entity: str = entity) -> Expression:
                value = written.get((entity, field.name))
                return shape.meaning(Field(entity, field.name, field.type)) if value is None else value

            rounded.update({(entity, name): fold(value, after) for name, value in place.rounded.items()})
        return rounded


def keyed(known: Mapping[object, Known] | Mapping[str, Known] | Mapping[Address, Known]) -> object:
    """Return what tells two such mappings apart."""
    return tuple((name, _identity(value)) for name, value in known.items())


def _identity(known: Known) -> object:
    return ("expression", id(known)) if isinstance(known, Expression) else (type(known), known)


def outline(place: Place) -> object:
    """Return all of a place that compiled code depends on: everything but its name."""
    return (
        place.entity.name,
        tuple(place.kept.items()),
        keyed(place.reads_as),
        tuple((name, id(value)) for name, value in place.rounded.items()),
        place.cut,
    )
