"""A whole trace on virtual time: a discrete event loop that never sleeps.

Events at one moment happen in the order in which they were planned. Whenever no step is in flight the worker is
asked for the next one, after every event of that moment.
"""

import heapq
from collections.abc import Callable, Iterable
from functools import partial
from itertools import count
from time import perf_counter

from kvescrow.reference import ledger, pages
from kvescrow.reference.receipts import Keyring
from kvescrow.reference.replay.arrivals import offered
from kvescrow.reference.replay.cancellations import injected
from kvescrow.reference.replay.config import FAIR, ReplayConfig
from kvescrow.reference.replay.fault import ReplayFault
from kvescrow.reference.replay.front import Front
from kvescrow.reference.replay.offers import Offer
from kvescrow.reference.replay.pages import BatchPages
from kvescrow.reference.replay.report import report
from kvescrow.reference.replay.result import ReplayResult
from kvescrow.reference.replay.shape import shape_of
from kvescrow.reference.replay.worker import Worker
from kvescrow.reference.traces import Trace
from kvescrow.spec.vocabulary import CHARGED_STATES

KEY = b"a replay signs for itself alone."
"""A replay is its own gateway and worker, so its key guards nothing; it is fixed for equal journals in equal runs."""


CHANGES_PER_CHECKED_PAGE = 64
"""A check of one page costs about as much as twenty changes of one."""

Progress = Callable[[int, int], None]
"""Sees now and then how many requests have ended, of how many."""


class EventQueue:
    """Planned actions by virtual time, in microseconds."""

    def __init__(self) -> None:
        self.now = 0
        self._order = count()
        self._planned: list[tuple[int, int, Callable[[], None]]] = []

    def at(self, time: int, action: Callable[[], None]) -> None:
        """Plan `action` for `time`, after what was planned for it before."""
        heapq.heappush(self._planned, (time, next(self._order), action))

    def run_next_moment(self) -> None:
        """Move to the next planned moment and do all that is planned for it. Raises IndexError where none is."""
        self.now = self._planned[0][0]
        while self._planned and self._planned[0][0] == self.now:
            heapq.heappop(self._planned)[2]()


def replay(
    trace: Trace,
    config: ReplayConfig | None = None,
    *,
    ledger_recorder: ledger.Recorder | None = None,
    page_recorder: pages.Recorder | None = None,
    progress: Progress | None = None,
    on_offer: Callable[[Offer], None] | None = None,
) -> ReplayResult:
    """Run `trace` through admission, page pool and scheduler, and return the figures.

    The recorders see every event of the ledger and of the page pool as it happens, so that a monitor can check the
    run row by row. What they are shown and the result, but for `seconds`, depend on the arguments alone. `on_offer`
    sees each request when all are over, in order of arrival.

    Raises:
        UserError: The configuration does not fit the trace.
        ReplayFault: Ledger and page pool contradict each other, or what was taken is not given back.
        BrokenInvariant: The page pool contradicts itself.

    """
    run = _Run(trace, config or ReplayConfig(), ledger_recorder, page_recorder, progress)
    result = run.run()
    if on_offer is not None:
        for offer in run.offers:
            on_offer(offer)
    return result


