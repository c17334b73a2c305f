"""The front of a ledger that also does what has become due, so that no change of the queue's head is missed (QUE-4)."""

from collections.abc import Callable, Sequence

from attrs import frozen

from kvescrow.reference.ledger.port import Ledger, LedgerReply
from kvescrow.spec.vocabulary import (
    MICROSECONDS_PER_SECOND,
    Decision,
    Key,
    LedgerEvent,
    LedgerEventKind,
    Promote,
    Reason,
    event_name,
)

GATEWAY_LEASE = 30 * MICROSECONDS_PER_SECOND
"""How long a promoted reservation waits for its start: long enough for a gateway to hear of it and act."""

_MAKES_ROOM = {Decision.RELEASED, Decision.EXPIRED, Decision.REQUEUED}
_LACKS_ROOM = {
    Reason.TENANT_CAPACITY,
    Reason.POOL_CAPACITY,
    Reason.BUDGET,
    Reason.BEHIND_OTHERS,
    Reason.QUEUE_FULL,
}
_LIMITS = {LedgerEventKind.SET_POOL_LIMIT, LedgerEventKind.SET_TENANT_LIMIT, LedgerEventKind.SET_BUDGET}


@frozen
class FollowUp:
    """An event that the front submitted by itself, and its reply."""

    event: LedgerEvent
    reply: LedgerReply


@frozen
class Served:
    """The reply to an event, and what followed from it, in order."""

    reply: LedgerReply
    follow_ups: tuple[FollowUp, ...]
    cleared: tuple[FollowUp, ...] = ()
    """What was done before the reply, since it would have been a refusal for want of what had lapsed."""


class Admission:
    """Submits events, then applies the time limits that have passed and promotes whoever can be admitted now.

    Each follow-up is an ordinary event of its own, so the front adds no way to change the ledger. Several fronts may
    share one ledger: a promotion or sweep that another did first is answered as such and does nothing.
    """

    def __init__(
        self, ledger: Ledger, *, lease: int = GATEWAY_LEASE, may_promote: Callable[[Key], bool] | None = None
    ) -> None:
        """Stand before `ledger`; a promoted reservation gets `lease` microseconds until its start.

        A policy that says when one more may join gives `may_promote`: nobody is asked to promote from the first on
        whom it denies.
        """
        self._ledger = ledger
        self._lease = lease
        self._may_promote = may_promote

    def submit(self, event: LedgerEvent) -> Served:
        """Decide `event` and, where it changed something, do what became due.

        What has lapsed refuses nobody: before a refusal for want of room, the time limits that have passed are applied,
        whoever waits is served first, and then the event is decided once more (LEA-1).
        """
        reply = self._ledger.submit(event)
        cleared: tuple[FollowUp, ...] = ()
        if reply.decision is Decision.REFUSED and reply.reason in _LACKS_ROOM:
            cleared = self._follow_up(False)
            if _made_room(cleared):
                reply = self._ledger.submit(event)
        if reply.decision.changes_nothing:
            return Served(reply, (), cleared)
        return Served(reply, self._follow_up(_may_admit(event, reply)), cleared)

    def advance(self) -> tuple[FollowUp, ...]:
        """Do what has become due by the passing of time; call it now and then, since time sends no event."""
        return self._follow_up(False)

    def _follow_up(self, made_room: bool) -> tuple[FollowUp, ...]:
        swept = self._sweep()
        made_room = made_room or _made_room(swept)
        return (*swept, *(self.promote() if made_room else ()))

    def _sweep(self) -> list[FollowUp]:
        done: list[FollowUp] = []
        # A sweep may make another due at once: a record that ends without retention may be forgotten.
        while events := self._ledger.due():
            step = [self._submit(event) for event in events]
            done += step
            if all(each.reply.decision.changes_nothing for each in step):
                break
        return done

    def promote(self) -> list[FollowUp]:
        """Offer the free capacity along the queue, once: a promotion never makes room for one before it."""
        done: list[FollowUp] = []
        for key in self._ledger.waiting():
            if self._may_promote is not None and not self._may_promote(key):
                break
            step = self._submit(Promote(key, lease=self._lease))
            done.append(step)
            # This one lacks nothing but room in the pool, so nobody may pass it.
            if step.reply.reason in (Reason.POOL_CAPACITY, Reason.BEHIND_OTHERS):
                break
        return done

    def _submit(self, event: LedgerEvent) -> FollowUp:
        return FollowUp(event, self._ledger.submit(event))


def _made_room(done: Sequence[FollowUp]) -> bool:
    return any(each.reply.decision in _MAKES_ROOM for each in done)


def _may_admit(event: LedgerEvent, reply: LedgerReply) -> bool:
    """Return whether the change of `event` may let someone out of the queue."""
    return reply.decision in _MAKES_ROOM or event_name(event) in _LIMITS
