"""Bounds on a share and on a mean difference, at a stated error rate, for one look or for several.

One look at a share: Clopper and Pearson's exact interval. Several looks: a confidence sequence, which holds at all
looks at once however many there are. It is the method of mixtures (Robbins 1970) for a share: with s successes and f
failures, the ratio of their likelihood averaged over a Beta(1/2, 1/2) prior to their likelihood at p is a martingale
when p is true, so by Ville's inequality it ever exceeds 1/alpha with probability alpha at most; the sequence is the
set of p at which it does not. No kept library could be had for this (`confseq` has had no release since 2023, and no
wheel), so it is here, and its error rate is measured in the tests.

Correlated requests: the exact interval is taken at the effective sample size, n over the design effect that blocks of
consecutive requests show (Korn and Graubard 1998). Mean differences: a studentised block bootstrap; over several looks
its error rate is shared out evenly among them (union bound).
"""

from functools import lru_cache
from math import ceil, log, log1p

import numpy as np
from attrs import frozen
from numpy.typing import NDArray
from scipy.special import betaincinv, betaln

Floats = NDArray[np.float64]

RESAMPLES = 4000
"""Of blocks. At an error rate of 0.05 shared by ten looks and eight comparisons, two or three lie beyond the bound."""
LEAST_BLOCKS = 20
"""Fewer say too little of how blocks differ: no bound is given."""
MOST_BLOCKS = 100
"""Longer runs are cut into longer blocks."""
_SEED = 20261129
_HALVINGS = 60
"""Of the interval in which a bound lies; more change nothing in a double."""


@frozen
class Bounds:
    """One-sided bounds of one figure: `low` is above the true value with at most the error rate of passing, `high` is
    below it with at most that of failing."""

    estimate: float
    low: float
    high: float


@frozen
class ErrorRates:
    """What may go wrong with which probability.

    A gate is passed only where all its comparisons are, so each may err at `passing` (an intersection of tests). It is
    failed where one is, so the comparisons share `failing` among them (union bound).
    """

    passing: float
    failing: float
    looks: int = 1
    """Planned before the run."""

    def shared(self, comparisons: int) -> "ErrorRates":
        """Return the rates of one of so many comparisons."""
        return ErrorRates(self.passing, self.failing / max(1, comparisons), self.looks)


def share_bounds(good: float, count: float, rates: ErrorRates) -> Bounds:
    """Return the bounds of a share, `good` of `count`; both may be effective sizes, so fractions."""
    if count <= 0:
        return Bounds(0.0, 0.0, 1.0)
    bounds = exact_bounds if rates.looks == 1 else sequence_bounds
    return Bounds(good / count, bounds(good, count, rates.passing)[0], bounds(good, count, rates.failing)[1])


def exact_bounds(good: float, count: float, alpha: float) -> tuple[float, float]:
    """Return Clopper and Pearson's lower and upper bound, each at error rate `alpha`."""
    bad = count - good
    low = float(betaincinv(good, bad + 1, alpha)) if good > 0 else 0.0
    return low, float(betaincinv(good + 1, bad, 1 - alpha)) if bad > 0 else 1.0


def sequence_bounds(good: float, count: float, alpha: float) -> tuple[float, float]:
    """Return the bounds of a confidence sequence: over all looks, either is ever wrong with at most `alpha`."""
    bad = count - good
    limit = float(betaln(good + 0.5, bad + 0.5) - betaln(0.5, 0.5)) + log(alpha)
    likeliest = good / count if count else 0.5
    low = _edge(good, bad, limit, 0.0, likeliest) if good > 0 else 0.0
    return low, _edge(good, bad, limit, 1.0, likeliest) if bad > 0 else 1.0


def _edge(good: float, bad: float, limit: float, outside: float, inside: float) -> float:
    """Return where the likelihood falls to `limit` between the most likely share and an end, by halving."""
    for _ in range(_HALVINGS):
        middle = (outside + inside) / 2
        likelihood = good * log(middle) + bad * log1p(-middle)
        inside, outside = (middle, outside) if likelihood >= limit else (inside, middle)
    return outside


