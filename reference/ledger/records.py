"""What a ledger keeps: reservations, the accounts of tenants and pool, and the postings that change accounts.

What is made anew for every event is a tuple with names: an attrs record of as many fields took five times as long.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from attrs import define, frozen

from kvescrow.spec.vocabulary import (
    CHARGED_STATES,
    TERMINAL_STATES,
    Decision,
    Key,
    Reason,
    ReservationState,
)


@frozen(slots=False)
class Reservation:
    """One reservation. Times are absolute microseconds, amounts in the pool's unit."""

    key: Key
    state: ReservationState
    amount: int
    """What was asked, and the key is bound to (IDN-2)."""
    digest: str
    deadline: int
    least_service: int
    bound: int
    """What is charged while the state is charged; grows from the amount (GRO-2)."""
    life: int
    used: int = 0
    overrun: int = 0
    generation: int = 0
    owner: str | None = None
    """Incarnation that started it; None where nothing has started, which equals no owner's name."""
    lease: int = 0
    expires: int = 0
    retained: int = 0
    """When a terminal record may be forgotten."""

    @property
    def charged(self) -> int:
        """What this reservation contributes to the active counters (LIF-10)."""
        return self.bound if self.state in CHARGED_STATES else 0

    @property
    def is_terminal(self) -> bool:
        """Whether only `forget` can still change it (LIF-8)."""
        return self.state in TERMINAL_STATES

    def lease_ran_out(self, clock: int) -> bool:
        """Return whether its lease has passed: at its moment, not after it (LEA-1)."""
        return self.lease <= clock

    def waited_out(self, clock: int) -> bool:
        """Return whether it has waited its maximum wait (QUE-2)."""
        return self.expires <= clock

    def is_hopeless(self, clock: int) -> bool:
        """Return whether too little time is left for useful work (QUE-3)."""
        return clock + self.least_service > self.deadline

    def due(self) -> int | None:
        """Return the first moment at which a time limit of its state has passed; None where none applies."""
        match self.state:
            case ReservationState.QUEUED:
                return min(self.expires, self.deadline - self.least_service + 1)
            case ReservationState.RESERVED | ReservationState.RUNNING:
                return self.lease
            case _:
                return self.retained if self.is_terminal else None


def changed(record: Reservation, **values: Any) -> Reservation:
    """Return `record` with other `values` of the fields they name.

    Every change of a reservation makes a new record, so this copies the dictionary that its fields lie in:
    `attrs.evolve` reads and sets them one by one, which took four times as long.
    """
    twin = object.__new__(Reservation)
    twin.__dict__.update(record.__dict__, **values)
    return twin


@define
class TenantAccount:
    """One tenant's counters. `active` and `held` are the sums over its charged reservations (LIF-10, ADM-8)."""

    limit: int
    budget: int
    queue_limit: int
    active: int = 0
    held: int = 0
    """Part of the budget held by live reservations."""
    spent: int = 0
    """Part of the budget billed."""
    overrun: int = 0
    queued: int = 0

    def covers(self, amount: int) -> bool:
        """Return whether the budget covers `amount` beside what is spent and held (ADM-8)."""
        return self.spent + self.held + amount <= self.budget

    def has_room(self, amount: int) -> bool:
        """Return whether `amount` more stays within the limit (ADM-5)."""
        return self.active + amount <= self.limit


@define
class PoolAccount:
    """The pool's counters, its clock, and the counters that identities are drawn from (IDN-5)."""

    limit: int
    retention: int
    active: int = 0
    clock: int = 0
    next_life: int = 1
    next_generation: int = 1
    seq: int = 0
    """Commit number of the last change."""

    def has_room(self, amount: int) -> bool:
        """Return whether `amount` more stays within the limit (ADM-5)."""
        return self.active + amount <= self.limit


class Situation(NamedTuple):
    """What an event finds: all that a decision may look at besides the event."""

    record: Reservation | None
    """None where the key is free."""
    tenant: TenantAccount
    """The account of its tenant; empty and without a limit where the tenant is not configured."""
    pool: PoolAccount
    vouched: bool
    """Whether the caller is authorised for a tenant that exists, or the proof authentic (ADM-3, REC-1)."""
    others_first: Callable[[], bool]
    """Tells whether an earlier request that lacks nothing but room in the pool waits (QUE-5).

    It walks the queue, so it is asked only where the answer matters.
    """


class Posting(NamedTuple):
    """What one event adds to the accounts of a tenant and, for `charged`, of the pool."""

    charged: int = 0
    """Added to the active counters of pool and tenant and to the held budget, all at once (ADM-2)."""
    spent: int = 0
    overrun: int = 0
    queued: int = 0


NO_POSTING = Posting()


class Outcome(NamedTuple):
    """What a decision comes to: an answer and, where something changes, the new record and the posting."""

    decision: Decision
    reason: Reason = Reason.NONE
    record: Reservation | None = None
    """The record after the event; None where it is unchanged or, for FORGOTTEN, gone."""
    posting: Posting = NO_POSTING

    @property
    def changes(self) -> bool:
        """Whether a record or an account of a reservation changes."""
        return self.record is not None or self.decision is Decision.FORGOTTEN


_REFUSALS = {reason: Outcome(Decision.REFUSED, reason) for reason in Reason}

RECORDED = Outcome(Decision.RECORDED)


def refused(reason: Reason) -> Outcome:
    """Return the refusal for `reason`; it changes nothing (ADM-9)."""
    return _REFUSALS[reason]
