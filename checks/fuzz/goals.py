"""What fuzzing must reach: every row, and every branch of every guard; and the way from state to state."""

from collections.abc import Mapping
from enum import Enum

from attrs import frozen

from kvescrow.spec.language.expressions import Binary, Expression
from kvescrow.spec.language.table import Row, Table, guards_of

Branch = int | tuple[int, int] | None
"""What of a guard is wanted: None, all of it; n, its conjunct n false; (n, m), of conjunct n the disjunct m alone."""


@frozen(eq=False)
class Goal:
    """A row that is to fire, or one branch of its guard that is to be seen when all rows before it do not fire."""

    table: Table
    row: Row
    branch: Branch = None

    @property
    def name(self) -> str:
        """Return the row's id, with the branch where it is about one."""
        match self.branch:
            case None:
                return self.row.id
            case (conjunct, disjunct):
                return f"{self.row.id} for `{disjuncts_of(guards_of(self.row)[conjunct])[disjunct]}` alone"
            case conjunct:
                return f"{self.row.id} without `{guards_of(self.row)[conjunct]}`"

    @property
    def is_row(self) -> bool:
        """Return whether the row itself is to fire."""
        return self.branch is None


def disjuncts_of(expression: Expression) -> tuple[Expression, ...]:
    """Return the alternatives of an expression; itself alone where it has none."""
    if isinstance(expression, Binary) and expression.operator == "or":
        return (*disjuncts_of(expression.left), *disjuncts_of(expression.right))
    return (expression,)


def branches_of(row: Row) -> tuple[Branch, ...]:
    """Return every branch of the row's guard that is to be seen: each conjunct false, each alternative alone."""
    conjuncts = guards_of(row)
    alternatives = [(n, m) for n, part in enumerate(conjuncts) for m in range(len(disjuncts_of(part)))]
    return (*range(len(conjuncts)), *(one for one in alternatives if len(disjuncts_of(conjuncts[one[0]])) > 1))


def goals_of(table: Table) -> tuple[Goal, ...]:
    """Return every goal of `table`: rows that change something first, then refusals, then branches of guards."""
    rows = sorted(table.rows, key=lambda row: row.changes_nothing)
    return (
        *(Goal(table, row) for row in rows),
        *(Goal(table, row, branch) for row in rows for branch in branches_of(row)),
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
