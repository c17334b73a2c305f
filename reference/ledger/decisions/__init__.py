"""The decisions of the ledger: pure functions from records and an event to an outcome.

What comes first in every case stands here: whether the caller may ask at all (ADM-3, REC-1), and whether there is a
record to speak of. The rest is by theme: `admitting`, `lifecycle`, `growth`, `leases`, `limits`.
"""

from kvescrow.reference.ledger.decisions import admitting, growth, leases, lifecycle
from kvescrow.reference.ledger.records import Outcome, Reservation, Situation, refused
from kvescrow.spec.vocabulary import (
    Cancel,
    Extend,
    Fence,
    Finish,
    ForceRelease,
    Forget,
    Preempt,
    Promote,
    Reason,
    Renew,
    ReportUsage,
    Reserve,
    Start,
    Sweep,
)

KnownEvent = (
    Promote | Start | Extend | ReportUsage | Cancel | Preempt | Finish | Renew | Sweep | Fence | ForceRelease | Forget
)
"""The events that speak of a record."""

ReservationEvent = Reserve | KnownEvent
"""The events about one reservation; the others are about limits and time."""


def decide(event: ReservationEvent, situation: Situation) -> Outcome:
    """Return the outcome of `event`."""
    if not situation.vouched:
        return refused(Reason.FORGED if isinstance(event, Finish | Fence) else Reason.FORBIDDEN)
    if isinstance(event, Reserve):
        return admitting.reserve(event, situation)
    if situation.record is None:
        return refused(Reason.UNKNOWN_KEY)
    return _decide_known(event, situation.record, situation)


def _decide_known(event: KnownEvent, record: Reservation, situation: Situation) -> Outcome:
    pool = situation.pool
    match event:
        case Promote():
            return admitting.promote(event, record, situation)
        case Start():
            return lifecycle.start(event, record, pool)
        case Extend():
            return growth.extend(event, record, situation)
        case ReportUsage():
            return growth.report_usage(event, record)
        case Cancel():
            return lifecycle.cancel(event, record, pool)
        case Preempt():
            return lifecycle.preempt(event, record)
        case Finish():
            return lifecycle.finish(event, record, pool)
        case Renew():
            return leases.renew(event, record, pool)
        case Sweep():
            return leases.sweep(record, pool)
        case Fence():
            return lifecycle.fence(event, record, pool)
        case ForceRelease():
            return lifecycle.force_release(event, record, pool)
        case Forget():
            return lifecycle.forget(record, pool)
