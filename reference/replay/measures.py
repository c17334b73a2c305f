"""Figures of a run: a time-weighted mean, and quantiles that are samples rather than interpolations."""

from collections import Counter
from collections.abc import Iterable

from attrs import define, field, frozen


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


@define
class Timeline(TimeWeighted):
    """A counter that remembers its course."""

    moments: list[int] = field(factory=list)
    values: list[int] = field(factory=list)

    def change(self, now: int, by: int) -> None:
        """The counter changes by `by` at `now`, in microseconds."""
        super().change(now, by)
        if self.moments and self.moments[-1] == now:
            self.values[-1] = self.value
        else:
            self.moments.append(now)
            self.values.append(self.value)

    def course(self, end: int, points: int) -> list[float]:
        """Return the means over `points` equal parts of the time from 0 to `end`."""
        parts = TimeWeighted()
        means: list[float] = []
        index = 0
        for part in range(1, points + 1):
            limit, before = end * part // points, parts.since
            parts.area = 0
            while index < len(self.moments) and self.moments[index] < limit:
                parts.change(self.moments[index], self.values[index] - parts.value)
                index += 1
            parts.change(limit, 0)
            means.append(parts.area / (limit - before) if limit > before else float(parts.value))
        return means


@define
class Histogram:
    """Samples by value, so that a million of equal gaps cost one entry."""

    counts: Counter[int] = field(factory=Counter)

    def add(self, value: int) -> None:
        """Take in one sample."""
        self.counts[value] += 1

    def quantiles(self) -> Quantiles:
        """Return the quantiles of all samples."""
        ordered = sorted(self.counts)
        total = self.counts.total()
        return Quantiles(total, *(self._at(ordered, -(-percent * total // 100)) for percent in (50, 90, 99, 100)))

    def _at(self, ordered: list[int], rank: int) -> int | None:
        seen = 0
        for value in ordered:
            seen += self.counts[value]
            if seen >= rank:
                return value
        return None

    def distribution(self, points: int = 100) -> list[int]:
        """Return the samples at `points` equally spaced ranks, the least and the greatest among them."""
        ordered = sorted(self.counts.items())
        total = self.counts.total()
        if not total:
            return []
        found: list[int] = []
        seen = index = 0
        for point in range(points + 1):
            rank = max(1, -(-point * total // points))
            while seen < rank:
                seen += ordered[index][1]
                index += 1
            found.append(ordered[index - 1][0])
        return found
