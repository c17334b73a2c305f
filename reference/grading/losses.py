"""Where the time between two runs of one workload went: parts that add up to the whole, to the microsecond (DIA-1).

The time of a request is from its intended arrival to its end. One that did not complete counts as long as the slowest
that did, in either run: so a refusal is a loss, and its part says of what kind. Requests that were cancelled, withdrawn
or are under way in either run are left out of both.

What the spans of a request say is taken as it is. Of computing, shares are told apart first: what the device's probe
says that the device itself became slower, and what tokens cost that were cached, or not asked for, before, at the
base's rate.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from attrs import frozen

from kvescrow.reference.grading.records import Ending, Pairing, RequestRecord, Run, Span, SpanKind

COMPUTED_GAPS = frozenset({"prefill_of_others"})
"""Causes of gaps in which the device computes, so that a slower device widens them."""
UNEXPLAINED = "unexplained"
"""Of requests without spans, or with a part that they do not name."""
DEVICE, PREFILL, DECODE, MORE_TOKENS = "device", "prefill", "decode", "more_tokens"
_COUNTED = frozenset({Ending.COMPLETED, Ending.REFUSED, Ending.EXPIRED, Ending.FAILED})

Parts = Mapping[str, int]


class SplitError(Exception):
    """The parts do not add up to the whole: the split is wrong, whatever the runs."""


@frozen
class Losses:
    """Time that the candidate took beyond the base; what was gained is negative."""

    lost: int
    """Microseconds, of all counted requests together."""
    base: int
    """Microseconds that they took in the base."""
    parts: Parts
    """Part -> microseconds; they add up to `lost`. Sorted by what was lost."""
    pairs: int
    """Requests that count."""
    left_out: int
    penalty: int
    """What a request counts that did not complete, in microseconds."""
    explained: int
    """Pairs of which both sides tell their spans."""


def split(pairing: Pairing) -> Losses:
    """Split the time between the two runs.

    Raises:
        SplitError: The parts do not add up; nothing that a run holds can cause it.

    """
    counted = [(b, c) for b, c in pairing.pairs if b.ending in _COUNTED and c.ending in _COUNTED]
    completed = [each for pair in counted for each in pair if each.completion is not None]
    penalty = max((each.completion or 0 for each in completed), default=0)
    parts: Counter[str] = Counter()
    for base, candidate in counted:
        for part, amount in _parts_of(base, candidate, penalty, pairing):
            parts[part] += amount
    before = sum(_time(base, penalty) for base, _ in counted)
    after = sum(_time(candidate, penalty) for _, candidate in counted)
    if sum(parts.values()) != after - before:
        raise SplitError(f"the parts are {sum(parts.values())} us, the whole is {after - before} us")
    ordered = sorted(((part, amount) for part, amount in parts.items() if amount), key=lambda item: (-item[1], item[0]))
    return Losses(
        lost=after - before,
        base=before,
        parts=dict(ordered),
        pairs=len(counted),
        left_out=len(pairing.pairs) - len(counted),
        penalty=penalty,
        explained=sum(bool(base.spans and candidate.spans) for base, candidate in counted),
    )


def _time(record: RequestRecord, penalty: int) -> int:
    return penalty if record.completion is None else record.completion


def _parts_of(base: RequestRecord, candidate: RequestRecord, penalty: int, runs: Pairing) -> Iterator[tuple[str, int]]:
    if candidate.completion is None and base.completion is None:
        return
    if candidate.completion is None or base.completion is None:
        ended = candidate if candidate.completion is None else base
        part = f"{ended.ending.value}.{ended.reason or 'unknown'}"
        yield part, _time(candidate, penalty) - _time(base, penalty)
        return
    if not base.spans or not candidate.spans:
        yield UNEXPLAINED, candidate.completion - base.completion
        return
    before, after = _sums(base.spans), _sums(candidate.spans)
    for key in sorted(before.keys() | after.keys(), key=lambda each: (each[0].value, each[1])):
        yield from _of_kind(key, before[key], after[key], base, candidate, runs)


def _sums(spans: Iterable[Span]) -> Counter[tuple[SpanKind, str]]:
    sums: Counter[tuple[SpanKind, str]] = Counter()
    for span in spans:
        sums[span.kind, span.cause] += span.microseconds
    return sums


def _of_kind(
    key: tuple[SpanKind, str], before: int, after: int, base: RequestRecord, candidate: RequestRecord, runs: Pairing
) -> Iterator[tuple[str, int]]:
    """Yield the parts of one kind of span; together they are `after` less `before`."""
    kind, cause = key
    rest = after - before
    if kind in (SpanKind.PREFILL, SpanKind.DECODE) or cause in COMPUTED_GAPS:
        slower = slowdown(after, runs.base, runs.candidate)
        yield DEVICE, slower
        rest -= slower
    if kind is SpanKind.PREFILL:
        lost = _at_rate(before, computed(base), computed(candidate))
        yield f"lost_hits.{candidate.scope or 'unnamed'}", lost
        yield PREFILL, rest - lost
    elif kind is SpanKind.DECODE:
        more = _at_rate(before, base.output_tokens, candidate.output_tokens)
        yield MORE_TOKENS, more
        yield DECODE, rest - more
    else:
        yield f"{kind.value}.{cause}" if cause else kind.value, rest


def slowdown(duration: int, base: Run, candidate: Run) -> int:
    """Return the part of `duration` on the candidate's device by which it is slower than the base's."""
    if not base.probe or not candidate.probe:
        return 0
    return duration - duration * base.probe // candidate.probe


def computed(record: RequestRecord) -> int:
    """Return how many prompt tokens were computed; 0 where that is unknown."""
    return max(0, (record.input_tokens or 0) - (record.cached_tokens or 0))


def _at_rate(duration: int, before: int, after: int) -> int:
    """Return what the change of a number of tokens costs at the base's rate."""
    return (after - before) * duration // before if before > 0 else 0
