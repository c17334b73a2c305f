"""Whether tenants of a class were served by their shares, from the records alone (FAI-1, FAI-2).

The resource is reserved tokens, counted at dispatch; the interval is any in which both tenants of a pair have a request
that waits and is not kept back by a limit of its own. Over each such interval, with E the largest request:

    |R_i/w_i - R_j/w_j| <= E/w_i + E/w_j
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction

from attrs import define, frozen

from kvescrow.reference.grading.records import Ending, RequestRecord, SpanKind
from kvescrow.spec.vocabulary import Reason

RESOURCE = "reserved tokens, counted at dispatch, while both tenants of a class wait"
OWN_LIMIT = frozenset({Reason.TENANT_CAPACITY.value, Reason.BUDGET.value})
_SERVED, _ARRIVES, _LEAVES = range(3)
"""At one moment whoever was served still waited; then others come, then those who left rest."""

Party = tuple[str, str]
"""(class, tenant)."""
Pair = tuple[Party, Party]


@frozen
class Gap:
    """The widest difference of one pair."""

    pair: Pair
    gap: Fraction
    """Normalised tokens of one over the other, at most, in one interval."""
    bound: Fraction

    def __str__(self) -> str:
        (class_name, one), (_, other) = self.pair
        return (
            f"class {class_name}: {one} and {other} differ by {float(self.gap):g} normalised tokens while both wait, "
            f"the bound is {float(self.bound):g}"
        )


@frozen
class FairnessFound:
    """What was found."""

    dispatched: int
    """Requests with a known dispatch."""
    worst: Gap | None
    """The gap nearest to its bound, or furthest beyond; None where no two tenants of a class ever waited together."""
    broken: tuple[Gap, ...]
    """Those beyond."""


def watch_fairness(records: Iterable[RequestRecord], weights: Mapping[str, int]) -> FairnessFound:
    """Follow every pair of tenants of a class through a run; `weights` are of tenants, 1 where one is missing."""
    listed = [record for record in records if record.ending is not Ending.WITHDRAWN]
    watch = _Watch(weights)
    for _, kind, _, party, amount in sorted(_events(listed)):
        if kind == _SERVED:
            watch.serve(party, amount)
        elif kind == _ARRIVES:
            watch.arrive(party)
        else:
            watch.leave(party)
    largest = max((record.amount or 0 for record in listed), default=0)
    gaps = [Gap(pair, gap, watch.bound(pair, largest)) for pair, gap in watch.widest.items()] if largest else []
    return FairnessFound(
        sum(record.started is not None and record.amount is not None for record in listed),
        max(gaps, key=lambda each: (each.gap / each.bound, each.pair), default=None),
        tuple(each for each in gaps if each.gap > each.bound),
    )


@define
class _Interval:
    """Normalised service of one over the other since both wait."""

    ahead: Fraction = Fraction(0)
    least: Fraction = Fraction(0)
    most: Fraction = Fraction(0)

    def move(self, by: Fraction) -> Fraction:
        self.ahead += by
        self.least, self.most = min(self.least, self.ahead), max(self.most, self.ahead)
        return self.most - self.least


class _Watch:
    def __init__(self, weights: Mapping[str, int]) -> None:
        self._weights = weights
        self._waiting: Counter[Party] = Counter()
        self._intervals: dict[Pair, _Interval] = {}
        self.widest: dict[Pair, Fraction] = {}

    def arrive(self, party: Party) -> None:
        self._waiting[party] += 1
        if self._waiting[party] == 1:
            for other in self._rivals(party):
                self._intervals[_pair(party, other)] = _Interval()
                self.widest.setdefault(_pair(party, other), Fraction(0))

    def leave(self, party: Party) -> None:
        self._waiting[party] -= 1
        if not self._waiting[party]:
            for other in self._rivals(party):
                del self._intervals[_pair(party, other)]

    def serve(self, party: Party, amount: int) -> None:
        if not self._waiting[party]:
            return
        step = Fraction(amount, self._weights.get(party[1], 1))
        for other in self._rivals(party):
            pair = _pair(party, other)
            gap = self._intervals[pair].move(step if pair[0] == party else -step)
            self.widest[pair] = max(self.widest[pair], gap)

    def bound(self, pair: Pair, largest: int) -> Fraction:
        return sum((Fraction(largest, self._weights.get(party[1], 1)) for party in pair), Fraction(0))

    def _rivals(self, party: Party) -> list[Party]:
        return [other for other, count in self._waiting.items() if count and other != party and other[0] == party[0]]


def _pair(one: Party, other: Party) -> Pair:
    return (one, other) if one < other else (other, one)


def _events(records: Iterable[RequestRecord]) -> Iterator[tuple[int, int, str, Party, int]]:
    for record in records:
        party = (record.class_name, record.tenant)
        left = record.ended
        if record.started is not None and record.amount is not None:
            left = record.started
            yield record.started, _SERVED, record.request, party, record.amount
        if left is None or left <= record.arrival or _kept_back(record):
            continue
        yield record.arrival, _ARRIVES, record.request, party, 0
        yield left, _LEAVES, record.request, party, 0


def _kept_back(record: RequestRecord) -> bool:
    """Whether a limit of its own tenant kept it waiting, or refused it."""
    return record.reason in OWN_LIMIT or any(
        span.kind is SpanKind.QUEUE and span.cause in OWN_LIMIT for span in record.spans
    )
