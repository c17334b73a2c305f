"""The reference's release process as a target."""

from kvescrow.checks.targets.protocols import ReleaseFacts, ReleaseSetup
from kvescrow.checks.targets.subject import Kind, Subject
from kvescrow.reference.grading.release import ReleasePlan, ReleaseProcess, ReleaseReply
from kvescrow.spec.vocabulary import GradeVerdict, ReleaseSnapshot


class ReferenceRelease:
    """The reference behind `ReleaseTarget`."""

    def __init__(self, process: ReleaseProcess) -> None:
        self._process = process

    def tick(self, now: int) -> ReleaseFacts:
        """Read the clock."""
        return _facts(self._process.tick(now))

    def measure(self, requests: int) -> ReleaseFacts:
        """Record a run of the baseline."""
        return _facts(self._process.measure(requests))

    def start(self) -> ReleaseFacts:
        """Let the candidate serve its share."""
        return _facts(self._process.start())

    def grant(self, epoch: int) -> ReleaseFacts:
        """Admit one request of the candidate."""
        return _facts(self._process.grant(epoch))

    def settle(self, orphan: bool) -> ReleaseFacts:
        """Confirm the stop of one request."""
        return _facts(self._process.settle(orphan))

    def look(self, verdict: GradeVerdict) -> ReleaseFacts:
        """Take in a look."""
        return _facts(self._process.look(verdict))

    def breach(self) -> ReleaseFacts:
        """Take in a violation."""
        return _facts(self._process.breach())

    def sweep(self) -> ReleaseFacts:
        """Look whether the time limit has passed."""
        return _facts(self._process.sweep())

    def ship(self, authorised: bool) -> ReleaseFacts:
        """Let the candidate serve everything."""
        return _facts(self._process.ship(authorised))

    def abandon(self, authorised: bool) -> ReleaseFacts:
        """Give the candidate up."""
        return _facts(self._process.abandon(authorised))

    def raise_epoch(self, epoch: int) -> ReleaseFacts:
        """Fence the candidate's epoch off."""
        return _facts(self._process.raise_epoch(epoch))

    def orphan(self) -> ReleaseFacts:
        """Mark what is in flight as orphaned."""
        return _facts(self._process.orphan())

    def drain(self) -> ReleaseFacts:
        """Look whether anything is in flight."""
        return _facts(self._process.drain())

    def verify(self, charged: int) -> ReleaseFacts:
        """Compare with the ledger's charge."""
        return _facts(self._process.verify(charged))

    def switch(self) -> ReleaseFacts:
        """Route everything to the baseline."""
        return _facts(self._process.switch())

    def snapshot(self) -> ReleaseSnapshot:
        """Return the state."""
        return self._process.now


def _facts(reply: ReleaseReply) -> ReleaseFacts:
    return ReleaseFacts(reply.decision, reply.reason)


def open_release(setup: ReleaseSetup) -> ReferenceRelease:
    """Open the reference's release process."""
    return ReferenceRelease(ReleaseProcess.planned(ReleasePlan(setup.looks, setup.limit), setup.epoch))


def release_subject() -> Subject:
    """The reference's release process."""
    return Subject(Kind.RELEASE, open_release)
