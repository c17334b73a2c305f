"""What can be seen of two runs beside the split of the time: the evidence that hypotheses are held against (DIA-1)."""

from collections import Counter
from collections.abc import Iterable, Mapping

from attrs import frozen

from kvescrow.reference.grading.losses import Losses, Parts, computed
from kvescrow.reference.grading.records import Ending, Pairing, RequestRecord, Run, SpanKind


@frozen
class Sight:
    """Figures of one run, over the requests that completed in both."""

    prefill: int
    """Microseconds of computing prompts."""
    decode: int
    computed: int
    """Prompt tokens computed."""
    output: int
    """Tokens."""
    widest_gaps: int
    """Sum of the widest gap of each request, in microseconds."""
    hits: Mapping[str, tuple[int, int]]
    """Scope -> (prompt tokens that were cached, prompt tokens)."""
    peak: int
    """Most requests that were started and not over at one moment, of all."""
    ended: Mapping[Ending, int]

    @property
    def prefill_rate(self) -> float:
        """Microseconds a prompt token."""
        return self.prefill / self.computed if self.computed else 0.0

    @property
    def decode_rate(self) -> float:
        """Microseconds an output token."""
        return self.decode / self.output if self.output else 0.0

    def hit_share(self, scope: str) -> float:
        """Share of the scope's prompt tokens that were cached."""
        found, of = self.hits.get(scope, (0, 0))
        return found / of if of else 0.0


@frozen
class Facts:
    """Both runs and the split between them."""

    losses: Losses
    base: Sight
    candidate: Sight
    slower: float | None
    """How many times as long the device's probe took in the candidate; None where it was not measured in both."""
    pools: tuple[int | None, int | None]

    @property
    def parts(self) -> Parts:
        """The split."""
        return self.losses.parts

    def lost(self, *parts: str) -> int:
        """Return what was lost in these parts together; a name that ends with a dot stands for all below it."""
        return sum(
            amount
            for part, amount in self.parts.items()
            if part in parts or any(each.endswith(".") and part.startswith(each) for each in parts)
        )


def facts_of(pairing: Pairing, losses: Losses) -> Facts:
    """Look at both runs."""
    both = [(b, c) for b, c in pairing.pairs if b.completion is not None and c.completion is not None]
    base, candidate = pairing.base, pairing.candidate
    slower = candidate.probe / base.probe if candidate.probe and base.probe else None
    return Facts(
        losses,
        _sight([pair[0] for pair in both], base),
        _sight([pair[1] for pair in both], candidate),
        slower,
        (base.pool, candidate.pool),
    )


def _sight(records: Iterable[RequestRecord], run: Run) -> Sight:
    listed = list(records)
    hits: dict[str, tuple[int, int]] = {}
    for record in listed:
        found, of = hits.get(record.scope, (0, 0))
        hits[record.scope] = (found + (record.cached_tokens or 0), of + (record.input_tokens or 0))
    return Sight(
        prefill=_spent(listed, SpanKind.PREFILL),
        decode=_spent(listed, SpanKind.DECODE),
        computed=sum(computed(record) for record in listed),
        output=sum(record.output_tokens for record in listed),
        widest_gaps=sum(max(record.gaps, default=0) for record in listed),
        hits=hits,
        peak=_peak(run.records),
        ended=Counter(record.ending for record in run.records),
    )


def _spent(records: Iterable[RequestRecord], kind: SpanKind) -> int:
    return sum(span.microseconds for record in records for span in record.spans if span.kind is kind)


def _peak(records: Iterable[RequestRecord]) -> int:
    changes = []
    for record in records:
        if record.started is not None and record.ended is not None:
            changes += [(record.started, 1), (record.ended, -1)]
    now = peak = 0
    for _, change in sorted(changes):
        now += change
        peak = max(peak, now)
    return peak
