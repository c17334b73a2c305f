"""The admission queue and the reservation policy that a configuration names."""

from collections.abc import Callable, Iterable
from typing import Protocol

from kvescrow.reference.replay.config import FAIR, FIRST_COME, ReplayConfig
from kvescrow.reference.scheduler.fair import ClassTerms, FairQueue, Observer, Room, TenantTerms, Waiting
from kvescrow.reference.scheduler.fairness import FairnessWatch, Party
from kvescrow.reference.scheduler.line import LineQueue
from kvescrow.reference.scheduler.reservations import (
    EstimateWithGrowth,
    FullMaximum,
    NoEvict,
    Pages,
    PeakFormula,
    ReservationPolicy,
    Watermark,
)
from kvescrow.reference.scheduler.window import RequestWindow
from kvescrow.spec.vocabulary import Key, Reason


class AdmissionQueue(Protocol):
    """What `FairQueue` and `LineQueue` have in common."""

    largest: int

    def __contains__(self, key: Key) -> bool: ...
    def __len__(self) -> int: ...
    def join(self, request: Waiting) -> Reason:
        """Let it wait: NONE, or QUEUE_FULL."""

    def leave(self, key: Key) -> Waiting:
        """Take it out."""

    def expire(self, now: int) -> list[tuple[Waiting, Reason]]:
        """Take out whoever waited too long."""

    def dispatch(self, now: int, ask: Callable[[Waiting], Room]) -> list[Waiting]:
        """Ask for heads, in order."""

    def adjust(self, tenant: str, amount: int) -> None:
        """Follow refunds and growth."""


def queue_of(config: ReplayConfig, tenants: Iterable[str], observer: Observer) -> AdmissionQueue | None:
    """Return the queue of `config`; None where the ledger's own, first come first served, is all that is asked for.

    Raises:
        UserError: The terms would starve a class (FAI-3).

    """
    scheduler = config.scheduler
    if scheduler.order == FIRST_COME and config.reservation.policy == FullMaximum.name and len(config.classes) == 1:
        return None
    weights = config.weights
    classes = {
        name: ClassTerms(weights[name], each.queue_limit or config.pool.queue_limit)
        for name, each in config.classes.items()
    }
    terms = {name: _terms(config, name) for name in sorted(tenants)}
    default = TenantTerms(next(iter(classes)))
    if scheduler.order == FAIR:
        return FairQueue(classes, terms, default, observer)
    ranks = dict.fromkeys(classes, 0) if scheduler.order == FIRST_COME else {n: i for i, n in enumerate(classes)}
    return LineQueue(classes, terms, default, ranks, observer)


def watch_of(config: ReplayConfig, tenants: Iterable[str]) -> FairnessWatch:
    """Return a watch that knows the weights of `config`."""
    weights: dict[Party, int] = {(name,): weight for name, weight in config.weights.items()}
    for name in tenants:
        terms = _terms(config, name)
        weights[terms.class_name, name] = terms.weight
    return FairnessWatch(weights)


def _terms(config: ReplayConfig, tenant: str) -> TenantTerms:
    settings = config.tenants.get(tenant)
    return TenantTerms(config.class_of(tenant), settings.weight if settings else 1)


def policy_of(config: ReplayConfig, pages: Pages) -> ReservationPolicy:
    """Return the reservation policy of `config`."""
    reservation = config.reservation
    policies: dict[str, Callable[[], ReservationPolicy]] = {
        "full-maximum": lambda: FullMaximum(pages),
        "estimate": lambda: EstimateWithGrowth(pages, reservation.percent, reservation.forecast),
        "no-evict": lambda: NoEvict(pages),
        "watermark": lambda: Watermark(pages, round(reservation.watermark * 1000)),
        "peak-formula": lambda: PeakFormula(pages),
    }
    return policies[reservation.policy]()


class RequestWindows:
    """The sliding windows of all tenants that have one."""

    def __init__(self, config: ReplayConfig) -> None:
        self._config = config
        self._windows: dict[int, RequestWindow] = {}

    def admits(self, tenant: str, now: int) -> bool:
        """Count a request that comes at `now` if its tenant's window has room; return whether it has."""
        settings = self._config.tenants.get(tenant)
        limit = (settings and settings.requests_per_minute) or self._config.arrivals.requests_per_minute
        if limit is None:
            return True
        window = self._windows.get(limit)
        if window is None:
            window = self._windows[limit] = RequestWindow(limit)
        return window.admit(tenant, now)
