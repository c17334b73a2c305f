"""The states of every entity that a table moves. Each state is written once, here."""

from enum import Enum


class ReservationState(Enum):
    """Where a reservation is in its life (LIF)."""

    ABSENT = "ABSENT"
    """No record: never seen, or forgotten after its retention."""
    QUEUED = "QUEUED"
    """Waits for capacity and holds nothing (QUE-6)."""
    RESERVED = "RESERVED"
    """Charged, not started; lapses with its gateway's lease (LEA-1)."""
    RUNNING = "RUNNING"
    """Started by an owner under a generation; charged."""
    CANCELLING = "CANCELLING"
    """A cancel was accepted; charged until the stop is confirmed, and nothing new may be launched (LIF-3)."""
    PREEMPTING = "PREEMPTING"
    """Asked to stop and go back to the queue; charged until the stop is confirmed (LIF-9)."""
    ORPHANED = "ORPHANED"
    """The owner's lease ran out; suspect, still charged, never reused on time alone (LEA-3)."""
    COMPLETED = "COMPLETED"
    """Ended with a result."""
    CANCELLED = "CANCELLED"
    """Ended by an accepted cancel."""
    FAILED = "FAILED"
    """Ended without a result: the work failed or its owner was fenced off."""
    EXPIRED = "EXPIRED"
    """Never ran: it waited too long or its gateway's lease ran out."""


CHARGED_STATES = frozenset(
    {
        ReservationState.RESERVED,
        ReservationState.RUNNING,
        ReservationState.CANCELLING,
        ReservationState.PREEMPTING,
        ReservationState.ORPHANED,
    }
)
"""States whose bound is in the active counters of pool and tenant."""

OWNED_STATES = CHARGED_STATES - {ReservationState.RESERVED}
"""States in which work may have been launched, so that only a confirmed stop releases."""

TERMINAL_STATES = frozenset(
    {
        ReservationState.COMPLETED,
        ReservationState.CANCELLED,
        ReservationState.FAILED,
        ReservationState.EXPIRED,
    }
)
"""States that absorb every event but `forget` (LIF-8)."""


class AccountState(Enum):
    """Where the accounts of a pool and its tenants are."""

    OPEN = "OPEN"
    """Configured; limits may change under live work."""


class StopOutcome(Enum):
    """What the owner says of the work in its stop receipt."""

    COMPLETED = "COMPLETED"
    """The work reached its end."""
    FAILED = "FAILED"
    """The work ended with an error."""
    STOPPED = "STOPPED"
    """The work was stopped before its end, as asked."""


class PageState(Enum):
    """Where a KV page is (PAG-2). Every page is in exactly one of these."""

    SINK = "SINK"
    """Set aside for padding rows; never handed out, never matched."""
    FREE = "FREE"
    """No content, no holder, no ticket; scrubbed."""
    PRIVATE = "PRIVATE"
    """Held by one holder, which may write it; not matchable."""
    SHARED = "SHARED"
    """Published and held by at least one holder; read-only (PAG-7)."""
    CACHED = "CACHED"
    """Published, held by nobody, touched by nothing, and so is all that follows it: evictable, leaves first."""
    DRAINING = "DRAINING"
    """Held by nobody, but a launched step or copy may still touch it (PAG-4), or a page that follows it is in use."""


class HolderState(Enum):
    """Where a holder of pages (one execution of one request) is."""

    ABSENT = "ABSENT"
    """Not admitted: it has no promise and no page."""
    ADMITTED = "ADMITTED"
    """Has a promise of pages that the pool keeps (PAG-1)."""
    CLOSED = "CLOSED"
    """Gave back its promise and its pages; a late event finds it closed."""


class ExecutionState(Enum):
    """What a worker may do for one generation of one reservation."""

    ABSENT = "ABSENT"
    """The worker never began this generation, or its receipt was acknowledged."""
    OPEN = "OPEN"
    """Steps may be launched."""
    CLOSING = "CLOSING"
    """No new launch; steps already launched may still run."""
    STOPPED = "STOPPED"
    """Nothing launched can touch its capacity; the receipt was issued (REC-2)."""


class TicketState(Enum):
    """The share of one execution in one launched step, copy or scrub."""

    ABSENT = "ABSENT"
    """Not launched."""
    LAUNCHED = "LAUNCHED"
    """May touch the pages that it lists."""
    DONE = "DONE"
    """Over, well or badly; it touches nothing any more."""


class GradeVerdict(Enum):
    """What a grade of a candidate against its baseline comes to; only PASS promotes (REL-2, REL-3)."""

    PASS = "PASS"
    """Every gate is passed at the stated confidence."""
    FAIL = "FAIL"
    """A gate is failed at the stated confidence, or an invariant was violated."""
    INCONCLUSIVE = "INCONCLUSIVE"
    """There is data, but not enough of it to decide at the stated confidence."""
    NO_DATA = "NO_DATA"
    """A gate had nothing to look at; that is neither zero nor good."""
    INVALID_RUN = "INVALID_RUN"
    """The measurement itself cannot be trusted: clocks, schedule or counts are wrong."""


class ReleaseState(Enum):
    """Where the release of one candidate is (REL-3)."""

    PLANNED = "PLANNED"
    """Nothing was measured; the candidate serves nothing."""
    BASELINE = "BASELINE"
    """The baseline was measured; the candidate serves nothing."""
    CANARY = "CANARY"
    """The candidate serves its share beside the baseline; no look has been taken."""
    HOLDING = "HOLDING"
    """The last look did not decide; the candidate goes on serving its share until the time limit."""
    PASSED = "PASSED"
    """The last look passed: the candidate may be shipped."""
    SHIPPED = "SHIPPED"
    """The candidate serves everything."""
    FAILED = "FAILED"
    """Roll back was decided: nothing new is granted. There is no way from here but back."""
    FENCED = "FENCED"
    """The epoch was raised: nothing of the candidate's epoch can be granted by anybody."""
    DRAINED = "DRAINED"
    """No work of the candidate is in flight; what could not be confirmed is marked orphaned and stays charged."""
    VERIFIED = "VERIFIED"
    """The ledger's charge equals what is accounted for."""
    ROLLED_BACK = "ROLLED_BACK"
    """The baseline serves everything again."""
