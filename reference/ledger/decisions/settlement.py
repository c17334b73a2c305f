"""How a reservation leaves the books: what it held goes back once, and what it used is billed (LIF-4, GRO-4)."""

from kvescrow.reference.ledger.records import Outcome, PoolAccount, Posting, Reservation, changed
from kvescrow.spec.vocabulary import Decision, Reason, ReservationState


def expire(record: Reservation, reason: Reason, pool: PoolAccount) -> Outcome:
    """End a reservation that never ran; give back what it held, or its place in the queue."""
    return _end_unstarted(record, ReservationState.EXPIRED, Decision.EXPIRED, reason, pool)


def withdraw(record: Reservation, pool: PoolAccount) -> Outcome:
    """End a cancelled reservation that never ran (LIF-2)."""
    return _end_unstarted(record, ReservationState.CANCELLED, Decision.RELEASED, Reason.NONE, pool)


def _end_unstarted(
    record: Reservation, state: ReservationState, decision: Decision, reason: Reason, pool: PoolAccount
) -> Outcome:
    ended = changed(record, state=state, retained=pool.clock + pool.retention)
    left_queue = record.state is ReservationState.QUEUED
    return Outcome(decision, reason, ended, Posting(charged=-record.charged, queued=-1 if left_queue else 0))


def settle(
    record: Reservation, state: ReservationState, used: int, pool: PoolAccount, reason: Reason = Reason.NONE
) -> Outcome:
    """End work whose stop is confirmed: release the whole bound, bill `used` up to it, record what is above."""
    overrun = max(0, used - record.bound)
    ended = changed(
        record,
        state=state,
        used=used,
        overrun=max(record.overrun, overrun),
        retained=pool.clock + pool.retention,
    )
    return Outcome(Decision.RELEASED, reason, ended, _settlement(record, used))


def requeue(record: Reservation, used: int, reason: Reason = Reason.NONE) -> Outcome:
    """Bill preempted work whose stop is confirmed, and let it wait again with nothing held (LIF-9, QUE-6).

    Owner and generation stay on record, so that a second receipt of the same stop is recognised (REC-3).
    """
    waiting = changed(
        record,
        state=ReservationState.QUEUED,
        used=0,
        overrun=0,
        lease=0,
        expires=record.deadline,
    )
    return Outcome(Decision.REQUEUED, reason, waiting, _settlement(record, used, queued=1))


def _settlement(record: Reservation, used: int, queued: int = 0) -> Posting:
    return Posting(
        charged=-record.bound,
        spent=min(used, record.bound),
        overrun=max(0, used - record.bound),
        queued=queued,
    )
