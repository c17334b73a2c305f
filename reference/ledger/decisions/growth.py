"""Running work that asks for more, or says what it has used (GRO)."""

from kvescrow.reference.ledger.records import RECORDED, Outcome, Posting, Reservation, Situation, changed, refused
from kvescrow.spec.vocabulary import Decision, Extend, Reason, ReportUsage, ReservationState

S = ReservationState

_MUST_STOP = {
    S.CANCELLING: Outcome(Decision.STOP, Reason.CANCEL_ACCEPTED),
    S.PREEMPTING: Outcome(Decision.STOP, Reason.PREEMPT_ACCEPTED),
}


def _stranger(event: Extend | ReportUsage, record: Reservation) -> Reason | None:
    """Return why this is not the word of the execution that runs; None where it is (LEA-2)."""
    if record.state in (S.QUEUED, S.RESERVED):
        return Reason.NOT_RUNNING
    if record.is_terminal:
        return Reason.CLOSED
    if event.owner != record.owner:
        return Reason.NOT_OWNER
    if event.generation != record.generation:
        return Reason.STALE_GENERATION
    return None


def extend(event: Extend, record: Reservation, situation: Situation) -> Outcome:
    """Grow a bound to the total asked; only the difference is charged, and a denial leaves the old size (GRO-2)."""
    stranger = _stranger(event, record)
    if stranger is not None:
        return refused(stranger)
    if record.state in _MUST_STOP:
        return _MUST_STOP[record.state]
    if record.state is S.ORPHANED:
        return refused(Reason.SUSPECT)
    tenant, pool = situation.tenant, situation.pool
    growth = event.bound - record.bound
    if growth <= 0:
        return RECORDED
    if event.bound > tenant.limit or event.bound > pool.limit:
        return refused(Reason.NEVER_FITS)
    if not tenant.covers(growth):
        return refused(Reason.BUDGET)
    if not tenant.has_room(growth):
        return refused(Reason.TENANT_CAPACITY)
    if not pool.has_room(growth):
        return refused(Reason.POOL_CAPACITY)
    return Outcome(Decision.EXTENDED, Reason.NONE, changed(record, bound=event.bound), Posting(charged=growth))


def report_usage(event: ReportUsage, record: Reservation) -> Outcome:
    """Record what is used so far; above the bound it is an overrun, which changes no account yet (GRO-4, GRO-6)."""
    stranger = _stranger(event, record)
    if stranger is not None:
        return refused(stranger)
    if event.used <= record.used:
        return RECORDED
    if event.used <= record.bound:
        return Outcome(Decision.NOTED, Reason.NONE, changed(record, used=event.used))
    overrun = max(record.overrun, event.used - record.bound)
    return Outcome(Decision.NOTED, Reason.OVERRUN, changed(record, used=event.used, overrun=overrun))
