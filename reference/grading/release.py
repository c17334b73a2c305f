"""The release of one candidate, from its baseline to shipped or rolled back (REL-2 to REL-4).

Only a passed look lets the candidate be shipped. Whatever does not decide holds, for a limited time. A failure is
final: nothing new is granted from that moment on, and the way back is taken step by step.
"""

from typing import Any

from attrs import define, evolve, frozen

from kvescrow.spec.vocabulary import Decision, GradeVerdict, Reason, ReleaseSnapshot, ReleaseState


@frozen
class ReleasePlan:
    """What is fixed before the run."""

    looks: int
    """How often the evidence is looked at; at least 1. The stated error rate holds for these."""
    limit: int
    """Microseconds from the canary's start until it has failed for want of a decision; at least 1."""


@frozen
class ReleaseReply:
    """What was decided, and why."""

    decision: Decision
    reason: Reason = Reason.NONE


WAY_BACK = (
    ReleaseState.FAILED,
    ReleaseState.FENCED,
    ReleaseState.DRAINED,
    ReleaseState.VERIFIED,
    ReleaseState.ROLLED_BACK,
)
"""In this order, and nothing else follows a failure."""
WAITING = frozenset({ReleaseState.CANARY, ReleaseState.HOLDING})
SERVING = WAITING | {ReleaseState.PASSED, ReleaseState.SHIPPED}

RECORDED = ReleaseReply(Decision.RECORDED)
ROLLBACK = ReleaseReply(Decision.ROLLBACK)


def _refused(reason: Reason) -> ReleaseReply:
    return ReleaseReply(Decision.REFUSED, reason)


