"""Requests on their way into the batch: offered, waiting, admitted, started; and those whose clients ask again."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from attrs import evolve

from kvescrow.gpu_harness.conform.client import Clients
from kvescrow.gpu_harness.conform.control import Admitted, ConformFault, Control
from kvescrow.gpu_harness.conform.settings import ESTIMATED_PART
from kvescrow.gpu_harness.conform.tally import Tally
from kvescrow.gpu_harness.conform.workload import WHILE_WAITING, Planned
from kvescrow.gpu_harness.pages import PAGE_LENGTH
from kvescrow.spec.vocabulary import Decision, Key

Progress = Callable[[int, int], None]
"""Sees how many requests have ended, of how many."""


def whole_pages(tokens: int) -> int:
    """`tokens` rounded up to whole pages, in tokens."""
    return -(-tokens // PAGE_LENGTH) * PAGE_LENGTH


def again_of(key: Key) -> Key:
    """Return the name under which a client asks again for what it asked for under `key`."""
    return Key(key.tenant, f"{key.request}/again")


class Arrivals:
    """The requests of a run that are not in the batch."""

    def __init__(
        self,
        planned: Sequence[Planned],
        control: Control,
        clients: Clients,
        tally: Tally,
        *,
        growth: bool,
        progress: Progress | None,
    ) -> None:
        self._coming, self._by_key = deque(planned), {each.key: each for each in planned}
        self._control, self._clients, self._tally = control, clients, tally
        self._growth, self._progress = growth, progress
        self._leaving: list[Admitted] = []
        """Requests in the queue whose clients will cancel them there."""
        self._ended = 0

    @property
    def keys(self) -> Iterable[Key]:
        """All keys of the run so far."""
        return self._by_key.keys()

    @property
    def left(self) -> int:
        """Requests that have not ended."""
        return len(self._by_key) - self._ended

    @property
    def next_arrival(self) -> int | None:
        """When the next request comes, in microseconds; None: no more do."""
        return self._coming[0].arrival if self._coming else None

    def bound(self, planned: Planned) -> int:
        """Tokens that are reserved at first: the worst case (ADM-4), or with growth an estimate (GRO-1)."""
        output = -(-planned.output // ESTIMATED_PART) if self._growth else planned.output
        return whole_pages(len(planned.prompt) + output)

    def offer(self, now: int) -> None:
        """Let clients cancel what waits, and reserve for whoever has come by `now`."""
        reserved = {each.key for each in self._control.admitted}
        for admitted in self._leaving:
            reply = self._control.cancel(admitted.key, admitted.life)
            if reply.decision is not Decision.RELEASED:
                raise ConformFault(f"{admitted.key}: waits, but its cancel was answered {reply.decision.value}")
            self._clients.cancel_accepted(admitted.key)
            self._tally.cancelled_reserved += admitted.key in reserved
            self._tally.cancelled_queued += admitted.key not in reserved
            self.ended()
        self._leaving.clear()
        while self._coming and self._coming[0].arrival <= now:
            planned = self._coming.popleft()
            reply = self._control.reserve(planned, self.bound(planned))
            if reply.decision not in (Decision.ADMITTED, Decision.QUEUED):
                raise ConformFault(f"{planned.key}: {reply.decision.value} {reply.reason.value}")
            if planned.cancel_at == WHILE_WAITING:
                self._leaving.append(Admitted(planned.key, reply.life))

    def first_admitted(self) -> tuple[Planned, Admitted] | None:
        """The first of the admitted that may start."""
        leaving = {each.key for each in self._leaving}
        for admitted in self._control.admitted:
            if admitted.key not in leaving:
                return self._by_key[admitted.key], admitted
        return None

    def ended(self) -> None:
        """A request has ended, in whatever way."""
        self._ended += 1
        if self._progress is not None:
            self._progress(self._ended, len(self._by_key))

    def ask_again(self, lost: Sequence[Planned], now: int) -> None:
        """Clients whose requests failed ask again, under a new name: a failed key is taken (IDN-3)."""
        for planned in lost:
            again = evolve(planned, key=again_of(planned.key), arrival=now)
            self._by_key[again.key] = again
            self._coming.appendleft(again)