class _Run:
    def __init__(
        self,
        trace: Trace,
        config: ReplayConfig,
        ledger_recorder: ledger.Recorder | None,
        page_recorder: pages.Recorder | None,
        progress: Progress | None,
    ) -> None:
        trace = offered(trace, config)
        self._trace = trace
        self._config = config
        self._shape = shape_of(trace, config)
        self._events = EventQueue()
        self._ledger_recorder = ledger_recorder
        self._ledger_events = 0
        keyring = Keyring({"replay": KEY}, "replay")
        self._front = Front(trace, config, self._shape, keyring, lambda: self._events.now, self._record)
        self._pages = BatchPages(self._shape, page_recorder)
        self._worker = Worker(config, self._front, self._pages, keyring)
        self._progress = progress
        self._cancels_sent = 0
        self._checked_at = 0

    @property
    def offers(self) -> Iterable[Offer]:
        """Every request, in order of arrival."""
        return self._front.offers

    def run(self) -> ReplayResult:
        """Run to the end, check it, report."""
        began = perf_counter()
        self._plan()
        while self._front.unfinished:
            self._events.run_next_moment()
            if self._worker.is_idle and (duration := self._worker.launch()) is not None:
                self._events.at(self._events.now + duration, self._end_step)
        self._check_accounts()
        self._check_fairness()
        self._pages.check_idle()
        return self._report(perf_counter() - began)

    # --- what happens when ----------------------------------------------------------------------------------------

    def _plan(self) -> None:
        cancels = injected(self._trace, self._config.cancellations)
        for offer in self._front.offers:
            self._events.at(offer.request.arrival, partial(self._arrive, offer))
            if offer.request.request in cancels:
                self._events.at(cancels[offer.request.request], partial(self._cancel, offer))
        self._events.at(self._beat, self._heartbeat)

    def _arrive(self, offer: Offer) -> None:
        until = self._front.offer(offer)
        if until is not None:
            self._events.at(until, self._front.advance)

    def _cancel(self, offer: Offer) -> None:
        self._cancels_sent += 1
        if self._front.cancel(offer):
            self._worker.cancel(offer)

    def _end_step(self) -> None:
        self._worker.finish_step(self._events.now)
        self._check_promises()

    @property
    def _beat(self) -> int:
        return self._config.times.lease // 3

    def _heartbeat(self) -> None:
        for offer in self._front.admitted:
            self._front.renew(offer)
        self._worker.renew()
        self._front.advance()
        self._check_accounts()
        self._check_fairness()
        self._check_pool()
        if self._progress is not None:
            self._progress(len(self._trace.requests) - self._front.unfinished, len(self._trace.requests))
        self._events.at(self._events.now + self._beat, self._heartbeat)

    def _record(self, entry: ledger.JournalEntry) -> None:
        self._ledger_events += 1
        if self._ledger_recorder is not None:
            self._ledger_recorder(entry)

    # --- what must hold -------------------------------------------------------------------------------------------

    def _check_pool(self) -> None:
        """Compute the invariants of all pages anew, as often as that costs a small part of the run."""
        changes = self._pages.pool.seq - self._checked_at
        if changes >= CHANGES_PER_CHECKED_PAGE * self._shape.pages:
            self._pages.pool.check()
            self._checked_at = self._pages.pool.seq

    def _check_promises(self) -> None:
        """Check that the ledger covers every page that is promised, held or still touched (PAG-1, PAG-4)."""
        counts = self._pages.pool.counts()
        taken = counts.promised + counts.private + counts.shared + counts.draining
        if taken * self._shape.page_length > self._front.active.value:
            raise ReplayFault(f"{taken} pages are taken, the ledger covers {self._front.active.value} tokens")

    def _check_accounts(self) -> None:
        """Check that the ledger's counter is the sum over live work, and what this run counts (LIF-10)."""
        snapshot = self._front.snapshot()
        live = sum(each.bound for each in snapshot.reservations.values() if each.state in CHARGED_STATES)
        if not snapshot.pool_active == live == self._front.active.value:
            raise ReplayFault(
                f"the ledger counts {snapshot.pool_active} tokens as active, its live work holds {live}, the run "
                f"counts {self._front.active.value}"
            )

    def _check_fairness(self) -> None:
        """Check the bounds of the fair queue over the whole run so far (FAI-2, FAI-3)."""
        if self._config.scheduler.order != FAIR:
            return
        if broken := self._front.watch.broken(self._front.largest, self._shape.tokens):
            raise ReplayFault(f"fairness: {broken[0]}")

    # --- the result -----------------------------------------------------------------------------------------------

    def _report(self, seconds: float) -> ReplayResult:
        looked_up = self._pages.looked_up_tokens
        return report(
            self._trace,
            self._config,
            self._shape,
            self._front,
            self._worker,
            span=self._events.now,
            cancels_sent=self._cancels_sent,
            hit_rate=self._pages.hit_tokens / looked_up if looked_up else None,
            ledger_events=self._ledger_events,
            page_changes=self._pages.pool.seq,
            seconds=seconds,
        )
