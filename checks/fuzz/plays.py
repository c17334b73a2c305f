"""How each kind of target that is judged from outside is opened, moved and judged."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from attrs import frozen

from kvescrow.checks.fuzz import manager_moves, scheduler_moves
from kvescrow.checks.fuzz.manager import ManagerJudge
from kvescrow.checks.fuzz.scheduler import SchedulerJudge
from kvescrow.checks.targets.protocols import Kind


class Mover(Protocol):
    """Moves over one judge."""

    def make(self, move: str, who: int, turn: int) -> None:
        """Make the move called `move`."""


@frozen
class Play:
    """One kind: a move is picked by its name and two small integers, an opening by one."""

    judge: type[ManagerJudge]
    moves: Callable[[Any], Mover]
    names: Sequence[str]
    setup_of: Callable[[int], Any]
    shapes: int
    who: int
    turns: int


PLAYS: Mapping[Kind, Play] = {
    Kind.MANAGER: Play(
        ManagerJudge,
        manager_moves.Moves,
        tuple(manager_moves.MOVES),
        manager_moves.setup_of,
        manager_moves.SHAPES,
        manager_moves.WHO,
        manager_moves.TURNS,
    ),
    Kind.SCHEDULER: Play(
        SchedulerJudge,
        scheduler_moves.SchedulerMoves,
        tuple(scheduler_moves.SCHEDULER_MOVES),
        scheduler_moves.setup_of,
        scheduler_moves.SHAPES,
        scheduler_moves.WHO,
        scheduler_moves.TURNS,
    ),
}
