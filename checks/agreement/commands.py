"""An instance as guarded commands over its kept fields: the form that other model checkers take.

A command is one row on one move. Its guard is the row's, together with the negation of every earlier row of its cells.
Step rules are not in it: they are checked where the tables themselves are given to another checker.
"""

import re
from collections.abc import Hashable, Iterator, Mapping

from attrs import evolve, frozen

from kvescrow.checks.agreement.substitution import both, constant, joined, negated, substituted
from kvescrow.checks.explore.instance import Address, Instance, Known, Move, Place
from kvescrow.checks.explore.laws import laws_of
from kvescrow.spec.language.expressions import (
    FALSE,
    TRUE,
    Expression,
    Field,
    Kind,
    Literal,
    Type,
    any_of,
    reads,
)
from kvescrow.spec.language.table import Row, effects_of

FIRST_NAME_CODE = 1000
"""Names that are no integers are numbered from here on; integers stand for themselves."""


@frozen
class Variable:
    """One kept field."""

    name: str
    """An identifier in every language."""
    kind: Type
    domain: tuple[Hashable, ...]
    """Its values; names as integers."""
    first: Hashable


@frozen(eq=False)
class Command:
    """What one row does on one move: where `guard` holds, all of `assigned` at once."""

    move: str
    row: str
    guard: Expression
    assigned: Mapping[str, Expression]
    """Variable -> its value after the step, over the values before it."""


@frozen(eq=False)
class Commands:
    """An instance, ready to be printed in another language. All fields in its expressions are variables."""

    name: str
    variables: tuple[Variable, ...]
    commands: tuple[Command, ...]
    invariants: tuple[tuple[str, Expression], ...]


def commands_of(instance: Instance) -> Commands:
    """Return `instance` as guarded commands, refusals and repetitions included."""
    return Flattener(instance).commands()


def essential(system: Commands) -> Commands:
    """Return `system` with the same states and fewer steps, as a modeller would write it by hand.

    What changes nothing is left out, and equal steps from different moves are one.
    """
    merged: dict[tuple[tuple[str, str], ...], Command] = {}
    for command in system.commands:
        assigned = {name: value for name, value in command.assigned.items() if not _is(value, name)}
        if not assigned:
            continue
        effect = tuple(sorted((name, _spelled(value)) for name, value in assigned.items()))
        known = merged.get(effect)
        if known is None:
            merged[effect] = evolve(command, assigned=assigned)
        elif _spelled(command.guard) not in {_spelled(part) for part in joined(known.guard, "or")}:
            merged[effect] = evolve(known, guard=any_of(*joined(known.guard, "or"), command.guard))
    return evolve(system, commands=tuple(merged.values()))


def _is(value: Expression, name: str) -> bool:
    return isinstance(value, Field) and value.name == name


def _spelled(expression: Expression) -> str:
    return str(expression)


def identifier(*parts: str) -> str:
    """Return the parts as one identifier that every language takes."""
    return "_".join(re.sub(r"\W+", "_", part) for part in parts)


def variable_read(variable: Variable) -> Field:
    """Return a variable as an expression."""
    return Field("", variable.name, variable.kind)


def within(value: Expression, variable: Variable) -> Expression:
    """Return whether `value` is in the domain of `variable`; true at once where it cannot be elsewhere."""
    if isinstance(value, Literal):
        return constant(value.value in variable.domain)
    if _is(value, variable.name) or variable.kind is not Kind.INTEGER:
        return TRUE
    numbers = sorted(number for number in variable.domain if isinstance(number, int))
    first, last = numbers[0], numbers[-1]
    if numbers == list(range(first, last + 1)):
        return (value >= first) & (value <= last)
    return any_of(*(value == number for number in numbers))


