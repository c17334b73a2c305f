"""What a machine drives: a world and a target side by side, one call at a time."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from functools import cache
from typing import Any, TypeVar, cast

from attrs import define

from kvescrow.checks.fuzz.coverage import Coverage
from kvescrow.checks.fuzz.differences import Difference, Disagreement, differences, shown
from kvescrow.checks.fuzz.goals import Goal, routes_to
from kvescrow.checks.fuzz.guard import Fault
from kvescrow.checks.targets.subject import Subject
from kvescrow.spec.language.interpreter import Record, View
from kvescrow.spec.language.table import Row, Table

T = TypeVar("T")

Done = tuple[str, tuple[Any, ...]]
"""A method of a driver that did one step, and its arguments."""


@define
class Step:
    """A step that is only put into words when someone asks, since few ever are."""

    words: Callable[[], str]
    row: str = ""
    """The row that fired, once it is known."""

    def __str__(self) -> str:
        return self.words() + (f" -> {self.row}" if self.row else "")


INVARIANTS_EVERY = 4
"""Steps between two looks at the world's own invariants, which are proved elsewhere and dear to compute."""


class _Seen(Exception):
    """Carries a view out of a world before its row fires, so that nothing has changed."""

    def __init__(self, view: View, parameters: Record) -> None:
        self.view = view
        self.parameters = parameters


class Driver(ABC):
    """One run: a world, a target, and the steps so far.

    `who` and `turn` are small integers from Hypothesis; 0 is the plainest choice. Everything else follows from the
    state that the world is in, so a shorter run is a simpler run.
    """

    tables: tuple[Table, ...]
    setup: Any
    """How it was opened."""
    target: Any = None
    """Every call of it is guarded; None until it is open."""

    def __init__(self, coverage: Coverage, subject: Subject) -> None:
        self.coverage = coverage
        self.subject = subject
        self.told: list[Step] = []
        """What was done, to be shown."""
        self.done: list[Done] = []
        """What was done, as it can be done again."""
        self._peeking = False
        self.wanted: Sequence[Goal] = ()
        """What this run pursues, first things first."""

    @property
    def steps(self) -> list[str]:
        """Return what was done, as it is shown."""
        return [str(step) for step in self.told]

    # --- what a subject provides --------------------------------------------------------------------------------------

    @abstractmethod
    def setup_of(self, shape: int) -> object:
        """Return the configuration that `shape` picks."""

    @abstractmethod
    def open_with(self, setup: Any) -> None:
        """Open world and target as `setup` says."""

    @abstractmethod
    def act(self, goal: Goal, who: int, turn: int) -> None:
        """Do one event of the goal's kind that reaches `goal` if any entity can now; else one that comes near."""

    @abstractmethod
    def approach(self, goal: Goal, who: int, turn: int) -> bool:
        """Do one event that brings some entity nearer to `goal`. Return whether it was reached."""

    @abstractmethod
    def close(self) -> None:
        """Close the target, where it was opened and is one that is closed."""

    def pursue(self, who: int, turn: int) -> None:
        """Approach the goal in front; once it is reached, go on to the next."""
        if self.approach(self.wanted[0], who, turn):
            self.wanted = rotated(self.wanted, 1)

    def open(self, shape: int) -> None:
        """Open world and target in the configuration that `shape` picks."""
        self.setup = self.setup_of(shape)
        self.open_with(self.setup)

    def redo(self, step: Done) -> None:
        """Do a step of another run again."""
        method, arguments = step
        getattr(self, method)(*arguments)

    @property
    def is_peeking(self) -> bool:
        """Whether a world is only looked at."""
        return self._peeking

    # --- what they share ----------------------------------------------------------------------------------------------

    def watch(self, table: str, view: View, event: str, parameters: Record) -> None:
        """Count coverage; while peeking, only look."""
        if self._peeking:
            raise _Seen(view, parameters)
        self.coverage.watch(table, view, event, parameters)

    def peek(self, world_call: "object", *arguments: object, **named: object) -> _Seen:
        """Return what the table would see if `world_call` were made; nothing changes."""
        self._peeking = True
        try:
            world_call(*arguments, **named)  # type: ignore[operator]  # a bound method of a world
        except _Seen as seen:
            return seen
        finally:
            self._peeking = False
        raise AssertionError("a world applied an event without telling its watch")

    def answer(self, step: "Step | str", specified: object, ask: Callable[[], T]) -> T:
        """Return what the target answers; where it answers nothing of the kind, that is not what is specified."""
        try:
            return ask()
        except Fault as fault:
            raise Disagreement(_worded(step), (Difference("reply", shown(specified), fault.seen),)) from fault

    def check(self, step: "Step | str", pairs: Iterable[tuple[str, object, object]], violations: Sequence[str]) -> None:
        """Raise `Disagreement` where a pair (path, specification, implementation) differs or an invariant fails."""
        found = [
            difference
            for path, specified, implemented in pairs
            if specified != implemented
            for difference in differences(path, specified, implemented)
        ]
        found += [
            Difference(f"invariant {name}", "holds", "broken in the specification's own world") for name in violations
        ]
        if found:
            raise Disagreement(_worded(step), tuple(found))


def _worded(step: Step | str) -> str:
    """Return the words of a step, without the row that fired."""
    return step if isinstance(step, str) else step.words()


def rotated(items: Sequence[T], start: int) -> list[T]:
    """Return `items` from place `start` on, round to where they began."""
    if not items:
        return []
    start %= len(items)
    return [*items[start:], *items[:start]]


@cache
def _routes(table: Table, sources: tuple[Enum, ...]) -> Mapping[Enum, tuple[Row, ...]]:
    return routes_to(table, sources)


def next_goals(goal: Goal, state: object, turn: int) -> list[Goal]:
    """Return what to do next on a shortest way from `state` to the goal: the goal itself where it applies here."""
    if state in goal.row.sources:
        return [goal]
    rows = _routes(goal.table, goal.row.sources).get(cast(Enum, state), ())
    return [Goal(goal.table, row) for row in rotated(rows, turn)]
