"""Whether tenants of a class were served by their shares, from the records alone (FAI-1, FAI-2).

The resource is reserved tokens, counted at dispatch; the interval is any in which both tenants of a pair have a request
that waits and is not kept back by a limit of its own. Over each such interval, with E the largest request:

    |R_i/w_i - R_j/w_j| <= E/w_i + E/w_j

The watch is the scheduler's own. What is here only reads from records who waited and who was served, in which order.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction

from attrs import frozen

from kvescrow.reference.grading.records import Ending, RequestRecord, SpanKind
from kvescrow.reference.scheduler.fairness import FairnessWatch, Party, reserved_bound
from kvescrow.spec.vocabulary import Reason

RESOURCE = "reserved tokens, counted at dispatch, while both tenants of a class wait"
OWN_LIMIT = frozenset({Reason.TENANT_CAPACITY.value, Reason.BUDGET.value})
_SERVED, _ARRIVES, _LEAVES = range(3)
"""At one moment whoever was served still waited; then others come, then those who left rest."""

Pair = tuple[Party, Party]
"""Two tenants, each (class, tenant)."""


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
    """The gap nearest to its bound, or furthest beyond; None where none was served while a rival waited too."""
    broken: tuple[Gap, ...]
    """Those beyond."""


def watch_fairness(records: Iterable[RequestRecord], weights: Mapping[str, int]) -> FairnessFound:
    """Follow every pair of tenants of a class through a run; `weights` are of tenants, 1 where one is missing."""
    listed = [record for record in records if record.ending is not Ending.WITHDRAWN]
    watch = FairnessWatch({party: weights.get(party[1], 1) for party in map(_party, listed)})
    waiting: Counter[Party] = Counter()
    for _, kind, _, party, amount in sorted(_events(listed)):
        if kind == _SERVED:
            watch.served(party, amount)
        elif kind == _ARRIVES:
            waiting[party] += 1
            if waiting[party] == 1:
                watch.waits(party)
        else:
            waiting[party] -= 1
            if not waiting[party]:
                watch.rests(party)
    largest = max((record.amount or 0 for record in listed), default=0)
    gaps = [
        Gap(pair, gap, reserved_bound(watch.weight(pair[0]), watch.weight(pair[1]), largest))
        for pair, gap in watch.gaps.items()
        if largest
    ]
    return FairnessFound(
        sum(record.started is not None and record.amount is not None for record in listed),
        max(gaps, key=lambda each: (each.gap / each.bound, each.pair), default=None),
        tuple(each for each in gaps if each.gap > each.bound),
    )


def _events(records: Iterable[RequestRecord]) -> Iterator[tuple[int, int, str, Party, int]]:
    for record in records:
        party = _party(record)
        left = record.ended
        if record.started is not None and record.amount is not None:
            left = record.started
            yield record.started, _SERVED, record.request, party, record.amount
        if left is None or left <= record.arrival or _kept_back(record):
            continue
        yield record.arrival, _ARRIVES, record.request, party, 0
        yield left, _LEAVES, record.request, party, 0


def _party(record: RequestRecord) -> Party:
    return (record.class_name, record.tenant)


def _kept_back(record: RequestRecord) -> bool:
    """Whether a limit of its own tenant kept it waiting, or refused it."""
    return record.reason in OWN_LIMIT or any(
        span.kind is SpanKind.QUEUE and span.cause in OWN_LIMIT for span in record.spans
    )
