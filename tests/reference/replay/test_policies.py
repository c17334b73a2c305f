"""Queues, classes and reservation policies in whole runs: what is promised is kept where others fail it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.resources import files

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from kvescrow.checks.monitor import Monitor, page_line
from kvescrow.reference.journal import line_of
from kvescrow.reference.ledger import JournalEntry
from kvescrow.reference.replay import (
    CancellationConfig,
    CostConfig,
    PoolConfig,
    ReplayConfig,
    ReplayFault,
    ReplayResult,
    SchedulerConfig,
    TimesConfig,
    capacity_of,
    read_config,
    replay,
)
from kvescrow.reference.replay.config import FAIR, FIRST_COME, ORDERS, STRICT_PRIORITY
from kvescrow.reference.replay.queueing import policy_of
from kvescrow.reference.replay.terms import (
    POLICIES,
    ArrivalsConfig,
    ClassConfig,
    ReservationConfig,
    StreamConfig,
    TenantSettings,
)
from kvescrow.reference.scheduler.reservations import Pages, ReservationPolicy
from kvescrow.reference.traces import Trace, TraceFormat, TraceRequest, packaged_trace
from kvescrow.spec.vocabulary import Decision, Reserve, UserError

SECOND = 1_000_000
PAGE = 16
# A step takes 100 microseconds, and 1 more for each prompt token; nothing else counts.
COST = CostConfig(fixed=100_000, per_prefill_token=1_000, per_decode_sequence=0, per_context_token=0)


def request(name: str, arrival: int, prompt: int, output: int, tenant: str = "a") -> TraceRequest:
    return TraceRequest(name, tenant, arrival, prompt, output)


def trace(*requests: TraceRequest) -> Trace:
    return Trace("hand-made", TraceFormat.MOONCAKE, requests, "none")


def config(tokens: int = 1024, order: str = FAIR, **tables: object) -> ReplayConfig:
    scheduler = SchedulerConfig(order=order, baseline=order == STRICT_PRIORITY)
    return evolve(
        ReplayConfig(pool=PoolConfig(tokens=tokens, page_length=PAGE), cost=COST, scheduler=scheduler), **tables
    )


def packaged(name: str, order: str) -> ReplayConfig:
    found = read_config(str(files("kvescrow.reference.replay").joinpath("configs", f"{name}.toml")))
    return evolve(found, scheduler=evolve(found.scheduler, baseline=True, order=order))


def checked(work: Trace, settings: ReplayConfig) -> ReplayResult:
    """Replay with every event checked against the tables."""
    monitor = Monitor(capacity_of(work, settings).as_header())
    result = replay(
        work,
        settings,
        ledger_recorder=lambda entry: monitor.feed(line_of(entry)),
        page_recorder=lambda event: monitor.feed(page_line(event)),
    )
    if monitor.events == 0:
        # A journal without an event is no evidence; it is right where nobody came to the ledger.
        assert (result.admitted, result.ledger_events) == (0, 0)
        return result
    verdict = monitor.finish()
    assert (verdict.outcome.value, verdict.findings) == ("passed", ())
    return result


def accounted(result: ReplayResult) -> bool:
    """Every request ends in exactly one way."""
    ended = (result.refused, result.expired, result.failed)
    return result.offered == sum(sum(each.values()) for each in ended) + result.cancelled + result.completed


# --- interactive and bulk: FAI-3 ------------------------------------------------------------------------------------


@cache
def run(name: str, trace_name: str, order: str) -> ReplayResult:
    return replay(packaged_trace(trace_name), packaged(name, order))


@pytest.mark.parametrize(("name", "trace_name"), [("mixed", "vtc"), ("bursts", "azure-code")])
def test_interactive_keeps_its_objectives_and_bulk_its_share_under_the_fair_order_alone(
    name: str, trace_name: str
) -> None:
    fair, first_come, strict = (run(name, trace_name, order) for order in (FAIR, FIRST_COME, STRICT_PRIORITY))
    for result in (fair, first_come, strict):
        assert accounted(result)
        assert result.fairness is not None
    attainment = {
        order: each.classes["interactive"].attainment
        for order, each in zip(ORDERS, (first_come, fair, strict), strict=True)
    }
    assert attainment[FAIR] is not None and attainment[FAIR] >= 0.99
    assert attainment[FIRST_COME] is not None and attainment[FIRST_COME] < 0.99
    largest = fair.fairness.largest if fair.fairness else 0
    short = [each.fairness.shortfall["bulk"] for each in (fair, strict) if each.fairness]
    assert short[0] <= largest < short[1]
    assert fair.classes["bulk"].completed > 3 * strict.classes["bulk"].completed > 0
    # Bulk has a bounded outcome: each request is served, or told within its longest wait that it is not.
    bulk = fair.classes["bulk"]
    assert bulk.offered == bulk.completed + bulk.expired
    assert fair.fairness is not None and fair.fairness.broken == []


def test_every_claim_of_fairness_says_of_what_and_when() -> None:
    """FAI-1: the resource, the interval and the unit stand in the report, and so does the bound."""
    fairness = run("mixed", "vtc", FAIR).fairness
    assert fairness is not None
    assert fairness.resource == "tokens of the pool, reserved at dispatch, less refunds and with growth"
    assert fairness.interval == "while both have a request waiting that no limit of their own blocks"
    assert fairness.unit == "tokens over weight"
    assert fairness.classes is not None
    assert 0 < fairness.classes.gap <= fairness.classes.bound


def admissions(order: str, policy: str) -> list[str]:
    """The tenants of the 44 requests, as they were admitted."""
    admitted: list[str] = []

    def see(entry: JournalEntry) -> None:
        if isinstance(entry.event, Reserve) and entry.reply.decision is Decision.ADMITTED:
            admitted.append(entry.event.key.tenant)

    settings = evolve(packaged("forty-against-four", order), reservation=ReservationConfig(policy=policy))
    assert replay(packaged_trace("vtc"), settings, ledger_recorder=see).completed == 44
    return admitted


def test_forty_small_against_four_large_neither_blocks() -> None:
    """FAI-5: from when both wait, neither is ahead by more than a largest request of each."""
    fair, first_come = admissions(FAIR, "full-maximum"), admissions(FIRST_COME, "no-evict")
    # Two large ones fit before anyone else is there.
    assert fair[:2] == first_come[:2] == ["large", "large"]
    ahead = 0
    last = max(place for place, tenant in enumerate(fair) if tenant == "large")
    for tenant in fair[2 : last + 1]:
        ahead += 10 if tenant == "large" else -1
        assert -20 <= ahead <= 20
    assert "small" in fair[2:last]
    assert first_come[:4] == ["large"] * 4


# --- reservation policies: GRO --------------------------------------------------------------------------------------


@cache
def saturated(policy: str) -> ReplayResult:
    """The first 240 requests, twice as fast as the file that comes with kvescrow, so that a short run is enough."""
    settings = packaged("saturation", FIRST_COME)
    whole = packaged_trace("mooncake")
    return replay(
        evolve(whole, requests=whole.requests[:240]),
        evolve(
            settings,
            pool=evolve(settings.pool, page_length=512),
            reservation=evolve(settings.reservation, policy=policy),
            arrivals=ArrivalsConfig(speed=1.2),
        ),
    )


def test_estimates_with_growth_end_as_much_as_every_baseline_and_stop_nothing_for_memory() -> None:
    """GRO-1: goodput, utilisation and denials of each policy, over one trace."""
    ours = saturated("estimate")
    assert (ours.preemptions, ours.broken_promises, ours.completed) == (0, 0, 240)
    for policy in POLICIES:
        baseline = saturated(policy)
        assert accounted(baseline)
        assert ours.goodput.met >= baseline.goodput.met, policy
    assert ours.goodput.met > saturated("full-maximum").goodput.met
    assert 0 < ours.utilisation < saturated("full-maximum").utilisation


LONG = tuple(request(f"r{number}", number, 16, 64) for number in range(6))
"""Each holds one page of prompt and comes to five."""


UNEXPECTED = (request("first", 0, 16, 1300), request("second", 1, 16, 1300))
"""The peak formula expects 1,030 tokens of each."""


@pytest.mark.parametrize(
    ("policy", "work", "pages", "max_output"),
    [("watermark", LONG, 12, 64), ("peak-formula", UNEXPECTED, 134, 1300)],
)
def test_overcommitting_policies_stop_work_and_it_ends_all_the_same(
    policy: str, work: tuple[TraceRequest, ...], pages: int, max_output: int
) -> None:
    """LIF-9: stopped work waits before everyone else, and is computed anew, what it had generated included."""
    reservation = ReservationConfig(policy=policy, max_output=max_output)
    result = checked(trace(*work), config(tokens=pages * PAGE, order=FIRST_COME, reservation=reservation))
    assert result.completed == len(work)
    assert result.preemptions > 0
    assert result.denials >= result.preemptions
    assert 0 < result.broken_promises <= result.preemptions
    assert result.generated_tokens == sum(each.output_tokens for each in work)


@pytest.mark.parametrize("policy", ["full-maximum", "estimate", "no-evict"])
def test_policies_that_cover_the_worst_case_stop_nothing(policy: str) -> None:
    reservation = ReservationConfig(policy=policy, max_output=64)
    result = checked(trace(*LONG), config(tokens=12 * PAGE, order=FIRST_COME, reservation=reservation))
    assert (result.completed, result.preemptions, result.broken_promises, result.denials) == (6, 0, 0, 0)


def test_a_tenant_that_outgrows_its_estimates_gets_a_floor_and_is_reported() -> None:
    """GRO-5: its history is of short outputs, then each comes to the maximum."""
    work = [request(f"s{number}", number * SECOND, 16, 4) for number in range(100)]
    work += [request(f"l{number}", (100 + number) * SECOND, 16, 64) for number in range(20)]
    work += [request(f"h{number}", number * SECOND, 16, 4, "honest") for number in range(120)]
    work.sort(key=lambda each: each.arrival)
    reservation = ReservationConfig(policy="estimate", max_output=64, percent=90)
    bounds: list[int] = []

    def see(entry: JournalEntry) -> None:
        if isinstance(entry.event, Reserve) and entry.event.key.request.startswith("l"):
            bounds.append(entry.event.amount)

    result = replay(trace(*work), config(order=FIRST_COME, reservation=reservation), ledger_recorder=see)
    assert result.under_reserving == ["a"]
    assert (bounds[0], bounds[-1]) == (2 * PAGE, 5 * PAGE)
    assert result.broken_promises == 0


def test_a_growth_that_the_budget_does_not_cover_stops_the_work() -> None:
    """GRO-3, ADM-8: no waiting brings it, so it ends and gives everything back."""
    reservation = ReservationConfig(policy="no-evict")
    settings = config(order=FIRST_COME, reservation=reservation, tenants={"a": TenantSettings(budget=3 * PAGE)})
    result = checked(trace(request("r", 0, 16, 64)), settings)
    assert (result.failed, result.completed, result.broken_promises) == ({"BUDGET": 1}, 0, 1)


# --- tenants' limits ------------------------------------------------------------------------------------------------


def test_a_tenants_window_counts_admitted_requests_only() -> None:
    work = trace(*(request(f"r{number}", number * SECOND, 16, 1) for number in range(70)))
    settings = config(tenants={"a": TenantSettings(requests_per_minute=5)})
    result = checked(work, settings)
    # 0 to 4 s fill the window; 60 to 64 s find it free again.
    assert (result.refused, result.completed) == ({"REQUEST_RATE": 60}, 10)


def test_a_budget_refuses_what_it_does_not_cover() -> None:
    work = trace(*(request(f"r{number}", number * SECOND, 16, 16) for number in range(4)))
    result = checked(work, config(tenants={"a": TenantSettings(budget=2 * 32)}))
    assert (result.refused, result.completed) == ({"BUDGET": 2}, 2)


@pytest.mark.parametrize("order", [FAIR, FIRST_COME])
def test_a_tenants_own_limit_keeps_back_nobody_but_its_own(order: str) -> None:
    """QUE-5: b goes on at once; a's small request does not pass a's large one."""
    work = trace(
        request("first", 0, 32, 30),
        request("large", 1, 48, 16),
        request("small", 2, 16, 1),
        request("b", 3, 16, 1, "b"),
    )
    admitted: list[str] = []

    def see(entry: JournalEntry) -> None:
        if entry.reply.decision is Decision.ADMITTED and isinstance(entry.event, Reserve):
            admitted.append(entry.event.key.request)

    reservation = ReservationConfig(policy="no-evict" if order == FIRST_COME else "full-maximum")
    settings = config(order=order, reservation=reservation, tenants={"a": TenantSettings(tokens=80)})
    assert replay(work, settings, ledger_recorder=see).completed == 4
    assert admitted == ["first", "b", "large", "small"]


def test_what_never_fits_or_comes_too_late_is_refused_at_once() -> None:
    work = trace(request("big", 0, 2000, 1), request("late", 0, 16, 50), request("good", 0, 16, 1))
    result = checked(work, config(times=TimesConfig(deadline=1_000)))
    assert (result.refused, result.completed) == ({"NEVER_FITS": 1, "TOO_LATE": 1}, 1)


def test_who_is_never_let_in_waits_its_time_and_no_longer() -> None:
    """QUE-2: the peak formula never lets a request in that comes nearer to the pool's size than its margin."""
    settings = config(tokens=192, reservation=ReservationConfig(policy="peak-formula", max_output=64))
    result = checked(trace(request("r", 0, 112, 1)), settings)
    assert (result.expired, result.admitted, result.ledger_events) == ({"QUEUE_TIMEOUT": 1}, 0, 0)


