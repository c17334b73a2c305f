"""The life of admitted work: start, the requests to stop it, the proofs that it stopped, and forgetting (LIF, REC)."""

from kvescrow.reference.ledger.decisions.settlement import expire, requeue, settle, withdraw
from kvescrow.reference.ledger.records import RECORDED, Outcome, PoolAccount, Reservation, changed, refused
from kvescrow.spec.vocabulary import (
    OWNED_STATES,
    Cancel,
    Decision,
    Fence,
    Finish,
    ForceRelease,
    Preempt,
    Reason,
    ReservationState,
    Start,
    StopOutcome,
)

S = ReservationState


def start(event: Start, record: Reservation, pool: PoolAccount) -> Outcome:
    """Give the work to an owner under a new generation: the commit point before any launch (LIF-2)."""
    if event.life != record.life:
        return refused(Reason.STALE_LIFE)
    match record.state:
        case S.RESERVED if record.lease_ran_out(pool.clock):
            return expire(record, Reason.LEASE_EXPIRED, pool)
        case S.RESERVED:
            running = changed(
                record,
                state=S.RUNNING,
                owner=event.owner,
                generation=pool.next_generation,
                lease=pool.clock + event.lease,
            )
            return Outcome(Decision.STARTED, Reason.NONE, running)
        case S.RUNNING:
            return RECORDED if event.owner == record.owner else refused(Reason.NOT_OWNER)
        case S.QUEUED:
            return refused(Reason.NOT_RESERVED)
        case S.CANCELLING:
            return refused(Reason.CANCEL_ACCEPTED)
        case S.PREEMPTING:
            return refused(Reason.PREEMPT_ACCEPTED)
        case S.ORPHANED:
            return refused(Reason.SUSPECT)
        case _:
            return refused(Reason.CLOSED)


def cancel(event: Cancel, record: Reservation, pool: PoolAccount) -> Outcome:
    """End what never started; ask what runs to stop, and keep it charged until it has (LIF-2, LIF-3)."""
    if event.life != record.life:
        return refused(Reason.STALE_LIFE)
    match record.state:
        case S.QUEUED | S.RESERVED:
            return withdraw(record, pool)
        case S.RUNNING | S.PREEMPTING | S.ORPHANED:
            return Outcome(Decision.ACCEPTED, Reason.NONE, changed(record, state=S.CANCELLING))
        case _:
            return RECORDED


def preempt(event: Preempt, record: Reservation) -> Outcome:
    """Ask running work to stop and wait again (LIF-9); an accepted cancel wins (LIF-6)."""
    if record.state in (S.QUEUED, S.RESERVED):
        return refused(Reason.NOT_RUNNING)
    if record.is_terminal:
        return refused(Reason.CLOSED)
    if event.generation != record.generation:
        return refused(Reason.STALE_GENERATION)
    match record.state:
        case S.RUNNING:
            return Outcome(Decision.ACCEPTED, Reason.NONE, changed(record, state=S.PREEMPTING))
        case S.PREEMPTING:
            return RECORDED
        case S.CANCELLING:
            return refused(Reason.CANCEL_ACCEPTED)
        case _:
            return refused(Reason.SUSPECT)


def finish(event: Finish, record: Reservation, pool: PoolAccount) -> Outcome:
    """Release work on its owner's authentic receipt, once (REC-1, LIF-4, LIF-5)."""
    receipt = event.receipt
    if receipt.owner != record.owner:
        return refused(Reason.NOT_OWNER)
    if receipt.generation != record.generation:
        return refused(Reason.STALE_GENERATION)
    if record.state not in OWNED_STATES:
        return RECORDED
    # Usage never goes back: what was reported before the stop counts even where the receipt says less.
    used = max(record.used, receipt.used)
    if record.state is S.CANCELLING:
        return settle(record, S.CANCELLED, used, pool)
    if receipt.outcome is StopOutcome.COMPLETED:
        return settle(record, S.COMPLETED, used, pool)
    if record.state is S.PREEMPTING and receipt.outcome is StopOutcome.STOPPED:
        return requeue(record, used)
    return settle(record, S.FAILED, used, pool)


def fence(event: Fence, record: Reservation, pool: PoolAccount) -> Outcome:
    """Release work on proof that its owner's incarnation is gone, with the usage last reported (LEA-4)."""
    if record.state in (S.QUEUED, S.RESERVED):
        return refused(Reason.NOT_RUNNING)
    if record.is_terminal:
        return refused(Reason.CLOSED)
    if event.owner != record.owner:
        return refused(Reason.NOT_OWNER)
    match record.state:
        case S.CANCELLING:
            return settle(record, S.CANCELLED, record.used, pool, Reason.OWNER_FENCED)
        case S.PREEMPTING:
            return requeue(record, record.used, Reason.OWNER_FENCED)
        case _:
            return settle(record, S.FAILED, record.used, pool, Reason.OWNER_FENCED)


def force_release(event: ForceRelease, record: Reservation, pool: PoolAccount) -> Outcome:
    """Release silent work on an operator's word, without proof of a stop; the record then names no owner (LEA-3)."""
    if record.state in (S.QUEUED, S.RESERVED):
        return refused(Reason.NOT_RUNNING)
    if record.is_terminal:
        return refused(Reason.CLOSED)
    if event.generation != record.generation:
        return refused(Reason.STALE_GENERATION)
    if not record.lease_ran_out(pool.clock):
        return refused(Reason.LIVE)
    # Even preempted work never waits again: a second execution could meet the first.
    end = S.CANCELLED if record.state is S.CANCELLING else S.FAILED
    return settle(changed(record, owner=None), end, record.used, pool, Reason.FORCED)


def forget(record: Reservation, pool: PoolAccount) -> Outcome:
    """Drop a terminal record after its retention; until then retries find it (IDN-5, IDN-6)."""
    if not record.is_terminal:
        return refused(Reason.LIVE)
    if pool.clock < record.retained:
        return refused(Reason.RETAINED)
    return Outcome(Decision.FORGOTTEN)
