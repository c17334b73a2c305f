"""The answers that vectors expect: a decision with its reason, one name each."""

from __future__ import annotations

from attrs import frozen

from kvescrow.spec.vocabulary import Decision, Reason


@frozen
class Answer:
    """What was decided, and why."""

    decision: Decision
    reason: Reason = Reason.NONE


ADMITTED = Answer(Decision.ADMITTED)
REQUEUED = Answer(Decision.REQUEUED)
STARTED = Answer(Decision.STARTED)
EXTENDED = Answer(Decision.EXTENDED)
NOTED = Answer(Decision.NOTED)
ACCEPTED = Answer(Decision.ACCEPTED)
RELEASED = Answer(Decision.RELEASED)
RENEWED = Answer(Decision.RENEWED)
SUSPECTED = Answer(Decision.SUSPECTED)
FORGOTTEN = Answer(Decision.FORGOTTEN)
GRANTED = Answer(Decision.GRANTED)
DROPPED = Answer(Decision.DROPPED)
PUBLISHED = Answer(Decision.PUBLISHED)
LAUNCHED = Answer(Decision.LAUNCHED)
SETTLED = Answer(Decision.SETTLED)
CERTIFIED = Answer(Decision.CERTIFIED)
MISS = Answer(Decision.MISS)
RECORDED = Answer(Decision.RECORDED)
NOTHING_DUE = Answer(Decision.NOTHING_DUE)
OVERRUN = Answer(Decision.NOTED, Reason.OVERRUN)
FENCED = Answer(Decision.RELEASED, Reason.OWNER_FENCED)


def refused(reason: Reason) -> Answer:
    """The refusal for `reason`."""
    return Answer(Decision.REFUSED, reason)


def queued(reason: Reason) -> Answer:
    """It waits and holds nothing; `reason` says for what."""
    return Answer(Decision.QUEUED, reason)


def expired(reason: Reason) -> Answer:
    """It is over without having run; `reason` says which time limit passed."""
    return Answer(Decision.EXPIRED, reason)


def told_to_stop(reason: Reason) -> Answer:
    """The owner must stop; `reason` says who asked."""
    return Answer(Decision.STOP, reason)