@define(eq=False)
class ReleaseProcess:
    """One release. It holds no lock and keeps no time: `tick` is the only clock."""

    plan: ReleasePlan
    now: ReleaseSnapshot

    @classmethod
    def planned(cls, plan: ReleasePlan, epoch: int) -> "ReleaseProcess":
        """Return a release that has not begun, while `epoch` is in force at the ledger."""
        blank = ReleaseSnapshot(ReleaseState.PLANNED, 0, 0, 0, False, False, epoch, 0, 0, 0)
        return cls(plan, blank)

    @property
    def has_failed(self) -> bool:
        """Whether it is on its way back, or has come back."""
        return self.now.state in WAY_BACK

    @property
    def is_serving(self) -> bool:
        """Whether the candidate may grant."""
        return self.now.state in SERVING

    # --- forward ------------------------------------------------------------------------------------------------

    def tick(self, now: int) -> ReleaseReply:
        """Move the clock to `now`, in microseconds; it never goes back."""
        if now <= self.now.clock:
            return RECORDED
        return self._move(Decision.NOTED, clock=now)

    def measure(self, requests: int) -> ReleaseReply:
        """Record that the baseline was measured with so many requests."""
        if self.now.state is not ReleaseState.PLANNED:
            return RECORDED
        if requests <= 0:
            return _refused(Reason.NO_BASELINE)
        return self._move(Decision.NOTED, state=ReleaseState.BASELINE)

    def start(self) -> ReleaseReply:
        """Let the candidate serve its share, under the epoch in force; its time limit runs from here."""
        if self.now.state is ReleaseState.PLANNED:
            return _refused(Reason.NO_BASELINE)
        if self.has_failed:
            return _refused(Reason.FAILED)
        if self.is_serving:
            return RECORDED
        return self._move(
            Decision.STARTED,
            state=ReleaseState.CANARY,
            grants=True,
            routed=True,
            under=self.now.epoch,
            until=self.now.clock + self.plan.limit,
        )

    def look(self, verdict: GradeVerdict) -> ReleaseReply:
        """Take in a planned look at the evidence so far."""
        if self.has_failed:
            return _refused(Reason.FAILED)
        if not self.is_serving:
            return _refused(Reason.NOT_CANARY)
        if self.now.state is ReleaseState.SHIPPED:
            return _refused(Reason.CLOSED)
        if verdict is GradeVerdict.FAIL:
            return self._fail()
        if self.now.looks >= self.plan.looks:
            return _refused(Reason.LOOKS_SPENT)
        looks = self.now.looks + 1
        if verdict is GradeVerdict.PASS:
            return self._move(Decision.SHIP, state=ReleaseState.PASSED, looks=looks)
        return self._move(Decision.HOLD, state=ReleaseState.HOLDING, looks=looks)

    def sweep(self) -> ReleaseReply:
        """Fail a candidate that has not passed by the end of its time limit."""
        if self.now.state in WAITING and self.now.clock >= self.now.until:
            return self._fail()
        return ReleaseReply(Decision.NOTHING_DUE)

    def ship(self, authorised: bool) -> ReleaseReply:
        """Let the candidate serve everything."""
        if self.has_failed:
            return _refused(Reason.FAILED)
        if self.now.state is ReleaseState.SHIPPED:
            return RECORDED
        if self.now.state is not ReleaseState.PASSED:
            return _refused(Reason.NOT_PASSED)
        if not authorised:
            return _refused(Reason.FORBIDDEN)
        return self._move(Decision.SHIP, state=ReleaseState.SHIPPED)

    # --- work ---------------------------------------------------------------------------------------------------

    def grant(self, epoch: int) -> ReleaseReply:
        """Admit one request of the candidate, asked for under `epoch`."""
        if self.has_failed:
            return _refused(Reason.STOPPING)
        if not self.is_serving:
            return _refused(Reason.NOT_CANARY)
        if epoch != self.now.epoch:
            return _refused(Reason.STALE_GENERATION)
        return self._move(Decision.ADMITTED, in_flight=self.now.in_flight + 1)

    def settle(self, orphan: bool) -> ReleaseReply:
        """Take in the confirmed stop of one request, in flight or marked orphaned."""
        outstanding = self.now.orphaned if orphan else self.now.in_flight
        if outstanding <= 0:
            return _refused(Reason.NOT_OUTSTANDING)
        if orphan:
            return self._move(Decision.RELEASED, orphaned=outstanding - 1)
        return self._move(Decision.RELEASED, in_flight=outstanding - 1)

    # --- back ---------------------------------------------------------------------------------------------------

    def breach(self) -> ReleaseReply:
        """Take in that an invariant was violated: the candidate has failed at the first one."""
        if self.has_failed:
            return RECORDED
        return self._fail() if self.is_serving else _refused(Reason.NOT_CANARY)

    def abandon(self, authorised: bool) -> ReleaseReply:
        """Give the candidate up."""
        return self.breach() if authorised else _refused(Reason.FORBIDDEN)

    def raise_epoch(self, epoch: int) -> ReleaseReply:
        """Put `epoch` in force, under which the candidate grants nothing."""
        early = self._not_yet(ReleaseState.FAILED, ReleaseState.FENCED)
        if early is not None:
            return early
        if epoch <= self.now.epoch:
            return _refused(Reason.STALE_GENERATION)
        return self._move(Decision.ACCEPTED, state=ReleaseState.FENCED, epoch=epoch)

    def orphan(self) -> ReleaseReply:
        """Mark what is in flight as orphaned: it stays charged until somebody proves its stop."""
        if self.now.state not in WAY_BACK[1:]:
            return _refused(Reason.OUT_OF_ORDER)
        if not self.now.in_flight:
            return RECORDED
        marked = self.now.orphaned + self.now.in_flight
        return self._move(Decision.SUSPECTED, orphaned=marked, in_flight=0)

    def drain(self) -> ReleaseReply:
        """Go on once nothing is in flight."""
        early = self._not_yet(ReleaseState.FENCED, ReleaseState.DRAINED)
        if early is not None:
            return early
        if self.now.in_flight:
            return _refused(Reason.IN_FLIGHT)
        return self._move(Decision.ACCEPTED, state=ReleaseState.DRAINED)

    def verify(self, charged: int) -> ReleaseReply:
        """Compare `charged`, the requests that the ledger charges for the candidate, with what is marked orphaned."""
        early = self._not_yet(ReleaseState.DRAINED, ReleaseState.VERIFIED)
        if early is not None:
            return early
        if charged != self.now.orphaned:
            return _refused(Reason.NOT_CONSERVED)
        return self._move(Decision.ACCEPTED, state=ReleaseState.VERIFIED)

    def switch(self) -> ReleaseReply:
        """Route everything to the baseline."""
        early = self._not_yet(ReleaseState.VERIFIED, ReleaseState.ROLLED_BACK)
        if early is not None:
            return early
        return self._move(Decision.SWITCHED, state=ReleaseState.ROLLED_BACK, routed=False)

    def _not_yet(self, wanted: ReleaseState, done: ReleaseState) -> ReleaseReply | None:
        """Return why a step of the way back is not taken from here; None where it is its turn."""
        if self.now.state is wanted:
            return None
        return RECORDED if self.now.state in WAY_BACK[WAY_BACK.index(done) :] else _refused(Reason.OUT_OF_ORDER)

    def _fail(self) -> ReleaseReply:
        self._move(Decision.ROLLBACK, state=ReleaseState.FAILED, grants=False)
        return ROLLBACK

    def _move(self, decision: Decision, **changes: Any) -> ReleaseReply:
        self.now = evolve(self.now, **changes)
        return ReleaseReply(decision)
