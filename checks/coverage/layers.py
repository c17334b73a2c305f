"""The layers, and what each of them has seen."""

from collections.abc import Iterable, Sequence
from enum import Enum

from attrs import frozen

from kvescrow.checks.fuzz.coverage import Coverage
from kvescrow.checks.fuzz.goals import Goal, goals_of
from kvescrow.spec.language.table import Table


class Layer(Enum):
    """A kind of check that rows and guards pass through."""

    PROVE = "prove"
    """Z3 finds a view, and the interpreter agrees."""
    EXPLORE = "explore"
    """A reachable state of a small instance shows it."""
    FUZZ = "fuzz"
    """A run of the fuzzer beside the reference shows it."""
    VECTORS = "vectors"
    """A hand-written scenario shows it."""
    REPLAY = "replay"
    """A workload trace on virtual time shows it."""
    HARNESS = "harness"
    """A run of the real decoder shows it, in a fixed order: in the device's own, what is seen comes and goes."""


@frozen
class Seen:
    """What one layer has seen."""

    layer: Layer
    goals: frozenset[str]
    """Names of goals."""
    seconds: float
    why_not_run: str = ""


def all_goals(tables: Iterable[Table]) -> tuple[Goal, ...]:
    """Return every goal of `tables`, those of one row together, the row first."""
    return tuple(
        goal
        for table in tables
        for goal in sorted(goals_of(table), key=lambda goal: (table.rows.index(goal.row), not goal.is_row))
    )


def seen_by(coverages: Iterable[Coverage]) -> frozenset[str]:
    """Return the names of the goals that any of `coverages` has seen."""
    return frozenset(name for coverage in coverages for name in _seen(coverage.goals, coverage.holes()))


def _seen(goals: Sequence[Goal], holes: Sequence[Goal]) -> set[str]:
    return {goal.name for goal in goals} - {goal.name for goal in holes}
