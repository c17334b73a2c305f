"""The least steps that still disagree.

Hypothesis shrinks the draws of its generator, and here a draw means what the state before it makes of it: without an
earlier step, the later ones become others. So a failure is shrunk as the events that were sent, which stay the same.
"""

from collections.abc import Callable, Sequence

from attrs import frozen

from kvescrow.checks.fuzz.differences import Disagreement
from kvescrow.checks.fuzz.driver import Done, Driver


@frozen
class Failure:
    """A disagreement, with the steps that lead there as they are shown."""

    disagreement: Disagreement
    steps: tuple[str, ...]
    done: tuple[Done, ...]


def least_failure(opened: Callable[[], Driver], setup: object, done: Sequence[Done]) -> Failure | None:
    """Return the failure after as few of the events `done` as could be found; None where they do not fail again."""
    best = _replayed(opened, setup, done)
    if best is None:
        return None
    size = len(best.done)
    while size:
        shorter = _without_some(opened, setup, best, size)
        size = min(size, len(shorter.done)) // 2 if shorter is best else size
        best = shorter
    return best


def _without_some(opened: Callable[[], Driver], setup: object, failure: Failure, size: int) -> Failure:
    """Return `failure` without every run of `size` events that is not needed, looking from the end."""
    place = len(failure.done) - size
    while place >= 0:
        rest = (*failure.done[:place], *failure.done[place + size :])
        shorter = _replayed(opened, setup, rest)
        if shorter is not None and _kind(shorter) == _kind(failure):
            failure = shorter
            place = min(place, len(failure.done))
        place -= size
    return failure


def _kind(failure: Failure) -> str:
    """Return what must stay the same, so that one error is not shrunk to another."""
    return failure.disagreement.differences[0].path


def _replayed(opened: Callable[[], Driver], setup: object, done: Sequence[Done]) -> Failure | None:
    driver = opened()
    try:
        driver.open_with(setup)
        try:
            for step in done:
                driver.redo(step)
        finally:
            driver.close()
    except Disagreement as found:
        return Failure(found, tuple(driver.steps), tuple(driver.done))
    return None