class Flattener:
    """Puts the variables of an instance in the place of what its tables read."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._codes: dict[Hashable, int] = {}
        self.variable: dict[Address, Variable] = {
            (place.name, name): self._variable(place, name) for place in instance.places for name in place.kept
        }

    def commands(self) -> Commands:
        """Return the whole instance."""
        return Commands(
            self._instance.name,
            tuple(self.variable.values()),
            tuple(command for move in self._instance.moves for command in self._of_move(move)),
            tuple(self.invariants()),
        )

    def _variable(self, place: Place, name: str) -> Variable:
        domain = tuple(self.coded(value) for value in place.kept[name])
        return Variable(identifier(place.name, name), place.entity.fields[name], domain, self.coded(place.start(name)))

    def coded(self, value: Hashable) -> Hashable:
        """Return `value`, or the number that stands for it where it is a name that is no number."""
        if isinstance(value, int) or hasattr(value, "_value_"):
            return value
        return self._codes.setdefault(value, FIRST_NAME_CODE + len(self._codes))

    def known(self, known: Known, binds: Mapping[str, str]) -> Expression:
        """Return a known value, or an expression over bound places, over the variables."""
        if isinstance(known, Expression):
            return substituted(known, lambda field, _: self.of_place(field, binds[field.entity]))
        return constant(self.coded(known))

    def of_place(self, field: Field, place_name: str) -> Expression:
        """Return what is seen in a field of a place."""
        place = self._instance.place_by_name[place_name]
        if field.name in place.kept:
            return variable_read(self.variable[place_name, field.name])
        return self.known(place.unkept(field.name), {place.entity.name: place_name})

    def seen(self, field: Field, binds: Mapping[str, str], given: Mapping[Address, Known]) -> Expression:
        """Return what is seen in a field of an entity of a view."""
        if field.path in given:
            return self.known(given[field.path], binds)
        return self.of_place(field, binds[field.entity])

    def _of_move(self, move: Move) -> Iterator[Command]:
        parameters = {name: self.known(known, move.binds) for name, known in move.parameters.items()}

        def before(field: Field, _: bool) -> Expression:
            return parameters[field.name] if field.entity == "event" else self.seen(field, move.binds, move.given)

        state = before(move.table.state, True)
        where = substituted(move.where, before)
        rows = [row for row in move.table.rows if row.event == move.event]
        guards = {row.id: substituted(row.when, before) for row in rows}
        for number, row in enumerate(rows):
            parts = [where, _among(state, row), guards[row.id]]
            for earlier in rows[:number]:
                if set(earlier.sources) >= set(row.sources):
                    parts.append(negated(guards[earlier.id]))
                elif set(earlier.sources) & set(row.sources):
                    parts.append(negated(both(_among(state, earlier), guards[earlier.id])))
            guard = both(*parts)
            if guard is not FALSE:
                yield self._command(move, row, guard, parameters)

    def _command(self, move: Move, row: Row, guard: Expression, parameters: Mapping[str, Expression]) -> Command:
        def seen(field: Field) -> Expression:
            return parameters[field.name] if field.entity == "event" else self.seen(field, move.binds, move.given)

        written: dict[Address, Expression] = {}
        """(place, field) -> its new value, kept or not."""

        def after(field: Field, old: bool) -> Expression:
            place = move.binds.get(field.entity)
            if not old and place is not None and (place, field.name) in written:
                return written[place, field.name]
            return seen(field)

        effects = {
            (move.binds[effect.target.entity], effect.target.name): substituted(
                effect.value, lambda field, _: seen(field)
            )
            for effect in effects_of(move.table, row)
        }
        written.update(effects)
        for ghost in move.table.ghosts:
            if ghost.target.entity in move.binds:
                address = (move.binds[ghost.target.entity], ghost.target.name)
                written[address] = substituted(ghost.update, after)
        stored = {**written, **self._rounded({place for place, _ in effects}, written)}
        assigned = {self.variable[address].name: value for address, value in stored.items() if address in self.variable}
        bounds = [
            within(value, self.variable[place, name])
            for (place, name), value in stored.items()
            if name in self._instance.place_by_name[place].cut
        ]
        return Command(move.name, row.id, both(guard, *bounds), assigned)

    def _rounded(self, touched: set[str], written: Mapping[Address, Expression]) -> dict[Address, Expression]:
        rounded: dict[Address, Expression] = {}
        for name in touched:
            place = self._instance.place_by_name[name]

            def after(field: Field, _: bool, name: str = name) -> Expression:
                value = written.get((name, field.name))
                return self.of_place(field, name) if value is None else value

            rounded.update({(name, field): substituted(value, after) for field, value in place.rounded.items()})
        return rounded

    def invariants(self) -> Iterator[tuple[str, Expression]]:
        """Yield each law that the instance can see, over the variables, with its table and name."""
        laws = laws_of(self._instance)
        for law in laws.invariants:
            holds = substituted(law.holds, lambda field, _: self.seen(field, law.binds, law.given))  # noqa: B023
            if holds is not TRUE:
                yield law.name, holds
        for total in laws.sums:
            amount: Expression = constant(0)
            for term in total.terms:
                share = substituted(term.amount, lambda field, _: self.of_place(field, term.binds[field.entity]))  # noqa: B023
                amount = share if isinstance(amount, Literal) and amount.value == 0 else amount + share
            yield total.name, variable_read(self.variable[total.place, total.field]) == amount


def _among(state: Expression, row: Row) -> Expression:
    if isinstance(state, Literal):
        return constant(state.value in row.sources)
    kind = type(row.sources[0])
    others = [member for member in kind if member not in row.sources]
    if not others:
        return TRUE
    if len(others) < len(row.sources):
        return negated(any_of(*(state == member for member in others)))
    return any_of(*(state == member for member in row.sources))


def read_by(expression: Expression) -> frozenset[str]:
    """Return the names of the variables that `expression` reads."""
    return frozenset(name for _, name in reads(expression))
