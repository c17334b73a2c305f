"""Which rows fired and which guards were seen false, by what the worlds show before each row fires."""

from collections.abc import Iterable
from enum import Enum
from typing import cast

from attrs import frozen

from kvescrow.checks.fuzz.goals import Goal, goals_of
from kvescrow.spec.language.expressions import Expression
from kvescrow.spec.language.interpreter import Record, View, evaluate
from kvescrow.spec.language.table import Row, Table, guards_of


@frozen
class Counts:
    """Rows that fired, of all; conjuncts seen false, of all."""

    rows_hit: int
    rows: int
    guards_hit: int
    guards: int


Cell = tuple[str, Enum, str]


class Coverage:
    """Rows that fired, and conjuncts seen false on an event that no earlier row of the cell had taken.

    A cell with nothing left to see is not looked at again, so coverage costs little once it is complete.
    """

    def __init__(self, tables: Iterable[Table]) -> None:
        """Count the rows and guards of `tables`."""
        self.goals: tuple[Goal, ...] = tuple(goal for table in tables for goal in goals_of(table))
        self._seen: set[tuple[str, int | None]] = set()
        self._tables = {goal.table.name: goal.table for goal in self.goals}
        self._open: dict[Cell, tuple[tuple[Row, tuple[Expression, ...]], ...]] = {
            (table.name, state, event): tuple((row, guards_of(row)) for row in rows)
            for table in self._tables.values()
            for (state, event), rows in table.cells.items()
        }

    def watch(self, table: str, view: View, event: str, parameters: Record) -> None:
        """Take note of one event, as a world's `watch` is told of it."""
        cell = (table, cast(Enum, view[self._tables[table].moves.name]["state"]), event)
        rows = self._open.get(cell)
        if rows is None:
            return
        whole = {**view, "event": parameters}
        for row, conjuncts in rows:
            false = [place for place, conjunct in enumerate(conjuncts) if not evaluate(conjunct, whole)]
            self._seen.update((row.id, place) for place in false)
            if not false:
                self._seen.add((row.id, None))
                break
        if all(self._is_complete(row, conjuncts) for row, conjuncts in rows):
            del self._open[cell]

    def _is_complete(self, row: Row, conjuncts: tuple[Expression, ...]) -> bool:
        return (row.id, None) in self._seen and all((row.id, place) in self._seen for place in range(len(conjuncts)))

    def holes(self) -> list[Goal]:
        """Return what was not seen, in the order of the tables."""
        return [goal for goal in self.goals if (goal.row.id, goal.false) not in self._seen]

    def counts(self) -> "Counts":
        """Return how much was seen."""
        missing = self.holes()
        rows = sum(goal.false is None for goal in self.goals)
        rows_missing = sum(goal.false is None for goal in missing)
        guards = len(self.goals) - rows
        return Counts(rows - rows_missing, rows, guards - (len(missing) - rows_missing), guards)
