"""Admission: a new request (ADM, IDN) and the promotion of one that waits (QUE)."""

from kvescrow.reference.ledger.decisions.settlement import expire
from kvescrow.reference.ledger.records import (
    RECORDED,
    Outcome,
    PoolAccount,
    Posting,
    Reservation,
    Situation,
    TenantAccount,
    changed,
    refused,
)
from kvescrow.spec.vocabulary import Decision, Promote, Reason, ReservationState, Reserve


def reserve(event: Reserve, situation: Situation) -> Outcome:
    """Answer a request for capacity: recorded, refused, queued or admitted."""
    if situation.record is not None:
        return _retry(event, situation.record)
    tenant, pool = situation.tenant, situation.pool
    reason = _refusal(event, tenant, pool)
    if reason is not None:
        return refused(reason)
    shortage = _shortage(event.amount, situation)
    if shortage is Reason.NONE:
        return _admit(event, pool)
    if event.max_wait == 0:
        return refused(shortage)
    if tenant.queued >= tenant.queue_limit:
        return refused(Reason.QUEUE_FULL)
    return _enqueue(event, pool, shortage)


def _retry(event: Reserve, record: Reservation) -> Outcome:
    """A key that is taken answers a retry, and refuses other parameters by the first that differs (IDN-2, IDN-3)."""
    if event.amount != record.amount:
        return refused(Reason.CONFLICT_AMOUNT)
    if event.deadline != record.deadline:
        return refused(Reason.CONFLICT_DEADLINE)
    if event.digest != record.digest:
        return refused(Reason.CONFLICT_DIGEST)
    return RECORDED


def _refusal(event: Reserve, tenant: TenantAccount, pool: PoolAccount) -> Reason | None:
    """Return why waiting cannot help this request; None where it can."""
    if event.amount <= 0 or event.max_wait < 0 or event.least_service < 0 or event.lease <= 0:
        return Reason.MALFORMED
    if event.amount > tenant.limit or event.amount > pool.limit:
        return Reason.NEVER_FITS
    if pool.clock + event.least_service > event.deadline:
        return Reason.TOO_LATE
    if not tenant.covers(event.amount):
        return Reason.BUDGET
    return None


def _shortage(amount: int, situation: Situation) -> Reason:
    """Return what `amount` lacks now; NONE where it lacks nothing (ADM-5, QUE-5)."""
    if not situation.tenant.has_room(amount):
        return Reason.TENANT_CAPACITY
    if not situation.pool.has_room(amount):
        return Reason.POOL_CAPACITY
    if situation.others_first():
        return Reason.BEHIND_OTHERS
    return Reason.NONE


def _admit(event: Reserve, pool: PoolAccount) -> Outcome:
    record = _bound_record(event, pool, ReservationState.RESERVED, lease=pool.clock + event.lease)
    return Outcome(Decision.ADMITTED, Reason.NONE, record, Posting(charged=event.amount))


def _enqueue(event: Reserve, pool: PoolAccount, shortage: Reason) -> Outcome:
    record = _bound_record(event, pool, ReservationState.QUEUED, expires=pool.clock + event.max_wait)
    return Outcome(Decision.QUEUED, shortage, record, Posting(queued=1))


def _bound_record(
    event: Reserve, pool: PoolAccount, state: ReservationState, lease: int = 0, expires: int = 0
) -> Reservation:
    """Bind the key to its parameters and to a new life (IDN-2, IDN-5)."""
    return Reservation(
        event.key,
        state,
        event.amount,
        event.digest,
        event.deadline,
        event.least_service,
        bound=event.amount,
        life=pool.next_life,
        lease=lease,
        expires=expires,
    )


def promote(event: Promote, record: Reservation, situation: Situation) -> Outcome:
    """Try to admit a request that waits; one that waited too long ends here (QUE-2, QUE-3)."""
    pool = situation.pool
    if record.state is not ReservationState.QUEUED:
        return refused(Reason.NOT_QUEUED)
    if record.waited_out(pool.clock):
        return expire(record, Reason.QUEUE_TIMEOUT, pool)
    if record.is_hopeless(pool.clock):
        return expire(record, Reason.TOO_LATE, pool)
    if not situation.tenant.covers(record.bound):
        return refused(Reason.BUDGET)
    shortage = _shortage(record.bound, situation)
    if shortage is not Reason.NONE:
        return refused(shortage)
    admitted = changed(record, state=ReservationState.RESERVED, lease=pool.clock + event.lease)
    return Outcome(Decision.ADMITTED, Reason.NONE, admitted, Posting(charged=record.bound, queued=-1))
