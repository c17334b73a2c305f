"""What can be wrong with a history, each fault by the name that a reader would give it."""

from enum import Enum

from attrs import frozen

from kvescrow.checks.concurrency.history import Answer
from kvescrow.spec.vocabulary import Decision, Reason
from kvescrow.spec.world.outcome import Outcome


class Fault(Enum):
    """The kinds of fault."""

    LOST = "lost"
    """A change that was acknowledged is not in the ledger (SCA-2)."""
    DOUBLED = "doubled"
    """One event was applied twice (IDN-3, LIF-5)."""
    UNASKED = "unasked"
    """The ledger has a change that nobody asked for, or had not asked for yet."""
    NOT_APPLIED_BUT_THERE = "not_applied_but_there"
    """A change of an event of which the ledger said that it could not keep it."""
    REPEATED_NUMBER = "repeated_number"
    """Two changes have one commit number."""
    MISSING_NUMBER = "missing_number"
    """No change has this commit number, though a later one was given."""
    AGAINST_TIME = "against_time"
    """An event that ended before another began stands after it in the order of commit numbers."""
    OVER_GRANTED = "over_granted"
    """Capacity was given that was not there (ADM-2, ADM-5)."""
    UNDER_GRANTED = "under_granted"
    """Capacity was refused that was there."""
    RELEASED_WITHOUT_STOP = "released_without_stop"
    """Work was released whose stop nobody confirmed (LIF-3, LEA-3)."""
    STALE_ACCEPTED = "stale_accepted"
    """An event that speaks of another life, execution or owner changed this one (IDN-5, REC-1)."""
    FORGED_ACCEPTED = "forged_accepted"
    """A proof that its signer never gave was believed (REC-1)."""
    EXPIRY_IGNORED = "expiry_ignored"
    """A time limit had passed, and the event was answered as if it had not (LEA-1, QUE-2)."""
    CHARGED_WITHOUT_WORK = "charged_without_work"
    """A counter is above what the reservations add up to (ADM-9, LIF-10)."""
    WORK_WITHOUT_CHARGE = "work_without_charge"
    """A counter is below what the reservations add up to: half of a change was applied (LIF-10)."""
    WRONG_ANSWER = "wrong_answer"
    """The tables give another answer."""
    WRONG_STATE = "wrong_state"
    """The ledger's last state is not what its changes come to."""


@frozen
class Finding:
    """One fault, and where it shows."""

    fault: Fault
    where: str
    """The call or the change."""
    what: str
    """What was found, and what the tables give."""

    def __str__(self) -> str:
        return f"{self.fault.value}: {self.where}: {self.what}"

    def as_json(self) -> dict[str, str]:
        """Return the finding as JSON values."""
        return {"fault": self.fault.value, "where": self.where, "what": self.what}


_RELEASES = {Decision.RELEASED, Decision.EXPIRED, Decision.REQUEUED}
_GRANTS = {Decision.ADMITTED, Decision.EXTENDED}
_SHORTAGES = {
    Reason.NEVER_FITS,
    Reason.BUDGET,
    Reason.TENANT_CAPACITY,
    Reason.POOL_CAPACITY,
    Reason.BEHIND_OTHERS,
    Reason.QUEUE_FULL,
}
_STALE = {Reason.STALE_GENERATION, Reason.STALE_LIFE, Reason.NOT_OWNER}
_TIME = {Reason.LEASE_EXPIRED, Reason.QUEUE_TIMEOUT, Reason.TOO_LATE, Reason.SUSPECT}


def fault_of(found: Answer, expected: Outcome) -> Fault:
    """Return the name of the fault of an answer that should have been `expected`."""
    if not found.changes:
        return _fault_of_question(found, expected)
    if expected.decision is Decision.RECORDED:
        return Fault.DOUBLED
    if expected.reason is Reason.FORGED:
        return Fault.FORGED_ACCEPTED
    if expected.reason in _STALE:
        return Fault.STALE_ACCEPTED
    if found.decision in _RELEASES and expected.decision not in _RELEASES:
        return Fault.RELEASED_WITHOUT_STOP
    if found.decision in _GRANTS and expected.reason in _SHORTAGES:
        return Fault.OVER_GRANTED
    if expected.decision is Decision.EXPIRED or expected.reason in _TIME:
        return Fault.EXPIRY_IGNORED
    return Fault.WRONG_ANSWER


def _fault_of_question(found: Answer, expected: Outcome) -> Fault:
    if expected.decision in (Decision.EXPIRED, Decision.SUSPECTED):
        return Fault.EXPIRY_IGNORED
    if expected.decision in _GRANTS and found.reason in _SHORTAGES:
        return Fault.UNDER_GRANTED
    return Fault.WRONG_ANSWER
