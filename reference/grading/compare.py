"""Attainment and non-inferiority from columns of figures, one entry a request in order of arrival."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from kvescrow.reference.grading.outcomes import Fate, Judged
from kvescrow.reference.grading.records import RequestRecord
from kvescrow.reference.grading.statistics import (
    Bounds,
    ErrorRates,
    Floats,
    design_effect,
    difference_bounds,
    mean_bounds,
    share_bounds,
)
from kvescrow.spec.vocabulary import GradeVerdict

PASS, FAIL, INCONCLUSIVE = GradeVerdict.PASS, GradeVerdict.FAIL, GradeVerdict.INCONCLUSIVE
NO_DATA = GradeVerdict.NO_DATA


@frozen(eq=False)
class Paired:
    """Two runs, request by request. A latency is NaN where a run has none for the request."""

    good: tuple[NDArray[np.bool_], NDArray[np.bool_]]
    """Base and candidate, of the requests that count in both."""
    latencies: Mapping[str, tuple[Floats, Floats]]
    """By name, in microseconds."""


def attained(good: Floats, target: float, block: int, rates: ErrorRates) -> tuple[GradeVerdict, Bounds]:
    """Return whether the share of ones in `good` is at least `target`, and its bounds; `good` is not empty."""
    effect = design_effect(good, block)
    bounds = share_bounds(float(good.sum()) / effect, len(good) / effect, rates)
    return verdict_of(bounds, target), bounds


def verdict_of(bounds: Bounds, least: float) -> GradeVerdict:
    """Return PASS where the true value is at least `least` for sure, FAIL where it is below for sure."""
    if bounds.low >= least:
        return PASS
    return FAIL if bounds.high < least else INCONCLUSIVE


@frozen
class Compared:
    """One figure of the candidate against the base."""

    verdict: GradeVerdict
    bounds: Bounds | None
    """Of the gain: of the good share, or of the logarithm of base over candidate; None where blocks are too few."""
    pairs: int
    margin: float
    better: bool
    """Whether the candidate is better at the stated confidence."""


def compared(paired: Paired, margins: Mapping[str, float], block: int, rates: ErrorRates) -> Mapping[str, Compared]:
    """Compare each figure that has a margin; the margins are fixed before the run.

    A gain is candidate's good less base's, or log(base latency / candidate latency): a latency that is larger by the
    share `margin` is the least gain that is still not inferior.
    """
    each = rates.shared(len(margins))
    # A claim to be better is made of any figure, so its error is shared out as that of failing is, and it takes half.
    claim = ErrorRates(each.failing / 2, each.failing / 2, each.looks)
    found = {}
    for name, margin in margins.items():
        gains = _gains(paired, name)
        least = -margin if name == "good" else -float(np.log1p(margin))
        bounds, strict = (_bounds(name, gains, block, rates) for rates in (each, claim))
        verdict = NO_DATA if not len(gains) else verdict_of(bounds, least) if bounds else INCONCLUSIVE
        found[name] = Compared(verdict, bounds, len(gains), margin, bool(strict and strict.low > 0))
    return found


def _bounds(name: str, gains: Floats, block: int, rates: ErrorRates) -> Bounds | None:
    if not len(gains):
        return None
    return difference_bounds(gains, block, rates) if name == "good" else mean_bounds(gains, block, rates)


def _gains(paired: Paired, name: str) -> Floats:
    if name == "good":
        base, candidate = paired.good
        return candidate.astype(np.float64) - base.astype(np.float64)
    before, after = paired.latencies[name]
    both = np.isfinite(before) & np.isfinite(after) & (before > 0) & (after > 0)
    gains: Floats = np.log(before[both] / after[both])
    return gains


_COUNTED = (Fate.GOOD, Fate.MISS)


def _mean_gap(record: RequestRecord) -> float | None:
    gaps = record.gaps
    return sum(gaps) / len(gaps) if gaps else None


LATENCIES: Mapping[str, Callable[[RequestRecord], float | None]] = {
    "first_token": lambda record: record.first_token,
    "token_gap": _mean_gap,
    "completion": lambda record: record.completion,
}


def paired_of(pairs: Sequence[tuple[Judged, Judged]]) -> Paired:
    """Return the columns of requests that count in both runs."""
    kept = [(a, b) for a, b in pairs if a.fate in _COUNTED and b.fate in _COUNTED]

    def column(side: int, read: Callable[[RequestRecord], float | None]) -> Floats:
        values = [read(pair[side].record) for pair in kept]
        return np.array([np.nan if value is None else value for value in values], dtype=np.float64)

    good = tuple(np.array([pair[side].fate is Fate.GOOD for pair in kept], dtype=np.bool_) for side in (0, 1))
    return Paired((good[0], good[1]), {name: (column(0, read), column(1, read)) for name, read in LATENCIES.items()})
