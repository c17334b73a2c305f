"""What a ledger does, as Prometheus metrics (VIS-2); it needs the extra `metrics`.

Counters and histograms count what this gateway's ledger decided, so a `LedgerMetrics` is the ledger's recorder.
Gauges say how the whole ledger stands, so they are read from a snapshot when they are collected. A tenant is a label
only where the caller was vouched for: otherwise anybody could make as many labels as there are names.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from attrs import define

from kvescrow.reference.ledger.port import JournalEntry, Ledger, key_of
from kvescrow.spec.vocabulary import (
    MICROSECONDS_PER_SECOND,
    OWNED_STATES,
    Decision,
    Fence,
    Finish,
    Key,
    LedgerSnapshot,
    Reason,
    ReservationSnapshot,
    ReservationState,
    Reserve,
    UserError,
    event_name,
)

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import GaugeMetricFamily

WAIT_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
"""Upper bounds in seconds: from one decode step to the longest wait that a batch client accepts."""

_MOST_REMEMBERED = 100_000
"""Beginnings kept, some tens of MiB at most."""

_ENDS = {Decision.RELEASED, Decision.EXPIRED, Decision.REQUEUED}
_STOPPING = {ReservationState.CANCELLING, ReservationState.PREEMPTING}
_BAD_PROOFS = {Reason.FORGED: "forged", Reason.STALE_GENERATION: "stale", Reason.NOT_OWNER: "foreign"}


class LedgerMetrics:
    """Counts decisions as the recorder of a ledger, and shows how the ledger stands once it watches it."""

    def __init__(self, pool: str, registry: "CollectorRegistry | None" = None) -> None:
        """Register the metrics of `pool` with `registry`, or with the client's own.

        Raises `UserError` where the client is not installed, and the client's `ValueError` where the registry has
        metrics of these names: one `LedgerMetrics` a registry.
        """
        try:
            from prometheus_client import REGISTRY, Counter, Histogram
        except ImportError as error:
            raise UserError("metrics need the Prometheus client: pip install 'kvescrow[metrics]'") from error
        self._pool = pool
        self._registry = registry if registry is not None else REGISTRY

        def counter(name: str, meaning: str, *labels: str) -> Counter:
            return Counter(name, meaning, ("pool", *labels), registry=self._registry)

        def histogram(name: str, meaning: str, *labels: str) -> Histogram:
            return Histogram(name, meaning, ("pool", *labels), buckets=WAIT_BUCKETS, registry=self._registry)

        self._decisions = counter("kvescrow_decisions", "Events decided", "tenant", "event", "decision")
        self._refusals = counter("kvescrow_refusals", "Events refused; nothing changed", "tenant", "event", "reason")
        self._failures = counter("kvescrow_failures", "Work that ended without a result", "tenant", "reason")
        self._suspected = counter("kvescrow_suspected", "Running work whose owner's lease ran out", "tenant")
        self._overruns = counter("kvescrow_overruns", "Reports of usage above the reservation", "tenant")
        self._bad_proofs = counter("kvescrow_proofs_refused", "Receipts and fence proofs not accepted", "why")
        self._wait = histogram(
            "kvescrow_queue_wait_seconds", "Time in the queue, 0 for who did not wait", "tenant", "outcome"
        )
        self._stop = histogram("kvescrow_stop_seconds", "Time from an accepted stop to its confirmation", "tenant")
        self._queued: dict[Key, int] = {}
        self._stopping: dict[Key, int] = {}

    def watch(self, ledger: Ledger) -> None:
        """Show how `ledger` stands from now on; each collection takes a snapshot of it."""
        self._registry.register(_Standing(self._pool, ledger))

    def __call__(self, entry: JournalEntry) -> None:
        """Count one decided event."""
        tenant, event, reply = _tenant_of(entry), event_name(entry.event).value, entry.reply
        self._decisions.labels(self._pool, tenant, event, reply.decision.value).inc()
        if reply.decision is Decision.REFUSED:
            self._refusals.labels(self._pool, tenant, event, reply.reason.value).inc()
            if isinstance(entry.event, Finish | Fence) and reply.reason in _BAD_PROOFS:
                self._bad_proofs.labels(self._pool, _BAD_PROOFS[reply.reason]).inc()
        if reply.reason is Reason.OVERRUN:
            self._overruns.labels(self._pool, tenant).inc()
        if reply.decision is Decision.SUSPECTED:
            self._suspected.labels(self._pool, tenant).inc()
        if reply.decision is Decision.RELEASED and entry.state is ReservationState.FAILED:
            self._failures.labels(self._pool, tenant, reply.reason.value).inc()
        key = key_of(entry.event)
        if key is not None and key.request and not reply.decision.changes_nothing:
            self._time(key, entry)

    def _time(self, key: Key, entry: JournalEntry) -> None:
        """Measure how long `key` waited, and how long its stop took, where this gateway saw the beginning."""
        decision = entry.reply.decision
        if entry.state is ReservationState.QUEUED:
            _remember(self._queued, key, entry.now)
        else:
            # Whoever is admitted at once waited for nothing; a promotion from elsewhere cannot be measured here.
            since = self._queued.pop(key, entry.now if isinstance(entry.event, Reserve) else None)
            if since is not None and (decision is Decision.ADMITTED or decision in _ENDS):
                self._wait.labels(self._pool, key.tenant, decision.value.lower()).observe(_seconds(entry.now - since))
        if entry.state in _STOPPING:
            _remember(self._stopping, key, entry.now)
        elif (
            decision in _ENDS
            and (since := self._stopping.pop(key, None)) is not None
            # Nobody confirmed this stop.
            and entry.reply.reason is not Reason.FORCED
        ):
            self._stop.labels(self._pool, key.tenant).observe(_seconds(entry.now - since))


def _remember(moments: dict[Key, int], key: Key, now: int) -> None:
    """Note when something began; the oldest go first where their end is never seen, as at another gateway."""
    moments.setdefault(key, now)
    if len(moments) > _MOST_REMEMBERED:
        del moments[next(iter(moments))]


_Value = tuple[tuple[str, ...], int]
"""Values of the labels, and of the gauge."""


def _of_tenant(pool: str, tenant: str, value: int) -> _Value:
    return (pool, tenant), value


@define(eq=False)
class _Standing:
    """A collector that asks the ledger."""

    _pool: str
    _ledger: Ledger

    def collect(self) -> "Iterator[GaugeMetricFamily]":
        """Yield the gauges."""
        snapshot = self._ledger.snapshot()
        yield _gauge("kvescrow_pool_active", "Charged now, in the pool's unit", [((self._pool,), snapshot.pool_active)])
        yield _gauge("kvescrow_pool_limit", "The usable pool", [((self._pool,), snapshot.pool_limit)])
        for field, meaning in (
            ("active", "Charged now for the tenant, in the pool's unit"),
            ("limit", "Most that the tenant's live work may hold"),
            ("held", "Part of the budget held by live work"),
            ("spent", "Part of the budget billed"),
            ("budget", "Most that the tenant may spend in the period"),
            ("overrun", "Units used above what was reserved"),
            ("queued", "Requests of the tenant that wait"),
        ):
            values = [
                _of_tenant(self._pool, name, getattr(account, field)) for name, account in snapshot.tenants.items()
            ]
            yield _gauge(f"kvescrow_tenant_{field}", meaning, values)
        orphaned = self._counted(snapshot, lambda record: record.state is ReservationState.ORPHANED)
        yield _gauge("kvescrow_orphaned", "Suspect executions, still charged", orphaned)
        # What was asked to stop is never made suspect, so a gateway that died with it shows here alone.
        silent = self._counted(snapshot, lambda record: record.state in OWNED_STATES and record.lease <= snapshot.clock)
        yield _gauge("kvescrow_silent", "Executions whose lease ran out, asked to stop or not; still charged", silent)

    def _counted(self, snapshot: LedgerSnapshot, wanted: Callable[[ReservationSnapshot], bool]) -> list[_Value]:
        counts = dict.fromkeys(snapshot.tenants, 0)
        for key, record in snapshot.reservations.items():
            counts[key.tenant] += wanted(record)
        return [_of_tenant(self._pool, name, count) for name, count in counts.items()]


def _gauge(name: str, meaning: str, values: list[_Value]) -> "GaugeMetricFamily":
    from prometheus_client.core import GaugeMetricFamily

    labels = ("pool", "tenant")[: len(values[0][0])] if values else ("pool", "tenant")
    family: Any = GaugeMetricFamily(name, meaning, labels=labels)
    for label_values, value in values:
        family.add_metric(label_values, value)
    gauge: GaugeMetricFamily = family
    return gauge


def _tenant_of(entry: JournalEntry) -> str:
    key = key_of(entry.event)
    # A promotion or a sweep is vouched for whatever tenant it names, so one without a record counts for nobody.
    known = entry.vouched and entry.reply.reason is not Reason.UNKNOWN_KEY
    return key.tenant if key is not None and known else ""


def _seconds(microseconds: int) -> float:
    return microseconds / MICROSECONDS_PER_SECOND
