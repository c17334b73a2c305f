"""What the proofs have seen: goals for which Z3 finds a view."""

from collections.abc import Sequence

from kvescrow.checks.fuzz.goals import Goal, disjuncts_of, goals_of
from kvescrow.checks.prove.arrivals import Arrival, possible_arrivals
from kvescrow.spec.language.expressions import Expression, all_of
from kvescrow.spec.language.table import Table, guards_of


def proved(tables: Sequence[Table]) -> frozenset[str]:
    """Return the names of the goals of `tables` for which there is a view that invariants and assumptions allow."""
    found: set[str] = set()
    for table in tables:
        names = {Arrival(goal.row, condition_of(goal)): goal.name for goal in goals_of(table)}
        found.update(names[arrival] for arrival in possible_arrivals(table, tuple(names)))
    return frozenset(found)


def condition_of(goal: Goal) -> Expression:
    """Return what must hold of an event that has come to the goal's row."""
    match goal.branch:
        case None:
            return goal.row.when
        case (conjunct, alternative):
            alternatives = disjuncts_of(guards_of(goal.row)[conjunct])
            return all_of(*(one if n == alternative else ~one for n, one in enumerate(alternatives)))
        case conjunct:
            return ~guards_of(goal.row)[conjunct]
