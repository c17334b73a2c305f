"""The admission queue as vectors drive it: a pool that answers for heads, and time in whole seconds."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from attrs import define, field

from kvescrow.reference.scheduler.fair import FairQueue, Room, Waiting
from kvescrow.spec.vocabulary import Key, Reason

FOREVER = 10**9
CLASS = "class"

QueueOf = Callable[[Mapping[str, int]], FairQueue]
"""Build a queue of one class whose tenants have these weights; the others have weight 1."""


@define(eq=False)
class Site:
    """A queue before a pool of `size` units."""

    queue: FairQueue
    size: int
    held: list[Waiting] = field(factory=list)
    joined: int = 0

    def waits(self, tenant: str, amount: int = 1, *, expires: int = FOREVER, latest: int = FOREVER) -> str:
        """Let one more request of `tenant` wait, and return its name."""
        self.joined += 1
        name = f"{tenant}{self.joined}"
        assert self.queue.join(Waiting(Key(tenant, name), amount, expires, latest)) is Reason.NONE
        return name

    def admits(self, now: int = 0) -> list[Waiting]:
        """Return what the pool has room for now, in the queue's order; it is held from then on."""
        return self.queue.dispatch(now, self._ask)

    def admits_one(self) -> Waiting:
        """Return the one that is admitted where only one can be."""
        before = len(self.held)
        (admitted,) = self.queue.dispatch(0, lambda each: Room.NO_ROOM if self.held[before:] else self._ask(each))
        return admitted

    def finishes_all(self) -> None:
        """Give everything back."""
        self.held.clear()

    def _ask(self, request: Waiting) -> Room:
        if sum(each.amount for each in self.held) + request.amount > self.size:
            return Room.NO_ROOM
        self.held.append(request)
        return Room.ADMITTED
