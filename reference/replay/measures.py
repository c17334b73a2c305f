"""Figures of a run: a time-weighted mean, and quantiles that are samples rather than interpolations."""

from collections.abc import Iterable

from attrs import define, frozen


@define
class TimeWeighted:
    """Integral of a counter over time; both in whole numbers, so that nothing is lost."""

    value: int = 0
    since: int = 0
    area: int = 0
    peak: int = 0

    def change(self, now: int, by: int) -> None:
        """The counter changes by `by` at `now`, in microseconds."""
        self.area += self.value * (now - self.since)
        self.since = now
        self.value += by
        self.peak = max(self.peak, self.value)

    def mean(self, now: int) -> float:
        """Return the mean from 0 to `now`."""
        return (self.area + self.value * (now - self.since)) / now if now else 0.0


@frozen
class Quantiles:
    """Quantiles by nearest rank, in microseconds; None where there is no sample."""

    count: int
    p50: int | None
    p90: int | None
    p99: int | None
    maximum: int | None


def quantiles(samples: Iterable[int]) -> Quantiles:
    """Return the quantiles of `samples`."""
    ordered = sorted(samples)

    def at(percent: int) -> int | None:
        return ordered[-(-percent * len(ordered) // 100) - 1] if ordered else None

    return Quantiles(len(ordered), at(50), at(90), at(99), at(100))
