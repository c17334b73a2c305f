"""The least steps that still disagree.

Hypothesis shrinks the draws of its generator, and here a draw means what the state before it makes of it: without an
earlier step, the later ones become others. So a failure is shrunk as the events that were sent, which stay the same.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from attrs import frozen

from kvescrow.checks.fuzz.differences import Disagreement
from kvescrow.checks.fuzz.driver import Done
from kvescrow.checks.fuzz.guard import Closing, closing


class History(Closing, Protocol):
    """A driver or a judge: one history that can be repeated."""

    @property
    def steps(self) -> Sequence[str]:
        """Return what was done, as it is shown."""

    @property
    def done(self) -> Sequence[Done]:
        """Return what was done, as it can be done again."""

    def open_with(self, setup: Any) -> None:
        """Open the target as `setup` says."""

    def redo(self, step: Done) -> None:
        """Do a step of another history again."""


@frozen
class Failure:
    """A disagreement, how the target was opened, and the steps that lead there: as they are shown and can be redone."""

    disagreement: Disagreement
    setup: Any
    steps: tuple[str, ...]
    done: tuple[Done, ...]

    @property
    def kind(self) -> str:
        """Return what must stay the same, so that one error is not shrunk to another."""
        return self.disagreement.differences[0].path


def replay(opened: Callable[[], History], setup: object, done: Sequence[Done]) -> Failure | None:
    """Open, do every step, and close; return what went wrong first, if anything did."""
    history = opened()
    try:
        with closing(history):
            history.open_with(setup)
            for step in done:
                history.redo(step)
    except Disagreement as found:
        return Failure(found, setup, tuple(history.steps), tuple(history.done))
    return None


def least_failure(opened: Callable[[], History], setup: object, done: Sequence[Done]) -> Failure | None:
    """Return the failure after as few of the events `done` as could be found; None where they do not fail again."""
    best = replay(opened, setup, done)
    if best is None:
        return None
    size = len(best.done)
    while size:
        shorter = _without_some(opened, best, size)
        size = min(size, len(shorter.done)) // 2 if shorter is best else size
        best = shorter
    return best


def _without_some(opened: Callable[[], History], failure: Failure, size: int) -> Failure:
    """Return `failure` without every run of `size` events that is not needed, looking from the end."""
    place = len(failure.done) - size
    while place >= 0:
        rest = (*failure.done[:place], *failure.done[place + size :])
        shorter = replay(opened, failure.setup, rest)
        if shorter is not None and shorter.kind == failure.kind:
            failure = shorter
            place = min(place, len(failure.done))
        place -= size
    return failure
