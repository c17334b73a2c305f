"""Leases and time limits: renewal, and what the passing of time comes to (LEA, QUE)."""

from kvescrow.reference.ledger.decisions.settlement import expire
from kvescrow.reference.ledger.records import Outcome, PoolAccount, Reservation, changed, refused
from kvescrow.spec.vocabulary import Decision, Reason, Renew, ReservationState

S = ReservationState

_NOTHING_DUE = Outcome(Decision.NOTHING_DUE)


def renew(event: Renew, record: Reservation, pool: PoolAccount) -> Outcome:
    """Prolong the gateway's lease, or the owner's; suspect work that comes back is trusted again (LEA-5)."""
    if event.life != record.life:
        return refused(Reason.STALE_LIFE)
    if record.state is S.QUEUED:
        return refused(Reason.NOT_RESERVED)
    if record.is_terminal:
        return refused(Reason.CLOSED)
    # Expiry counts from its moment, swept or not; a gateway that comes late finds its reservation gone (LEA-1).
    if record.state is S.RESERVED and record.lease_ran_out(pool.clock):
        return expire(record, Reason.LEASE_EXPIRED, pool)
    lease = max(record.lease, pool.clock + event.lease)
    if record.state is S.RESERVED:
        return Outcome(Decision.RENEWED, Reason.NONE, changed(record, lease=lease))
    if event.owner != record.owner:
        return refused(Reason.NOT_OWNER)
    if event.generation != record.generation:
        return refused(Reason.STALE_GENERATION)
    match record.state:
        case S.CANCELLING:
            return Outcome(Decision.STOP, Reason.CANCEL_ACCEPTED)
        case S.PREEMPTING:
            return Outcome(Decision.STOP, Reason.PREEMPT_ACCEPTED)
        case _:
            return Outcome(Decision.RENEWED, Reason.NONE, changed(record, state=S.RUNNING, lease=lease))


def sweep(record: Reservation, pool: PoolAccount) -> Outcome:
    """Apply the time limit of the record's state, if it has passed; time alone never releases running work."""
    match record.state:
        case S.QUEUED if record.waited_out(pool.clock):
            return expire(record, Reason.QUEUE_TIMEOUT, pool)
        case S.QUEUED if record.is_hopeless(pool.clock):
            return expire(record, Reason.TOO_LATE, pool)
        case S.RESERVED if record.lease_ran_out(pool.clock):
            return expire(record, Reason.LEASE_EXPIRED, pool)
        case S.RUNNING if record.lease_ran_out(pool.clock):
            return Outcome(Decision.SUSPECTED, Reason.NONE, changed(record, state=S.ORPHANED))
        case _:
            return _NOTHING_DUE
