"""Request-level records of a replay: on virtual time, so every time is synthetic."""

from attrs import frozen

from kvescrow.reference.grading.records import Ending, Evidence, RequestRecord, Run, Span, SpanKind
from kvescrow.reference.replay.offers import Offer, Stage
from kvescrow.reference.scheduler import StepWork
from kvescrow.spec.vocabulary import Reason

PROBE = StepWork(prefill_tokens=512, decode_sequences=16, context_tokens=16_384)
"""The fixed step: a chunk beside a batch of some length."""
BATCH_FULL = "BATCH_FULL"
"""Admitted, and waits for a place in the batch."""
_ENDINGS = {
    Stage.REFUSED: Ending.REFUSED,
    Stage.EXPIRED: Ending.EXPIRED,
    Stage.CANCELLED: Ending.CANCELLED,
    Stage.FAILED: Ending.FAILED,
    Stage.COMPLETED: Ending.COMPLETED,
}


@frozen
class Replayed:
    """What a replay tells beside its requests."""

    trace: str
    pool: int
    """Usable tokens."""
    span: int
    """When its last event was, in microseconds of virtual time."""
    probe: int
    """What one fixed step takes under its cost model, in microseconds."""
    safety: Evidence
    """What the journal check found."""


def run_of(replayed: Replayed, offers: list[Offer]) -> Run:
    """Return the records of `offers`, all of which are over."""
    records = tuple(_record(offer) for offer in offers)
    return Run(
        f"replay of {replayed.trace}",
        records,
        ended=max([replayed.span, *(record.ended or 0 for record in records)]),
        offered=len(records),
        workload=f"{replayed.trace}, {len(records)} requests",
        synthetic=True,
        safety=replayed.safety,
        probe=replayed.probe,
        pool=replayed.pool,
        remarks=("virtual time; prefill and decode include waits for other requests' steps",),
    )


def _record(offer: Offer) -> RequestRecord:
    request, ending = offer.request, _ENDINGS[offer.stage]
    completed = ending is Ending.COMPLETED
    return RequestRecord(
        request=request.request,
        tenant=offer.tenant,
        class_name=offer.class_name,
        arrival=request.arrival,
        ending=ending,
        reason="" if completed else offer.reason,
        sent=request.arrival,
        frames=tuple((time, 1) for time in offer.token_times),
        ended=offer.finished,
        input_tokens=request.input_tokens,
        cached_tokens=offer.cached if offer.started is not None else None,
        started=offer.started,
        amount=offer.reserved or None,
        scope=offer.tenant,
        spans=_spans(offer) if completed else (),
    )


def _spans(offer: Offer) -> tuple[Span, ...]:
    """Return the way from arrival to the end of a request that completed; what came of a preemption is in the last."""
    arrival, times = offer.request.arrival, offer.token_times
    admitted = arrival if offer.admitted is None else offer.admitted
    started = admitted if offer.started is None else offer.started
    waits = offer.reason or Reason.BEHIND_OTHERS.value
    found = (
        Span(SpanKind.QUEUE, waits, admitted - arrival),
        Span(SpanKind.QUEUE, BATCH_FULL, started - admitted),
        Span(SpanKind.PREFILL, "", times[0] - started),
        Span(SpanKind.DECODE, "", offer.finished - times[0]),
    )
    return tuple(span for span in found if span.microseconds)
