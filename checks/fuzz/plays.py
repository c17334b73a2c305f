"""How each kind of target that is judged from outside is opened, moved and judged."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from attrs import evolve, field, frozen

from kvescrow.checks.fuzz import capacity_moves, manager_moves, scheduler_moves
from kvescrow.checks.fuzz.capacity import CapacityJudge
from kvescrow.checks.fuzz.judge import Judge
from kvescrow.checks.fuzz.manager import ManagerJudge
from kvescrow.checks.fuzz.scheduler import SchedulerJudge
from kvescrow.checks.targets.subject import Kind

Steps = tuple[tuple[object, ...], ...]
"""Calls of a scenario: a method's name and its arguments."""


class Mover(Protocol):
    """Moves over one judge."""

    def make(self, move: str, who: int, turn: int) -> None:
        """Make the move called `move`."""


@frozen
class Play:
    """One kind: a move is picked by its name and two small integers, an opening by one."""

    judge: type[Judge]
    moves: Callable[[Any], Mover]
    names: Sequence[str]
    setup_of: Callable[[int], Any]
    shapes: int
    who: int
    turns: int
    smaller: Callable[[Any], Iterator[Any]]
    """Yields openings to shrink a failure to: the one given, then smaller ones."""
    ways: Callable[[Steps], Iterator[Steps]] = field(default=lambda steps: iter((steps,)))
    """Yields the ways in which a listed scenario may have to be tried; each ends where its judge says so."""


def _fewer_pages(setup: Any) -> Iterator[Any]:
    for pages in range(setup.pages, 0, -1):
        yield evolve(setup, pages=pages)


def _the_same(setup: Any) -> Iterator[Any]:
    # A ledger's limits are few and small, and the amounts of a history are chosen by them.
    yield setup


PLAYS: Mapping[Kind, Play] = {
    Kind.MANAGER: Play(
        ManagerJudge,
        manager_moves.Moves,
        tuple(manager_moves.MOVES),
        manager_moves.setup_of,
        manager_moves.SHAPES,
        manager_moves.WHO,
        manager_moves.TURNS,
        _fewer_pages,
    ),
    Kind.SCHEDULER: Play(
        SchedulerJudge,
        scheduler_moves.SchedulerMoves,
        tuple(scheduler_moves.SCHEDULER_MOVES),
        scheduler_moves.setup_of,
        scheduler_moves.SHAPES,
        scheduler_moves.WHO,
        scheduler_moves.TURNS,
        _fewer_pages,
    ),
    Kind.CAPACITY: Play(
        CapacityJudge,
        capacity_moves.CapacityMoves,
        tuple(capacity_moves.CAPACITY_MOVES),
        capacity_moves.setup_of,
        capacity_moves.SHAPES,
        capacity_moves.WHO,
        capacity_moves.TURNS,
        _the_same,
        capacity_moves.ways_of,
    ),
}
