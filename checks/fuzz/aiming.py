"""Parameters for an event that shall fire a given row, or make a given conjunct false, in a given view."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from functools import cached_property
from itertools import takewhile
from typing import cast

from attrs import define, field, frozen

from kvescrow.checks.fuzz.compiled import Address, Condition, Tipping, condition, tippings, with_value
from kvescrow.checks.fuzz.goals import Branch, Goal, branches_of, disjuncts_of
from kvescrow.spec.language.expressions import Kind, Type, reads
from kvescrow.spec.language.interpreter import Record, Value, View
from kvescrow.spec.language.table import Row, Table, guards_of

Names = Callable[[str], Sequence[Value]]
"""Parameter -> the names that it may have, at least two of each."""

Requirement = tuple[Condition, bool]

NEUTRAL_TURNS = 48
"""What `turn` leaves over after a division by this picks the neutral values; the rest picks which of them moves."""


@frozen(eq=False)
class Blocked:
    """A requirement that no parameter of the event can meet: something else must change first."""

    requirements: Sequence[Requirement]
    """The one that blocks, last, after those that hold."""
    event: Record
    """Parameters that meet those that hold."""

    @property
    def fields(self) -> frozenset[Address]:
        """Return the fields that the unmet requirement reads."""
        return frozenset(tip for tip in self.requirements[-1][0].reads if tip[0] != "event")

    def is_cured_by(self, view: View) -> bool:
        """Return whether the unmet requirement would hold in `view`."""
        needed, wanted = self.requirements[-1]
        return bool(needed.holds(view, self.event)) is wanted

    def cures(self, view: View, address: Address) -> Iterator[Value]:
        """Yield values of the field at `address` that would meet all requirements."""
        for tip in self.requirements[-1][0].tippings:
            if tip.varied == address:
                for value in tip.values(view, self.event):
                    changed, event = with_value(view, self.event, address, value)
                    if all(bool(needed.holds(changed, event)) is wanted for needed, wanted in self.requirements):
                        yield value


@define(eq=False, slots=False)
class Aim:
    """Everything that is needed to aim at the rows of one table, prepared once."""

    table: Table
    _required: dict[tuple[str, Branch, Enum], tuple[Sequence[Requirement], Sequence[Requirement]]] = field(
        factory=dict, init=False
    )

    @cached_property
    def _kinds(self) -> Mapping[str, Mapping[str, Type]]:
        """Event -> the types of its parameters."""
        return {event.name: event.parameters for event in self.table.events}

    @cached_property
    def _guards(self) -> Mapping[str, Condition]:
        return {row.id: condition(row.when) for row in self.table.rows}

    @cached_property
    def _own(self) -> Mapping[tuple[str, Branch], list[Requirement]]:
        """Row and branch -> what the row's own guard needs for it."""
        needed: dict[tuple[str, Branch], list[Requirement]] = {}
        for row in self.table.rows:
            conjuncts = guards_of(row)
            needed[row.id, None] = [(condition(part), True) for part in conjuncts]
            for branch in branches_of(row):
                if isinstance(branch, tuple):
                    chosen = disjuncts_of(conjuncts[branch[0]])
                    alone = [(condition(part), place == branch[1]) for place, part in enumerate(chosen)]
                    needed[row.id, branch] = sorted(alone, key=lambda one: not one[1])
                elif branch is not None:
                    needed[row.id, branch] = [(condition(conjuncts[branch]), False)]
        return needed

    @cached_property
    def _assumed(self) -> Mapping[str, tuple[Condition, ...]]:
        """What a table takes for granted of an event by itself is granted to it."""
        return {
            event.name: tuple(
                condition(assumption.holds)
                for assumption in self.table.assumptions
                if (assumption.events is None or event.name in assumption.events)
                and {entity for entity, _ in reads(assumption.holds)} == {"event"}
            )
            for event in self.table.events
        }

    @cached_property
    def _tips(self) -> Mapping[tuple[Enum, str], Mapping[str, Sequence[Tipping]]]:
        """Cell -> integer parameter -> the comparisons that read it, in guards and in effects."""
        found: dict[tuple[Enum, str], dict[str, list[Tipping]]] = {}
        for cell, rows in self.table.cells.items():
            by_parameter = found.setdefault(cell, {})
            for tip in tippings(part for row in rows for part in (row.when, *(effect.value for effect in row.do))):
                if tip.difference is not None and tip.varied[0] == "event":
                    by_parameter.setdefault(tip.varied[1], []).append(tip)
        return found

    def solve(self, goal: Goal, view: View, neutral: Record, names: Names, turn: int) -> "Record | Blocked":
        """Return parameters that reach `goal` in `view`; where none are found, what stands in the way.

        It starts from `neutral`, with some integers moved to a boundary of the cell as `turn` says, and repairs one
        parameter at a time.
        """
        # Its own guard comes first: rows before it may then not be avoided at its expense.
        requirements, _ = self._requirements(goal, view)
        event: Record = self.varied(goal.row, view, neutral, turn)
        for place, (needed, wanted) in enumerate(requirements):
            if bool(needed.holds(view, event)) is not wanted:
                repaired = self._repaired(requirements[: place + 1], goal.row, view, event, names, turn)
                if repaired is None:
                    return Blocked(requirements[: place + 1], event)
                event = repaired
        return event

    def obstacle(self, goal: Goal, view: View, event: Record) -> Blocked | None:
        """Return the first requirement of `goal` that `event` in `view` does not meet; None where it reaches it.

        The state of the view must be a source of the goal's row.
        """
        _, requirements = self._requirements(goal, view)
        for place, (needed, wanted) in enumerate(requirements):
            if bool(needed.holds(view, event)) is not wanted:
                return Blocked(requirements[: place + 1], event)
        return None

    def varied(self, row: Row, view: View, neutral: Record, turn: int) -> Record:
        """Return `neutral`, every other time with one integer moved to where a comparison of the cell tips over."""
        tips = self._tips[cast(Enum, view[self.table.moves.name]["state"]), row.event]
        if not tips:
            return neutral
        turn, place = divmod(turn // NEUTRAL_TURNS, 2 * len(tips))
        if place >= len(tips):
            return neutral
        name = list(tips)[place]
        known: dict[Tipping, tuple[Value, ...]] = {}
        values: list[Value] = []
        for tip in tips[name]:
            if tip not in known:
                known[tip] = tip.values(view, neutral)
            values += known[tip]
        event = {**neutral, name: values[turn % len(values)]} if values else neutral
        return event if all(needed.holds(view, event) for needed in self._assumed[row.event]) else neutral

    def _requirements(self, goal: Goal, view: View) -> tuple[Sequence[Requirement], Sequence[Requirement]]:
        """Return what is assumed of the event, what the goal's own guard needs, and the rows before it not to fire.

        The guard comes before those rows first, and after them second.
        """
        row = goal.row
        state = cast(Enum, view[self.table.moves.name]["state"])
        known = (row.id, goal.branch, state)
        if known not in self._required:
            assumed = [(needed, True) for needed in self._assumed[row.event]]
            own = self._own[row.id, goal.branch]
            cell = self.table.cells[state, row.event]
            earlier = [(self._guards[before.id], False) for before in takewhile(lambda one: one is not row, cell)]
            self._required[known] = (*assumed, *own, *earlier), (*assumed, *earlier, *own)
        return self._required[known]

    def _repaired(
        self, requirements: Sequence[Requirement], row: Row, view: View, event: Record, names: Names, turn: int
    ) -> Record | None:
        failed = requirements[-1][0]
        kinds = self._kinds[row.event]
        for parameter in failed.parameters:
            values = [*_of_kind(kinds[parameter], parameter, names)]
            values += [
                value
                for tip in failed.tippings
                if tip.varied == ("event", parameter)
                for value in tip.values(view, event)
            ]
            for number in range(len(values)):
                trial = {**event, parameter: values[(number + turn) % len(values)]}
                if all(bool(needed.holds(view, trial)) is wanted for needed, wanted in requirements):
                    return trial
        return None


def _of_kind(kind: Type, parameter: str, names: Names) -> Sequence[Value]:
    if kind is Kind.BOOLEAN:
        return (True, False)
    if kind is Kind.NAME:
        return names(parameter)
    return () if kind is Kind.INTEGER else tuple(kind)
