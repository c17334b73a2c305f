"""What fuzzing must reach: every row, and every false branch of every guard; and the way from state to state."""

from collections.abc import Mapping
from enum import Enum

from attrs import frozen

from kvescrow.spec.language.expressions import Expression
from kvescrow.spec.language.table import Row, Table, guards_of


@frozen(eq=False)
class Goal:
    """A row that is to fire, or one conjunct of its guard that is to be false when all rows before it do not fire."""

    table: Table
    row: Row
    false: int | None = None
    """Place of the conjunct that is to be false; None where the row is to fire."""

    @property
    def name(self) -> str:
        """Return the row's id, with the conjunct where it is about one."""
        if self.false is None:
            return self.row.id
        return f"{self.row.id} without `{self.conjuncts[self.false]}`"

    @property
    def conjuncts(self) -> tuple[Expression, ...]:
        """Return the conjuncts of the row's guard."""
        return guards_of(self.row)


def goals_of(table: Table) -> tuple[Goal, ...]:
    """Return every goal of `table`: rows that change something first, then refusals, then false branches."""
    rows = sorted(table.rows, key=lambda row: row.changes_nothing)
    return (
        *(Goal(table, row) for row in rows),
        *(Goal(table, row, place) for row in rows for place in range(len(guards_of(row)))),
    )


def routes_to(table: Table, sources: tuple[Enum, ...]) -> Mapping[Enum, tuple[Row, ...]]:
    """Return, for each state outside `sources` that leads there, every next row of a shortest way."""
    steps: dict[Enum, tuple[Row, ...]] = {}
    frontier = set(sources)
    known = set(sources)
    while frontier:
        entering = [row for row in table.rows if row.to in frontier]
        frontier = {source for row in entering for source in row.sources} - known
        steps |= {state: tuple(row for row in entering if state in row.sources) for state in frontier}
        known |= frontier
    return steps
