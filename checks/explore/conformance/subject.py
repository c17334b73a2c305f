"""What a walk drives: an implementation in some state of an instance."""

from collections.abc import Callable
from typing import Protocol

from kvescrow.checks.explore.conformance.graph import Answer, Graph, Said


class Subject(Protocol):
    """An implementation in some state, driven by the moves of an instance."""

    def do(self, answer: Answer) -> Said | str | None:
        """Do the move of `answer`.

        Where its circumstances cannot be brought about, returns why no implementation that shows this state could
        have them, or None where another way to be in the state may have them.
        """

    def can(self, move: int) -> bool:
        """Return whether the circumstances of a move that varies, by its number, can be brought about here."""

    def shows(self) -> object:
        """Return what shows of the state, in the form of `expected`."""

    def misfit(self) -> str:
        """Return what of the snapshot behind `shows` has not its declared type; nothing where all of it has."""

    def variant(self) -> int:
        """Return a small number that tells this from other ways to be in the same state of the instance.

        It is asked after `shows`, with nothing in between.
        """

    def spoilt(self) -> bool:
        """Return whether the last move was brought about at the cost of moves that the new state should allow."""

    def copy(self) -> "Subject":
        """Return an independent subject in the same state."""

    def hold(self) -> Callable[[], None]:
        """Return what brings this subject back to where it is now."""

    def close(self) -> None:
        """Give up what it holds open."""


class Driver(Protocol):
    """Opens subjects, and says what shows of a state of the instance."""

    graph: Graph
    varying: frozenset[int]
    """Moves whose circumstances depend on how an implementation came to its state, beyond the variant."""

    def open(self) -> Subject:
        """Return a fresh subject in the first state."""

    def expected(self, state: int) -> object:
        """Return what must show in `state`."""