def test_waits_end_at_the_limit_of_the_class() -> None:
    """QUE-2: the class's own limit, not the run's."""
    classes = {"one": ClassConfig(share=0.5), "two": ClassConfig(share=0.5, queue_wait=500)}
    work = trace(request("holds", 0, 992, 30), request("waits", 1, 16, 1, "b"), request("patient", 1, 16, 1))
    settings = config(classes=classes, tenants={"b": TenantSettings(class_="two")}, tokens=1024)
    result = checked(trace(*work.requests), settings)
    assert (result.expired, result.completed) == ({"QUEUE_TIMEOUT": 1}, 2)
    assert result.classes["two"].expired == 1
    assert result.classes["two"].attainment == 0.0


def test_streams_alone_or_nothing_at_all() -> None:
    nothing = config(arrivals=ArrivalsConfig(trace=False))
    with pytest.raises(UserError, match=r"defaults: arrivals\.trace is false and there is no stream"):
        replay(trace(request("r", 0, 16, 1)), nothing)
    stream = StreamConfig(tenant="x", requests=3, input_tokens=16, output_tokens=1, every=10)
    result = replay(trace(request("r", 0, 16, 1)), evolve(nothing, streams=(stream,)))
    assert (result.offered, result.remarks[-1]) == (3, "3 requests are synthetic, in 1 streams.")


