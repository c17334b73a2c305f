"""Moves over one judge: what a history does next, and when it is over."""

from abc import ABC, abstractmethod
from typing import Any

from kvescrow.checks.fuzz.differences import Disagreement


class JudgedMoves(ABC):
    """Moves over one judge. A move that does not apply in the present state does nothing."""

    def __init__(self, judge: Any) -> None:
        """Move `judge`."""
        self._judge = judge
        self._listed = {deviation.law for deviation in judge.subject.deviations}
        self._over = False

    def make(self, move: str, who: int, turn: int) -> None:
        """Make a move. What breaks a listed law ends the history, since nothing after it can be judged."""
        if self._over:
            return
        try:
            self._do(move, who, turn)
        except Disagreement as found:
            if found.differences[0].path not in self._listed:
                raise
            self._over = True

    @abstractmethod
    def _do(self, move: str, who: int, turn: int) -> None:
        """Do the move of that name; `who` and `turn` pick what it is about."""