def design_effect(good: Floats, block: int) -> float:
    """Return by how much the variance of a share is above that of independent requests, by its blocks; at least 1.

    `good` are zeros and ones in order of arrival. Where all are equal nothing can be judged, and a block counts as one
    request.
    """
    count = len(good)
    if block <= 1 or count == 0:
        return 1.0
    share = float(good.mean())
    if share in (0.0, 1.0) or count < 2 * block:
        return float(block)
    sums, sizes = _blocks(good, block)
    blocks = len(sums)
    between = float(np.sum((sums - share * sizes) ** 2)) * blocks / (blocks - 1)
    return max(1.0, between / (count * share * (1 - share)))


def difference_bounds(values: Floats, block: int, rates: ErrorRates) -> Bounds:
    """Return the bounds of the mean of `values`, each of them -1, 0 or 1: requests that one of two runs lost.

    A bootstrap of pairs that all agree would be sure of what it never saw. So the share that was gained and the share
    that was lost are each bounded exactly, at half the error rate.
    """
    gained, lost = ((values == sign).astype(np.float64) for sign in (1, -1))

    def bounds(ones: Floats, alpha: float) -> Bounds:
        effect = design_effect(ones, block)
        return share_bounds(float(ones.sum()) / effect, len(ones) / effect, ErrorRates(alpha, alpha, rates.looks))

    low = bounds(gained, rates.passing / 2).low - bounds(lost, rates.passing / 2).high
    high = bounds(gained, rates.failing / 2).high - bounds(lost, rates.failing / 2).low
    return Bounds(float(values.mean()), low, high)


def mean_bounds(values: Floats, block: int, rates: ErrorRates) -> Bounds | None:
    """Return the bounds of the mean of `values`, which come in order of arrival; None where blocks are too few.

    A studentised bootstrap of blocks of `block` values: its quantiles correct for skew and for few blocks.
    """
    block = max(block, 1)
    if len(values) < LEAST_BLOCKS * block:
        return None
    # More blocks tell hardly more about how blocks differ, and cost as much as they are.
    block = max(block, ceil(len(values) / MOST_BLOCKS))
    sums, sizes = _blocks(values, block)
    mean = float(sums.sum() / sizes.sum())
    error = _standard_error(sums, sizes, mean)
    if error == 0.0:
        return Bounds(mean, mean, mean)
    weights = _weights(len(sums))
    totals, counts = weights @ sums, weights @ sizes
    means = totals / counts
    blocks = len(sums)
    squares = weights @ (sums**2) - 2 * means * (weights @ (sums * sizes)) + means**2 * (weights @ (sizes**2))
    errors = np.sqrt(np.maximum(squares, 0) * blocks / (blocks - 1)) / counts
    pivots = (means - mean) / np.maximum(errors, error * 1e-6)
    above, below = np.quantile(pivots, [1 - rates.passing / rates.looks, rates.failing / rates.looks])
    return Bounds(mean, mean - float(above) * error, mean - float(below) * error)


def _blocks(values: Floats, block: int) -> tuple[Floats, Floats]:
    """Return the sums and the sizes of consecutive blocks; the last is larger where they do not divide evenly."""
    starts = np.arange(max(1, len(values) // block)) * block
    sizes = np.diff(np.append(starts, len(values)))
    return np.add.reduceat(values.astype(np.float64), starts), sizes.astype(np.float64)


def _standard_error(sums: Floats, sizes: Floats, mean: float) -> float:
    blocks = len(sums)
    return float(np.sqrt(np.sum((sums - mean * sizes) ** 2) * blocks / (blocks - 1)) / sizes.sum())


@lru_cache(maxsize=16)
def _weights(blocks: int) -> Floats:
    """Return how often each block is drawn in each resample: the same for equal numbers of blocks in every run."""
    drawn = np.random.default_rng(_SEED).multinomial(blocks, np.full(blocks, 1 / blocks), size=RESAMPLES)
    return drawn.astype(np.float64)