# --- any workload ---------------------------------------------------------------------------------------------------

REQUESTS = st.lists(
    st.tuples(st.integers(0, 4_000), st.integers(1, 120), st.integers(1, 60), st.sampled_from("abc")),
    min_size=1,
    max_size=14,
)


@settings(max_examples=40, deadline=None)
@given(
    REQUESTS,
    st.sampled_from(POLICIES),
    st.sampled_from(ORDERS),
    st.sampled_from([192, 256, 512]),
    st.sampled_from([0.0, 0.4]),
)
def test_every_policy_and_order_keeps_the_tables_and_the_bounds(
    drawn: list[tuple[int, int, int, str]], policy: str, order: str, tokens: int, cancels: float
) -> None:
    work = trace(
        *sorted((request(f"r{number}", *each) for number, each in enumerate(drawn)), key=lambda each: each.arrival)
    )
    settings_ = config(
        tokens=tokens,
        order=order,
        reservation=ReservationConfig(policy=policy, max_output=64),
        classes={"interactive": ClassConfig(share=0.75), "bulk": ClassConfig(share=0.25, queue_wait=3_000)},
        tenants={"b": TenantSettings(class_="bulk"), "c": TenantSettings(weight=3, tokens=192)},
        cancellations=CancellationConfig(rate=cancels, within=3_000),
    )
    result = checked(work, settings_)
    assert accounted(result)
    assert all(
        each.offered == each.refused + each.expired + each.cancelled + each.failed + each.completed
        for each in result.classes.values()
    )
    if not policy_of(settings_, Pages(PAGE, tokens)).preempts:
        assert (result.preemptions, result.broken_promises) == (0, 0)
    if order == FAIR and result.fairness is not None:
        assert result.fairness.broken == []


def test_a_broken_bound_is_a_fault_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check of the bounds fails when they are passed: here a queue that takes whoever is ahead."""
    from kvescrow.reference.scheduler import fair

    monkeypatch.setattr(fair, "_counter", lambda party: (-party.counter, party.name))
    monkeypatch.setattr(fair._Level, "allows", lambda self, party, amount, largest: True)
    work = trace(*(request(f"{tenant}{number}", 0, 80, 16, tenant) for number in range(20) for tenant in "ab"))
    with pytest.raises(ReplayFault, match="fairness: all/a and all/b differ by"):
        replay(work, config(tokens=96))


def test_policies_are_what_the_configuration_names() -> None:
    def named(policy: str) -> ReservationPolicy:
        return policy_of(config(reservation=ReservationConfig(policy=policy)), Pages(PAGE, 1024))

    names: Callable[[str], str] = lambda policy: named(policy).name  # noqa: E731
    assert [names(policy) for policy in POLICIES] == list(POLICIES)
