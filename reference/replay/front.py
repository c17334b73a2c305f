"""The gateways' side of a replay: offers requests to the ledger, and keeps count of what became of them.

Where a configuration names an order of its own, requests wait in that queue, and the ledger is asked for the head:
a refusal there is the answer of its tables. Otherwise the ledger's own queue serves, first come first served. Work
that was stopped for memory always waits in the ledger, before everyone else.
"""

import hashlib
from collections import Counter, deque
from collections.abc import Callable, Iterable

from kvescrow.reference.ledger import Admission, LedgerReply, MemoryLedger, Recorder
from kvescrow.reference.ledger.port import key_of
from kvescrow.reference.receipts import Keyring
from kvescrow.reference.replay.config import ReplayConfig
from kvescrow.reference.replay.fault import ReplayFault
from kvescrow.reference.replay.measures import Timeline
from kvescrow.reference.replay.offers import CHARGED, LIVE, Offer, Stage
from kvescrow.reference.replay.queueing import RequestWindows, policy_of, queue_of, watch_of
from kvescrow.reference.replay.shape import Shape, least_service, ledger_config
from kvescrow.reference.scheduler.fair import Room, Waiting
from kvescrow.reference.scheduler.reservations import Pages
from kvescrow.reference.traces import Trace, TraceRequest
from kvescrow.spec.vocabulary import (
    Cancel,
    Decision,
    Extend,
    Finish,
    Key,
    LedgerEvent,
    LedgerSnapshot,
    Preempt,
    Reason,
    Renew,
    ReservationState,
    Reserve,
)

