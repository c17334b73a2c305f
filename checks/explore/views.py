"""Moves and laws as functions of the kept fields, with a record of what each answer depended on.

The state is a list of codes, one a kept field. Everything else that a row, a rule or a law reads is known from the
instance and is folded away beforehand, for each row of each move. What is left notes every field that it reads.
States that agree on what was read behave alike: this is what the packed search tabulates.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import cached_property
from typing import cast

from attrs import frozen

from kvescrow.checks.explore.folding import Folded, as_python, difference, fold, literal
from kvescrow.checks.explore.instance import Address, Instance, Known, Move, Place
from kvescrow.checks.explore.laws import Law, Term
from kvescrow.spec.language.expressions import TRUE, Expression, Field, Kind, Literal, reads
from kvescrow.spec.language.interpreter import Value
from kvescrow.spec.language.table import Row, effects_of


@frozen
class Variable:
    """One kept field of one place."""

    place: str
    field: str
    domain: tuple[Value, ...]
    cut: bool

    def __str__(self) -> str:
        return f"{self.place}.{self.field}"


class Outcome(Enum):
    """What became of a move."""

    FIRED = "fired"
    """A row decided it."""
    ABSENT = "absent"
    """The binding does not exist in this state."""
    CUT = "cut"
    """It leaves the bounds of the search."""
    BROKE_RULE = "rule"
    """Its step breaks a step rule."""
    LEFT_DOMAIN = "domain"
    """It gives a field a value that the instance says it never has."""


@frozen
class Step:
    """A move at one valuation."""

    outcome: Outcome
    row: str = ""
    changes: tuple[tuple[int, int], ...] = ()
    """(variable, new code) of what changed."""
    law: str = ""
    """The rule that broke, or the field that left its domain."""


class Memory:
    """The state that is looked at, and what was read of it."""

    def __init__(self, variables: Sequence[Variable]) -> None:
        self.variables = variables
        self.codes: list[int] = [0] * len(variables)
        self.read: set[int] = set()
        self._domains = [variable.domain for variable in variables]

    def reader(self, spots: Sequence[int]) -> Callable[[int], Value]:
        """Return a function that reads, and notes, the variables at `spots` by their position."""
        read, domains, codes = self.read, self._domains, self.codes

        def value(position: int) -> Value:
            spot = spots[position]
            read.add(spot)
            return domains[spot][codes[spot]]

        return value


@frozen(eq=False)
class _Shape:
    """What entities are bound to, up to the names of the places: bindings of one shape share all compiled code."""

    binds: Mapping[str, Place]
    given: Mapping[Address, Known]

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
            return self._known(self.given[field.path], self.meaning)
        place = self.binds[field.entity]
        if field.name in place.kept:
            return Field(self.owner[field.entity], field.name, field.type)
        own = {place.entity.name: field.entity}
        return self._known(
            place.unkept(field.name), lambda inner: self.meaning(Field(own[inner.entity], inner.name, inner.type))
        )

    def _known(self, known: Known, meaning: Callable[[Field], Expression]) -> Expression:
        if isinstance(known, Expression):
            return fold(known, lambda inner, _: meaning(inner))
        return literal(known)

    def python(self, expressions: Sequence[Expression]) -> list[Folded]:
        """Return folded expressions as functions of the kept fields."""
        return as_python(expressions, lambda field: self.position[field.path])

    def fold(self, expression: Expression) -> Expression:
        """Return `expression` over the state before a step, folded."""
        return fold(expression, lambda inner, _: self.meaning(inner))


@frozen
class _FoldedRow:
    """What a row does to the kept fields, and the rules that are left to check."""

    id: str
    changes: tuple[tuple[int, Folded], ...]
    """(position of the field, new value)."""
    shifts: tuple[tuple[int, Folded], ...]
    """(position of the field, what is added to it), where that does not depend on the field."""
    rules: tuple[tuple[str, Folded], ...]


class _FoldedMove:
    """A move for one shape of binding."""

    def __init__(self, move: Move, shape: _Shape) -> None:
        self._table = move.table
        self._event = move.event
        self._shape = shape
        self._parameters = {name: shape._known(known, shape.meaning) for name, known in move.parameters.items()}
        self.where = None if move.where is TRUE else shape.python([shape.fold(move.where)])[0]
        self.state = shape.python([shape.meaning(move.table.state)])[0]
        self._cells: dict[Enum, list[tuple[Folded | None, Row]]] = {}
        self._rows: dict[str, _FoldedRow] = {}
        # What the event's parameters settle of the rules is settled once, for all rows.
        self._rules = [
            (f"{move.table.name}.{rule.name}", rule.holds)
            for rule in move.table.rules
            if rule.events is None or move.event in rule.events
        ]

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

    def row(self, row: Row) -> _FoldedRow:
        """Return what `row` does."""
        if row.id not in self._rows:
            self._rows[row.id] = self._folded_row(row)
        return self._rows[row.id]

    def _before(self, field: Field, _: bool) -> Expression:
        return self._parameters[field.name] if field.entity == "event" else self._shape.meaning(field)

    def _folded_row(self, row: Row) -> _FoldedRow:
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
        rules = [(name, fold(holds, after)) for name, holds in self._rules]
        kept = [(name, rule) for name, rule in rules if not (isinstance(rule, Literal) and rule.value)]
        functions = shape.python([rule for _, rule in kept])
        stored = {address: value for address, value in written.items() if address in shape.position}
        stored.update(self._rounded(written))
        possible = {address: self._shift(address, value) for address, value in stored.items()}
        shifts = {address: shift for address, shift in possible.items() if shift is not None}
        changes = {address: value for address, value in stored.items() if address not in shifts}
        return _FoldedRow(
            row.id,
            self._numbered(changes),
            self._numbered(shifts),
            tuple(zip((name for name, _ in kept), functions, strict=True)),
        )

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


class Views:
    """Compiles the moves and laws of an instance over one memory."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.variables = tuple(
            Variable(place.name, name, tuple(domain), name in place.cut)
            for place in instance.places
            for name, domain in place.kept.items()
        )
        self.spots: dict[Address, int] = {(v.place, v.field): index for index, v in enumerate(self.variables)}
        self.code_of = tuple({value: code for code, value in enumerate(v.domain)} for v in self.variables)
        self.memory = Memory(self.variables)
        self._shapes: dict[object, _Shape] = {}
        self._moves: dict[object, _FoldedMove] = {}
        self._functions: dict[object, Folded] = {}

    def first(self) -> list[int]:
        """Return the codes of the first state."""
        return [
            code[self.instance.place_by_name[v.place].start(v.field)]
            for v, code in zip(self.variables, self.code_of, strict=True)
        ]

    def of_places(self, places: Sequence[str]) -> tuple[int, ...]:
        """Return the variables of `places`."""
        chosen = set(places)
        return tuple(index for index, v in enumerate(self.variables) if v.place in chosen)

    def _shape(self, binds: Mapping[str, str], given: Mapping[Address, Known]) -> tuple[_Shape, tuple[int, ...]]:
        places = {entity: self.instance.place_by_name[name] for entity, name in binds.items()}
        order: dict[str, int] = {}
        key = (
            tuple((entity, order.setdefault(p.name, len(order)), _outline(p)) for entity, p in places.items()),
            _keyed(given),
        )
        shape = self._shapes.setdefault(key, _Shape(places, given))
        spots = tuple(self.spots[binds[entity], name] for entity, name in shape.fields)
        return shape, spots

    def move(self, move: Move) -> "BoundMove":
        """Return `move` as a function of the memory."""
        shape, spots = self._shape(move.binds, move.given)
        key = (id(shape), move.table.name, move.event, _keyed(move.parameters), id(move.where))
        if key not in self._moves:
            self._moves[key] = _FoldedMove(move, shape)
        return BoundMove(self, self._moves[key], spots)

    def law(self, law: Law) -> Callable[[], bool]:
        """Return `law` as a function of the memory."""
        holds = self._function(law.holds, law.binds, law.given)
        return lambda: bool(holds())

    def term(self, term: Term) -> Callable[[], int]:
        """Return the amount of `term` as a function of the memory."""
        amount = self._function(term.amount, term.binds, {})
        return lambda: cast(int, amount())

    def _function(
        self, expression: Expression, binds: Mapping[str, str], given: Mapping[Address, Known]
    ) -> Callable[[], Value]:
        shape, spots = self._shape(binds, given)
        key = (id(shape), id(expression))
        if key not in self._functions:
            self._functions[key] = shape.python([shape.fold(expression)])[0]
        function, read = self._functions[key], self.memory.reader(spots)
        return lambda: function(read)

    def named(self, codes: Sequence[int]) -> dict[str, Value]:
        """Return a state by field name."""
        return {str(v): v.domain[code] for v, code in zip(self.variables, codes, strict=True)}


