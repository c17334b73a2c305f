"""Moves and laws as functions of the kept fields, with a record of what each answer depended on.

The state is a list of codes, one a kept field. Everything else that a row, a rule or a law reads is known from the
instance and is folded away beforehand, for each row of each move. What is left notes every field that it reads.
States that agree on what was read behave alike: this is what the packed search tabulates.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import TypeVar, cast

from attrs import field, frozen

from kvescrow.checks.explore.folding import Folded
from kvescrow.checks.explore.instance import Address, Instance, Known, Move
from kvescrow.checks.explore.laws import Law, Term
from kvescrow.checks.explore.shapes import FoldedMove, FoldedRow, Shape, keyed, outline
from kvescrow.spec.language.expressions import Expression
from kvescrow.spec.language.interpreter import Value


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
        self._shapes: dict[object, Shape] = {}
        self._moves: dict[object, _SharedMove] = {}
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

    def _shape(self, binds: Mapping[str, str], given: Mapping[Address, Known]) -> tuple[Shape, tuple[int, ...]]:
        places = {entity: self.instance.place_by_name[name] for entity, name in binds.items()}
        order: dict[str, int] = {}
        key = (
            tuple((entity, order.setdefault(p.name, len(order)), outline(p)) for entity, p in places.items()),
            keyed(given),
        )
        shape = self._shapes.setdefault(key, Shape(places, given))
        spots = tuple(self.spots[binds[entity], name] for entity, name in shape.fields)
        return shape, spots

    def move(self, move: Move) -> "BoundMove":
        """Return `move` as a function of the memory."""
        shape, spots = self._shape(move.binds, move.given)
        key = (id(shape), move.table.name, move.event, keyed(move.parameters), id(move.where))
        if key not in self._moves:
            self._moves[key] = _SharedMove(FoldedMove(move, shape))
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


_Answer = TypeVar("_Answer", Step, LocalStep)
_Remembered = dict[tuple[int, ...], dict[tuple[int, ...], _Answer]]
"""Positions of the fields that an answer depended on -> their codes -> the answer, by position."""


@frozen(eq=False)
class _SharedMove:
    """A move for one shape of binding, and what is known of it wherever it is bound."""

    folded: FoldedMove
    steps: _Remembered[Step] = field(factory=dict)
    local_steps: _Remembered[LocalStep] = field(factory=dict)


class BoundMove:
    """A move at its places. Calling it gives the step in the state of the memory."""

    def __init__(self, views: Views, shared: _SharedMove, spots: Sequence[int]) -> None:
        self._views = views
        self._shared = shared
        self._move = shared.folded
        self._spots = spots
        self._read = views.memory.reader(spots)

    def __call__(self) -> Step:
        """Return the whole step, with every field that it writes held against its domain."""
        step = self._remembered(self._shared.steps, self._step)
        if not step.changes:
            return step
        spots = self._spots
        changes = tuple(sorted([(spots[position], code) for position, code in step.changes]))
        return Step(step.outcome, step.row, changes, step.law)

    def local(self) -> LocalStep:
        """Return the step without a look at what it only adds to."""
        step = self._remembered(self._shared.local_steps, self._local_step)
        spots = self._spots
        return LocalStep(
            step.row,
            step.law,
            tuple([(spots[position], value) for position, value in step.changes]),
            tuple([(spots[position], shift) for position, shift in step.shifts]),
        )

    def _remembered(self, known: _Remembered[_Answer], find: Callable[[], _Answer]) -> _Answer:
        """Return the answer in this state, from memory where one shape of this move has met it; note what it read."""
        spots, memory = self._spots, self._views.memory
        codes = memory.codes
        for positions, answers in known.items():
            answer = answers.get(tuple([codes[spots[position]] for position in positions]))
            if answer is not None:
                memory.read.update([spots[position] for position in positions])
                return answer
        before = set(memory.read)
        memory.read.clear()
        answer = find()
        read = tuple(position for position, spot in enumerate(spots) if spot in memory.read)
        if not answer.law:  # What breaks is named by its place, and ends the search.
            known.setdefault(read, {})[tuple([codes[spots[position]] for position in read])] = answer
        memory.read.update(before)
        return answer

    def _step(self) -> Step:
        row = self._row()
        if row is None:
            return Step(Outcome.ABSENT)
        law = self._broken(row)
        if law:
            return Step(Outcome.BROKE_RULE, row.id, law=law)
        return self._stored(row)

    def _local_step(self) -> LocalStep:
        row = self._row()
        if row is None:
            return LocalStep("")
        read = self._read
        return LocalStep(
            row.id,
            self._broken(row),
            tuple((position, new(read)) for position, new in row.changes),
            tuple((position, cast(int, shift(read))) for position, shift in row.shifts),
        )

    def _row(self) -> FoldedRow | None:
        move, read = self._move, self._read
        if move.where is not None and not move.where(read):
            return None
        for guard, row in move.cell(cast(Enum, move.state(read))):
            if guard is None or guard(read):
                return move.row(row)
        raise AssertionError("a table decides every case")

    def _broken(self, row: FoldedRow) -> str:
        return next((law for law, holds in row.rules if not holds(self._read)), "")

    def _stored(self, row: FoldedRow) -> Step:
        views, read, spots = self._views, self._read, self._spots
        memory = views.memory
        values = [(position, new(read)) for position, new in row.changes]
        values += [(position, cast(int, shift(read)) + cast(int, read(position))) for position, shift in row.shifts]
        memory.read.update(spots[position] for position, _ in values)
        codes = [(position, views.code_of[spots[position]].get(value)) for position, value in values]
        outside = [
            (views.variables[spots[position]], value)
            for (position, code), (_, value) in zip(codes, values, strict=True)
            if code is None
        ]
        if any(variable.cut for variable, _ in outside):
            return Step(Outcome.CUT, row.id)
        if outside:
            variable, value = outside[0]
            return Step(Outcome.LEFT_DOMAIN, row.id, law=f"{variable} = {value}")
        changes = tuple((at, code) for at, code in codes if code is not None and code != memory.codes[spots[at]])
        return Step(Outcome.FIRED, row.id, changes)
