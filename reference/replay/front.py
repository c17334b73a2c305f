"""The gateways' side of a replay: offers requests to the ledger, and keeps count of what became of them."""

import hashlib
from collections import Counter, deque
from collections.abc import Callable, Iterable
from enum import Enum

from attrs import define

from kvescrow.reference.ledger import (
    Admission,
    LedgerReply,
    MemoryLedger,
    Recorder,
)
from kvescrow.reference.ledger.port import key_of
from kvescrow.reference.receipts import Keyring
from kvescrow.reference.replay.config import ReplayConfig
from kvescrow.reference.replay.fault import ReplayFault
from kvescrow.reference.replay.measures import TimeWeighted
from kvescrow.reference.replay.shape import Shape, least_service, ledger_config
from kvescrow.reference.traces import Trace, TraceRequest
from kvescrow.spec.vocabulary import (
    Cancel,
    Decision,
    Key,
    LedgerEvent,
    LedgerSnapshot,
    Reason,
    Renew,
    ReservationState,
    Reserve,
)


class Stage(Enum):
    """Where a request of the trace is, as its gateway knows."""

    COMING = "coming"
    """Not offered yet."""
    QUEUED = "queued"
    """Waits for capacity and holds nothing."""
    ADMITTED = "admitted"
    """Charged; waits for a place in the batch."""
    RUNNING = "running"
    """Started by the worker; charged."""
    REFUSED = "refused"
    """Never admitted: the ledger said why at once."""
    EXPIRED = "expired"
    """Never started: it waited its maximum wait, or its useful life away."""
    CANCELLED = "cancelled"
    """Ended by an injected cancel."""
    COMPLETED = "completed"
    """Ended with its whole output."""


CHARGED = frozenset({Stage.ADMITTED, Stage.RUNNING})
LIVE = CHARGED | {Stage.QUEUED}
ENDS = {ReservationState.CANCELLED: Stage.CANCELLED, ReservationState.COMPLETED: Stage.COMPLETED}


@define(eq=False)
class Offer:
    """One request of the trace on its way."""

    request: TraceRequest
    key: Key
    amount: int
    """Tokens reserved."""
    stage: Stage = Stage.COMING
    life: int = 0


class Front:
    """Speaks to the ledger for all gateways and the worker.

    `submit` is the one way there. Whatever an event sets off besides, such as the promotion of a request that
    waited, is taken in with it.
    """

    def __init__(
        self,
        trace: Trace,
        config: ReplayConfig,
        shape: Shape,
        keyring: Keyring,
        clock: Callable[[], int],
        recorder: Recorder | None,
    ) -> None:
        """Open a ledger for `trace`; `recorder` sees each of its decisions."""
        self._config = config
        self._clock = clock
        self._offers = {offer.key: offer for offer in (_offer(request, shape) for request in trace.requests)}
        self._ledger = MemoryLedger(
            ledger_config(trace, config, shape), keyring=keyring, clock=clock, recorder=recorder
        )
        self._admission = Admission(self._ledger, lease=config.times.lease)
        self.admitted: deque[Offer] = deque()
        """Waits for a place in the batch, first come first."""
        self.ended: Counter[Stage] = Counter()
        self.refused: Counter[Reason] = Counter()
        self.expired: Counter[Reason] = Counter()
        self.late_cancels = 0
        self.active = TimeWeighted()
        """Tokens charged."""
        self.waits: list[int] = []
        """Microseconds from arrival to admission, of each request that was admitted."""

    @property
    def offers(self) -> Iterable[Offer]:
        """Every request of the trace, in order of arrival."""
        return self._offers.values()

    @property
    def unfinished(self) -> int:
        """Requests that are still to come or under way."""
        return len(self._offers) - self.ended.total()

    def submit(self, event: LedgerEvent) -> LedgerReply:
        """Submit `event` and take in what it comes to."""
        served = self._admission.submit(event)
        self._take(event, served.reply)
        for each in served.follow_ups:
            self._take(each.event, each.reply)
        return served.reply

    def advance(self) -> None:
        """Do what time has made due."""
        for each in self._admission.advance():
            self._take(each.event, each.reply)

    def offer(self, offer: Offer) -> int | None:
        """Offer a request. Where it has to wait, return when its wait ends at the latest."""
        now, times, request = self._clock(), self._config.times, offer.request
        least = least_service(request, self._config.cost.model)
        self.submit(
            Reserve(
                offer.key,
                amount=offer.amount,
                digest=hashlib.sha256(repr(request).encode()).hexdigest(),
                deadline=now + times.deadline,
                least_service=least,
                max_wait=times.queue_wait,
                lease=times.lease,
            )
        )
        if offer.stage is not Stage.QUEUED:
            return None
        return now + min(times.queue_wait, times.deadline - least + 1)

    def cancel(self, offer: Offer) -> LedgerReply:
        """Ask that `offer` ends; a cancel that finds nothing to end is counted as late."""
        self.late_cancels += offer.stage not in LIVE
        return self.submit(Cancel(offer.key, offer.life))

    def renew(self, offer: Offer) -> None:
        """Keep the lease of an admitted request that waits for its start."""
        self.submit(Renew(offer.key, offer.life, lease=self._config.times.lease))

    def snapshot(self) -> LedgerSnapshot:
        """Return the state of the ledger."""
        return self._ledger.snapshot()

    # --- what became of it --------------------------------------------------------------------------------------

    def _take(self, event: LedgerEvent, reply: LedgerReply) -> None:
        key = key_of(event)
        if key is None or reply.state is None:
            return
        offer = self._offers[key]
        match reply.decision:
            case Decision.ADMITTED:
                self._admit(offer, reply)
            case Decision.QUEUED:
                offer.stage, offer.life = Stage.QUEUED, reply.life
            case Decision.STARTED:
                offer.stage = Stage.RUNNING
            case Decision.REFUSED if offer.stage is Stage.COMING:
                self.refused[reply.reason] += 1
                self._end(offer, Stage.REFUSED)
            case Decision.EXPIRED:
                self.expired[reply.reason] += 1
                self._end(offer, Stage.EXPIRED)
            case Decision.RELEASED:
                self._end(offer, ENDS[reply.state])
            case Decision.SUSPECTED:
                raise ReplayFault(f"{offer.key}: its lease ran out although its owner renews it")
            case _:
                return

    def _admit(self, offer: Offer, reply: LedgerReply) -> None:
        now = self._clock()
        offer.stage, offer.life = Stage.ADMITTED, reply.life
        self.active.change(now, offer.amount)
        self.waits.append(now - offer.request.arrival)
        self.admitted.append(offer)

    def _end(self, offer: Offer, stage: Stage) -> None:
        if offer.stage is Stage.ADMITTED:
            self.admitted.remove(offer)
        if offer.stage in CHARGED:
            self.active.change(self._clock(), -offer.amount)
        offer.stage = stage
        self.ended[stage] += 1


def _offer(request: TraceRequest, shape: Shape) -> Offer:
    return Offer(request, Key(request.tenant, request.request), shape.amount(request))