ENDS = {
    ReservationState.CANCELLED: Stage.CANCELLED,
    ReservationState.COMPLETED: Stage.COMPLETED,
    ReservationState.FAILED: Stage.FAILED,
}
MADE_ROOM = frozenset({Decision.RELEASED, Decision.EXPIRED, Decision.REQUEUED})
ROOM = {
    Reason.TENANT_CAPACITY: Room.OWN_LIMIT,
    Reason.POOL_CAPACITY: Room.NO_ROOM,
    Reason.BEHIND_OTHERS: Room.NO_ROOM,
}
"""What a refusal at the head of the queue says; any other refusal is final."""
REQUEST_RATE = "REQUEST_RATE"
"""Refused by the tenant's window of admitted requests, before the ledger was asked."""


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
        self._shape = shape
        self._clock = clock
        self.policy = policy_of(config, Pages(shape.page_length, shape.tokens))
        self._offers = {offer.key: offer for offer in (self._offer(request) for request in trace.requests)}
        tenants = {offer.tenant for offer in self._offers.values()}
        ledger = ledger_config(trace, config, shape)
        self._limits = {name: tenant.limit for name, tenant in ledger.tenants.items()}
        self.watch = watch_of(config, tenants)
        self._queue = queue_of(config, tenants, self.watch)
        self._windows = RequestWindows(config)
        self._ledger = MemoryLedger(ledger, keyring=keyring, clock=clock, recorder=recorder)
        self._admission = Admission(self._ledger, lease=config.times.lease, may_promote=self._may_promote)
        self.admitted: deque[Offer] = deque()
        """Waits for a place in the batch, first come first."""
        self.holdings: dict[Key, Offer] = {}
        """Everything that is charged, in order of admission."""
        self.ended: Counter[Stage] = Counter()
        self.refused: Counter[str] = Counter()
        self.expired: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.late_cancels = 0
        self.preemptions = 0
        self.denials = 0
        """Growths that the ledger refused."""
        self.releases = 0
        """How often capacity came back: until then a growth that waits has no reason to ask again."""
        self.growing: set[Key] = set()
        """Work that waits for a growth: until it has it, nobody may join."""
        self.active = Timeline()
        """Tokens charged."""
        self._settling = False

    def _offer(self, request: TraceRequest) -> Offer:
        name = self._config.class_of(request.tenant)
        deadline = request.arrival + (self._config.classes[name].deadline or self._config.times.deadline)
        return Offer(
            request,
            Key(request.tenant, request.request),
            name,
            allowed=self._shape.allowed(request),
            bound=self._shape.amount(request),
            latest=deadline - least_service(request, self._config.cost.model),
        )

    @property
    def offers(self) -> Iterable[Offer]:
        """Every request of the trace, in order of arrival."""
        return self._offers.values()

    @property
    def unfinished(self) -> int:
        """Requests that are still to come or under way."""
        return len(self._offers) - self.ended.total()

    @property
    def free(self) -> int:
        """Tokens of the pool that are not charged."""
        return self._shape.tokens - self.active.value

    @property
    def largest(self) -> int:
        """The largest request that waited in the admission queue: E of the fairness bounds."""
        return self._queue.largest if self._queue is not None else 0

    def submit(self, event: LedgerEvent) -> LedgerReply:
        """Submit `event` and take in what it comes to."""
        reply = self._submit(event)
        self.settle()
        return reply

    def _submit(self, event: LedgerEvent) -> LedgerReply:
        served = self._admission.submit(event)
        self._take(event, served.reply)
        for each in served.follow_ups:
            self._take(each.event, each.reply)
        return served.reply

    def advance(self) -> None:
        """Do what time has made due."""
        for each in self._admission.advance():
            self._take(each.event, each.reply)
        self.settle()

    # --- arrivals and the queue -----------------------------------------------------------------------------------

    def offer(self, offer: Offer) -> int | None:
        """Offer a request. Where it has to wait, return when its wait ends at the latest."""
        now = self._clock()
        if not self._windows.admits(offer.tenant, now):
            self.refused[REQUEST_RATE] += 1
            self._end(offer, Stage.REFUSED, REQUEST_RATE)
            return None
        if self._queue is None or self._is_hopeless(offer, now):
            self.submit(self._reserve(offer, offer.bound, self._patience(offer) if self._queue is None else 0))
            return now + min(self._patience(offer), offer.latest - now + 1) if offer.stage is Stage.QUEUED else None
        waiting = Waiting(offer.key, self._reserved(offer), now + self._patience(offer), offer.latest)
        if (reason := self._queue.join(waiting)) is not Reason.NONE:
            self.refused[reason.value] += 1
            self._end(offer, Stage.REFUSED, reason.value)
            return None
        offer.stage, offer.bound = Stage.WAITING, waiting.amount
        self.settle()
        return waiting.due

    def _is_hopeless(self, offer: Offer, now: int) -> bool:
        """Return whether the ledger refuses it at once: its worst case never fits, or it comes too late."""
        return offer.bound > min(self._shape.tokens, self._limits[offer.tenant]) or now > offer.latest

    def _patience(self, offer: Offer) -> int:
        wait = self._config.classes[offer.class_name].queue_wait
        return self._config.times.queue_wait if wait is None else wait

    def _reserved(self, offer: Offer) -> int:
        return self._shape.pages_of(self.policy.reserve(offer)) * self._shape.page_length

    def _reserve(self, offer: Offer, amount: int, max_wait: int) -> Reserve:
        request, model = offer.request, self._config.cost.model
        least = least_service(request, model)
        return Reserve(
            offer.key,
            amount=amount,
            digest=hashlib.sha256(repr(request).encode()).hexdigest(),
            deadline=offer.latest + least,
            least_service=least,
            max_wait=max_wait,
            lease=self._config.times.lease,
        )

    def settle(self) -> None:
        """Offer what is free: to work that was stopped, then along the queue (QUE-4)."""
        if self._queue is None or self._settling:
            return
        self._settling = True
        now = self._clock()
        for waiting, reason in self._queue.expire(now):
            self.expired[reason.value] += 1
            self._end(self._offers[waiting.key], Stage.EXPIRED, reason.value)
        self._settling = False
        for each in self._admission.promote():
            self._take(each.event, each.reply)
        if not self._ledger.waiting():
            self._settling = True
            self._queue.dispatch(now, self._ask)
            self._settling = False

    def hold(self) -> None:
        """Admit nobody until `let_go`: what is freed meanwhile is for work that grows."""
        self._settling = True

    def let_go(self) -> None:
        """Admit again."""
        self._settling = False
        self.settle()

    def _ask(self, waiting: Waiting) -> Room:
        """Ask the policy, then the ledger, for the head of the queue."""
        offer = self._offers[waiting.key]
        if not self._may_own(offer):
            return Room.OWN_LIMIT
        amount = self._reserved(offer)
        if amount > self.free or not self._may_join(offer, amount):
            return Room.NO_ROOM
        reply = self._submit(self._reserve(offer, amount, 0))
        if reply.decision is Decision.ADMITTED:
            # What was learned since it joined has changed its estimate.
            self._adjust(offer, amount - waiting.amount)
            return Room.ADMITTED
        room = ROOM.get(reply.reason, Room.REFUSED)
        if room is Room.REFUSED:
            self.refused[reply.reason.value] += 1
            self._end(offer, Stage.REFUSED, reply.reason.value)
        return room

    def _may_own(self, offer: Offer) -> bool:
        """Return whether its tenant's limit covers the worst case of all that it has: then it blocks no growth."""
        own = sum(each.maximum for each in self.holdings.values() if each.tenant == offer.tenant)
        return own + offer.maximum <= self._limits[offer.tenant] or not own

    def _may_join(self, offer: Offer, amount: int) -> bool:
        places = self._config.scheduler.sequences - len(self.holdings)
        return (
            places > 0
            and not self.growing
            and self.policy.admits(offer, amount, tuple(self.holdings.values()), self.free)
        )

    def _may_promote(self, key: Key) -> bool:
        """Return whether the ledger may be asked to promote `key`: the policy's word, where there is a queue."""
        if self._queue is None:
            return True
        offer = self._offers[key]
        return not self._settling and offer.bound <= self.free and self._may_join(offer, offer.bound)

    # --- what becomes of requests -----------------------------------------------------------------------------------

    def cancel(self, offer: Offer) -> bool:
        """Ask that `offer` ends, and return whether the worker has to stop it. One that is over is counted as late."""
        if offer.stage is Stage.WAITING and self._queue is not None:
            self._queue.leave(offer.key)
            self._end(offer, Stage.CANCELLED)
            self.settle()
            return False
        self.late_cancels += offer.stage not in LIVE
        return self.submit(Cancel(offer.key, offer.life)).decision is Decision.ACCEPTED

    def preempt(self, offer: Offer, generation: int) -> None:
        """Ask that `offer` stops for memory and waits again (LIF-9)."""
        reply = self._submit(Preempt(offer.key, generation))
        if reply.decision is not Decision.ACCEPTED:
            raise ReplayFault(f"{offer.key}: it runs, but cannot be preempted: {reply.reason.value}")
        self.preemptions += 1
        offer.preempted = True

    def renew(self, offer: Offer) -> None:
        """Keep the lease of an admitted request that waits for its start."""
        self.submit(Renew(offer.key, offer.life, lease=self._config.times.lease))

    def snapshot(self) -> LedgerSnapshot:
        """Return the ledger's state."""
        return self._ledger.snapshot()

    def _take(self, event: LedgerEvent, reply: LedgerReply) -> None:
        key = key_of(event)
        if key is None or reply.state is None:
            return
        offer = self._offers[key]
        match reply.decision:
            case Decision.ADMITTED:
                self._admit(offer, reply)
            case Decision.QUEUED:
                offer.stage, offer.life, offer.reason = Stage.QUEUED, reply.life, reply.reason.value
            case Decision.REQUEUED:
                self._discharge(offer, used_of(event))
                offer.stage = Stage.QUEUED
            case Decision.STARTED:
                offer.starts(self._clock())
            case Decision.EXTENDED:
                self._charge(offer, reply.bound - offer.bound)
                offer.bound = reply.bound
            case Decision.REFUSED if isinstance(event, Extend):
                self.denials += 1
            case Decision.REFUSED if offer.stage is Stage.COMING:
                self.refused[reply.reason.value] += 1
                self._end(offer, Stage.REFUSED, reply.reason.value)
            case Decision.EXPIRED:
                self.expired[reply.reason.value] += 1
                self._discharge(offer, 0)
                self._end(offer, Stage.EXPIRED, reply.reason.value)
            case Decision.RELEASED:
                self._discharge(offer, used_of(event))
                self._end(offer, ENDS[reply.state])
            case Decision.SUSPECTED:
                raise ReplayFault(f"{offer.key}: its lease ran out although its owner renews it")
            case _:
                return

    def _admit(self, offer: Offer, reply: LedgerReply) -> None:
        promoted = offer.stage is Stage.QUEUED
        offer.stage, offer.life, offer.bound = Stage.ADMITTED, reply.life, reply.bound
        self.active.change(self._clock(), offer.bound)
        if promoted:
            self._adjust(offer, offer.bound)
        if offer.admitted is None:
            offer.admitted, offer.reserved = self._clock(), offer.bound
        self.holdings[offer.key] = offer
        self.admitted.append(offer)

    def _charge(self, offer: Offer, by: int) -> None:
        self.active.change(self._clock(), by)
        self._adjust(offer, by)

    def _adjust(self, offer: Offer, by: int) -> None:
        """Let the counters of the queue follow what is charged (FAI-4)."""
        if self._queue is not None and by:
            self._queue.adjust(offer.tenant, by)

    def _discharge(self, offer: Offer, used: int) -> None:
        """Take in that the whole bound came back, of which `used` was used (FAI-4)."""
        if offer.stage is Stage.ADMITTED:
            self.admitted.remove(offer)
        if offer.stage not in CHARGED:
            return
        self.releases += 1
        self.active.change(self._clock(), -offer.bound)
        self._adjust(offer, min(0, used - offer.bound))
        del self.holdings[offer.key]
        self.growing.discard(offer.key)

    def _end(self, offer: Offer, stage: Stage, reason: str = "") -> None:
        offer.stage, offer.finished, offer.reason = stage, self._clock(), reason or offer.reason
        self.ended[stage] += 1
        if stage is Stage.COMPLETED:
            self.policy.ended(offer, offer.reserved)


def used_of(event: LedgerEvent) -> int:
    """Return what the work had used when it stopped: nothing, where it never ran."""
    return event.receipt.used if isinstance(event, Finish) else 0