@frozen
class LocalStep:
    """A move where the fields that it only adds to are not looked at."""

    row: str
    """Empty where the binding does not exist."""
    law: str = ""
    """The rule that broke."""
    changes: tuple[tuple[int, Value], ...] = ()
    """(variable, new value)."""
    shifts: tuple[tuple[int, int], ...] = ()
    """(variable, what is added)."""


class BoundMove:
    """A move at its places. Calling it gives the step in the state of the memory."""

    def __init__(self, views: Views, move: _FoldedMove, spots: Sequence[int]) -> None:
        self._views = views
        self._move = move
        self._spots = spots
        self._read = views.memory.reader(spots)

    def __call__(self) -> Step:
        """Return the whole step, with every field that it writes held against its domain."""
        row = self._row()
        if row is None:
            return Step(Outcome.ABSENT)
        law = self._broken(row)
        if law:
            return Step(Outcome.BROKE_RULE, row.id, law=law)
        return self._stored(row)

    def local(self) -> LocalStep:
        """Return the step without a look at what it only adds to."""
        row = self._row()
        if row is None:
            return LocalStep("")
        spots, read = self._spots, self._read
        return LocalStep(
            row.id,
            self._broken(row),
            tuple((spots[position], new(read)) for position, new in row.changes),
            tuple((spots[position], cast(int, shift(read))) for position, shift in row.shifts),
        )

    def _row(self) -> _FoldedRow | None:
        move, read = self._move, self._read
        if move.where is not None and not move.where(read):
            return None
        for guard, row in move.cell(cast(Enum, move.state(read))):
            if guard is None or guard(read):
                return move.row(row)
        raise AssertionError("a table decides every case")

    def _broken(self, row: _FoldedRow) -> str:
        return next((law for law, holds in row.rules if not holds(self._read)), "")

    def _stored(self, row: _FoldedRow) -> Step:
        views, read, spots = self._views, self._read, self._spots
        memory = views.memory
        values = [(spots[position], new(read)) for position, new in row.changes]
        values += [
            (spots[position], cast(int, shift(read)) + cast(int, read(position))) for position, shift in row.shifts
        ]
        memory.read.update(spot for spot, _ in values)
        codes = [(spot, views.code_of[spot].get(value)) for spot, value in values]
        outside = [
            (views.variables[spot], value)
            for (spot, code), (_, value) in zip(codes, values, strict=True)
            if code is None
        ]
        if any(variable.cut for variable, _ in outside):
            return Step(Outcome.CUT, row.id)
        if outside:
            variable, value = outside[0]
            return Step(Outcome.LEFT_DOMAIN, row.id, law=f"{variable} = {value}")
        changes = ((spot, code) for spot, code in codes if code is not None and code != memory.codes[spot])
        return Step(Outcome.FIRED, row.id, tuple(sorted(changes)))


def _keyed(known: Mapping[object, Known] | Mapping[str, Known] | Mapping[Address, Known]) -> object:
    return tuple((name, _identity(value)) for name, value in known.items())


def _identity(known: Known) -> object:
    return ("expression", id(known)) if isinstance(known, Expression) else (type(known), known)


def _outline(place: Place) -> object:
    return (
        place.entity.name,
        tuple(place.kept.items()),
        _keyed(place.reads_as),
        tuple((name, id(value)) for name, value in place.rounded.items()),
        place.cut,
    )
