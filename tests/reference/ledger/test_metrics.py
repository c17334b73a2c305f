"""Metrics in a real registry, and the log of refusals: the figures are those of the replies (VIS-1, VIS-2)."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from kvescrow.reference.ledger import Ledger, LedgerConfig
from kvescrow.reference.ledger.metrics import LedgerMetrics
from kvescrow.reference.ledger.refusals import RefusalLog, all_of
from kvescrow.reference.receipts import Keyring
from kvescrow.spec.vocabulary import (
    Cancel,
    Finish,
    ForceRelease,
    Key,
    Preempt,
    Promote,
    ReportUsage,
    Reserve,
    SetTenantLimit,
    Start,
    StopOutcome,
    Sweep,
    Tick,
    UserError,
)
from tests.reference.ledger.conftest import FAR, SECOND, receipt

Open = Callable[..., Ledger]
Count = Callable[..., float]


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def ledger(open_ledger: Open, config: LedgerConfig, registry: CollectorRegistry) -> Ledger:
    metrics = LedgerMetrics("pool", registry)
    ledger = open_ledger(config, recorder=all_of(metrics, RefusalLog()))
    metrics.watch(ledger)
    return ledger


@pytest.fixture
def count(registry: CollectorRegistry) -> Count:
    """Return the value of a sample; every sample has the pool as a label. Absent ones count 0."""

    def value(name: str, **labels: str) -> float:
        return registry.get_sample_value(name, {"pool": "pool", **labels}) or 0

    return value


def reserve(request: str, amount: int = 30_000, tenant: str = "red", **more: int) -> Reserve:
    return Reserve(Key(tenant, request), amount, "d", FAR, **more)


def test_decisions_are_counted_by_kind_and_refusals_by_reason(ledger: Ledger, count: Count) -> None:
    ledger.submit(reserve("1"))
    ledger.submit(reserve("1"))
    ledger.submit(reserve("2"))
    ledger.submit(reserve("3", tenant="blue"))
    ledger.submit(reserve("4", amount=50_000))
    assert count("kvescrow_decisions_total", tenant="red", event="reserve", decision="ADMITTED") == 1
    assert count("kvescrow_decisions_total", tenant="red", event="reserve", decision="RECORDED") == 1
    assert count("kvescrow_decisions_total", tenant="red", event="reserve", decision="REFUSED") == 2
    for tenant, reason in (("red", "TENANT_CAPACITY"), ("blue", "POOL_CAPACITY"), ("red", "NEVER_FITS")):
        assert count("kvescrow_refusals_total", tenant=tenant, event="reserve", reason=reason) == 1


def test_a_refusal_is_no_failure(ledger: Ledger, count: Count, finish: Callable[..., Finish]) -> None:
    ledger.submit(reserve("4", amount=50_000))
    ledger.submit(reserve("1"))
    ledger.submit(Start(Key("red", "1"), 1, "worker"))
    ledger.submit(finish(Key("red", "1"), "worker", 1, 5, StopOutcome.FAILED))
    assert count("kvescrow_failures_total", tenant="red", reason="NONE") == 1
    assert count("kvescrow_refusals_total", tenant="red", event="reserve", reason="NEVER_FITS") == 1
    assert count("kvescrow_failures_total", tenant="red", reason="NEVER_FITS") == 0


def test_work_of_a_fenced_owner_failed_for_that_reason(ledger: Ledger, count: Count, keyring: Keyring) -> None:
    ledger.submit(reserve("1"))
    ledger.submit(Start(Key("red", "1"), 1, "worker"))
    ledger.submit(keyring.fence("pool", Key("red", "1"), "worker"))
    assert count("kvescrow_failures_total", tenant="red", reason="OWNER_FENCED") == 1


def test_what_could_not_be_vouched_for_makes_no_label(ledger: Ledger, registry: CollectorRegistry) -> None:
    ledger.submit(reserve("1", tenant="stranger"))
    ledger.submit(Sweep(Key("another stranger", "1")))
    text = generate_latest(registry).decode()
    assert "stranger" not in text
    assert 'kvescrow_refusals_total{event="reserve",pool="pool",reason="FORBIDDEN",tenant=""} 1.0' in text


class TestWaits:
    def test_the_queue(self, ledger: Ledger, count: Count) -> None:
        ledger.submit(reserve("now", max_wait=9 * SECOND))
        ledger.submit(reserve("soon", max_wait=9 * SECOND))
        ledger.submit(reserve("never", max_wait=5 * SECOND))
        ledger.submit(Tick(3 * SECOND))
        ledger.submit(Cancel(Key("red", "now"), 1))
        ledger.submit(Promote(Key("red", "soon")))
        ledger.submit(Tick(5 * SECOND))
        ledger.submit(Sweep(Key("red", "never")))
        labels = {"tenant": "red", "outcome": "admitted"}
        assert count("kvescrow_queue_wait_seconds_count", **labels) == 2
        assert count("kvescrow_queue_wait_seconds_sum", **labels) == 3.0
        assert count("kvescrow_queue_wait_seconds_bucket", le="0.005", **labels) == 1
        assert count("kvescrow_queue_wait_seconds_sum", tenant="red", outcome="expired") == 5.0
        assert count("kvescrow_queue_wait_seconds_count", tenant="red", outcome="released") == 0

    def test_a_cancel_in_the_queue(self, ledger: Ledger, count: Count) -> None:
        ledger.submit(reserve("now"))
        ledger.submit(reserve("gone", max_wait=9 * SECOND))
        ledger.submit(Tick(2 * SECOND))
        ledger.submit(Cancel(Key("red", "gone"), 2))
        assert count("kvescrow_queue_wait_seconds_sum", tenant="red", outcome="released") == 2.0

    def test_a_stop(self, ledger: Ledger, count: Count, finish: Callable[..., Finish]) -> None:
        key = Key("red", "1")
        ledger.submit(reserve("1"))
        ledger.submit(Start(key, 1, "worker"))
        ledger.submit(Tick(1 * SECOND))
        ledger.submit(Preempt(key, 1))
        ledger.submit(Tick(2 * SECOND))
        ledger.submit(Cancel(key, 1))
        ledger.submit(Tick(4 * SECOND))
        ledger.submit(finish(key, "worker", 1, 5))
        assert count("kvescrow_stop_seconds_count", tenant="red") == 1
        assert count("kvescrow_stop_seconds_sum", tenant="red") == 3.0


def test_gauges_are_the_ledgers_own(ledger: Ledger, count: Count) -> None:
    ledger.submit(reserve("1"))
    ledger.submit(reserve("2", max_wait=9 * SECOND))
    ledger.submit(SetTenantLimit("blue", 7))
    assert (count("kvescrow_pool_active"), count("kvescrow_pool_limit")) == (30_000, 40_000)
    assert count("kvescrow_tenant_active", tenant="red") == 30_000
    assert count("kvescrow_tenant_held", tenant="red") == 30_000
    assert count("kvescrow_tenant_queued", tenant="red") == 1
    assert (count("kvescrow_tenant_limit", tenant="blue"), count("kvescrow_tenant_active", tenant="blue")) == (7, 0)
    assert count("kvescrow_tenant_budget", tenant="blue") == 1_000_000


def test_suspect_work_overruns_and_bad_proofs(ledger: Ledger, count: Count, finish: Callable[..., Finish]) -> None:
    key = Key("red", "1")
    ledger.submit(reserve("1", amount=100))
    ledger.submit(Start(key, 1, "worker", lease=SECOND))
    ledger.submit(ReportUsage(key, "worker", 1, 130))
    assert count("kvescrow_overruns_total", tenant="red") == 1
    assert count("kvescrow_tenant_overrun", tenant="red") == 0
    ledger.submit(Tick(2 * SECOND))
    ledger.submit(Sweep(key))
    assert count("kvescrow_suspected_total", tenant="red") == 1
    assert count("kvescrow_orphaned", tenant="red") == 1
    ledger.submit(Finish(receipt(key, "worker", 1, 5)))
    ledger.submit(finish(key, "worker", 9, 5))
    ledger.submit(finish(key, "stranger", 1, 5))
    for why in ("forged", "stale", "foreign"):
        assert count("kvescrow_proofs_refused_total", why=why) == 1
    assert count("kvescrow_orphaned", tenant="red") == 1
    ledger.submit(finish(key, "worker", 1, 130))
    assert count("kvescrow_orphaned", tenant="red") == 0
    assert count("kvescrow_tenant_overrun", tenant="red") == 30


def test_one_registry_holds_one(registry: CollectorRegistry) -> None:
    LedgerMetrics("pool", registry)
    with pytest.raises(ValueError, match="Duplicated"):
        LedgerMetrics("pool", registry)


def test_without_the_client_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(UserError, match=r"kvescrow\[metrics\]"):
        LedgerMetrics("pool")


class TestRefusalLog:
    def test_one_line_a_refusal_with_its_numbers(self, ledger: Ledger, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.INFO, "kvescrow.refusals"):
            ledger.submit(Tick(5))
            ledger.submit(reserve("1"))
            ledger.submit(reserve("2"))
            ledger.submit(reserve("3", tenant="stranger"))
        assert [record.name for record in caplog.records] == ["kvescrow.refusals"] * 2
        first, second = (json.loads(record.getMessage()) for record in caplog.records)
        assert first == {
            "now": 5,
            "event": "reserve",
            "tenant": "red",
            "request": "2",
            "reason": "TENANT_CAPACITY",
            "asked": 30_000,
            "free_tenant": 10_000,
            "free_pool": 10_000,
            "retry_after": FAR - 5,
            "state": "ABSENT",
            "seq": 2,
        }
        assert (second["tenant"], second["reason"], second["state"]) == ("stranger", "FORBIDDEN", None)

    def test_a_request_cannot_break_the_line(self, ledger: Ledger, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.INFO, "kvescrow.refusals"):
            ledger.submit(reserve('x"\n{"reason":"NONE"}', amount=50_000))
        message = caplog.records[0].getMessage()
        assert "\n" not in message
        assert json.loads(message)["reason"] == "NEVER_FITS"

    def test_nothing_is_made_where_nobody_listens(self, ledger: Ledger, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.WARNING, "kvescrow.refusals"):
            ledger.submit(reserve("1", amount=50_000))
        assert caplog.records == []


def test_work_that_was_asked_to_stop_shows_as_silent_and_a_forced_release_is_no_confirmed_stop(
    ledger: Ledger, count: Count
) -> None:
    key = Key("red", "1")
    ledger.submit(reserve("1", amount=100))
    ledger.submit(Start(key, 1, "worker", lease=SECOND))
    ledger.submit(Cancel(key, 1))
    assert count("kvescrow_silent", tenant="red") == 0
    ledger.submit(Tick(SECOND))
    ledger.submit(Sweep(key))
    assert (count("kvescrow_silent", tenant="red"), count("kvescrow_orphaned", tenant="red")) == (1, 0)
    ledger.submit(ForceRelease(key, 1))
    assert count("kvescrow_silent", tenant="red") == 0
    assert count("kvescrow_decisions_total", tenant="red", event="force_release", decision="RELEASED") == 1
    assert count("kvescrow_stop_seconds_count", tenant="red") == 0
