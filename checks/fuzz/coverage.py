"""Which rows fired and which guards were seen false, by what the worlds show before each row fires."""

from collections.abc import Iterable
from enum import Enum
from typing import cast

from attrs import frozen

from kvescrow.checks.fuzz.goals import Branch, Goal, disjuncts_of, goals_of
from kvescrow.spec.language.compiler import function_of
from kvescrow.spec.language.interpreter import Record, View
from kvescrow.spec.language.table import Row, Table, guards_of


@frozen
class Counts:
    """Rows that fired, of all; branches of guards that were seen, of all."""

    rows_hit: int
    rows: int
    guards_hit: int
    guards: int


Cell = tuple[str, Enum, str]


class Coverage:
    """Rows that fired, and branches of guards seen on an event that no earlier row of the cell had taken.

    A cell with nothing left to see is not looked at again, so coverage costs little once it is complete.
    """

    def __init__(self, tables: Iterable[Table]) -> None:
        """Count the rows and guards of `tables`."""
        self.goals: tuple[Goal, ...] = tuple(goal for table in tables for goal in goals_of(table))
        self._seen: set[tuple[str, Branch]] = set()
        self._tables = {goal.table.name: goal.table for goal in self.goals}
        self._open: dict[Cell, tuple[Row, ...]] = {
            (table.name, state, event): rows
            for table in self._tables.values()
            for (state, event), rows in table.cells.items()
        }
        self._guards = {
            goal.row.id: tuple(
                (function_of(part), tuple(function_of(one) for one in disjuncts_of(part)))
                for part in guards_of(goal.row)
            )
            for goal in self.goals
            if goal.is_row
        }
        self._left: dict[str, set[Branch]] = {}
        for goal in self.goals:
            self._left.setdefault(goal.row.id, set()).add(goal.branch)

    def watch(self, table: str, view: View, event: str, parameters: Record) -> None:
        """Take note of one event, as a world's `watch` is told of it."""
        cell = (table, cast(Enum, view[self._tables[table].moves.name]["state"]), event)
        rows = self._open.get(cell)
        if rows is None:
            return
        for row in rows:
            fires = True
            for place, (conjunct, disjuncts) in enumerate(self._guards[row.id]):
                if not conjunct(view, parameters):
                    self._saw(row, place)
                    fires = False
                elif len(disjuncts) > 1:
                    true = [m for m, disjunct in enumerate(disjuncts) if disjunct(view, parameters)]
                    if len(true) == 1:
                        self._saw(row, (place, true[0]))
            if fires:
                self._saw(row, None)
                break
        if not any(self._left[row.id] for row in rows):
            del self._open[cell]

    def _saw(self, row: Row, branch: Branch) -> None:
        self._seen.add((row.id, branch))
        self._left[row.id].discard(branch)

    def holes(self) -> list[Goal]:
        """Return what was not seen, in the order of the tables."""
        return [goal for goal in self.goals if (goal.row.id, goal.branch) not in self._seen]

    def counts(self) -> "Counts":
        """Return how much was seen."""
        missing = self.holes()
        rows = sum(goal.is_row for goal in self.goals)
        rows_missing = sum(goal.is_row for goal in missing)
        guards = len(self.goals) - rows
        return Counts(rows - rows_missing, rows, guards - (len(missing) - rows_missing), guards)
