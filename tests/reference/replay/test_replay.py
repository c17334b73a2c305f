"""Whole workloads on virtual time: figures by hand for small ones, invariants for all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from kvescrow.checks.monitor import Monitor, page_line
from kvescrow.reference.journal import line_of
from kvescrow.reference.ledger import JournalEntry
from kvescrow.reference.pages import PageEvent
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
    replay,
)
from kvescrow.reference.replay.cancellations import injected
from kvescrow.reference.replay.pages import BatchPages
from kvescrow.reference.replay.worker import Worker
from kvescrow.reference.traces import Trace, TraceFormat, TraceRequest, packaged_trace
from kvescrow.spec.vocabulary import Cancel, Decision, Finish, Reason, Reserve, UserError

PAGE = 16
SECOND = 1_000_000
# A step takes 100 microseconds, and 1 more for each prompt token; nothing else counts.
COST = CostConfig(fixed=100_000, per_prefill_token=1_000, per_decode_sequence=0, per_context_token=0)


def request(
    name: str, arrival: int, prompt: int, output: int, blocks: tuple[int, ...] = (), tenant: str = "a"
) -> TraceRequest:
    return TraceRequest(name, tenant, arrival, prompt, output, blocks, PAGE if blocks else 0)


def trace(*requests: TraceRequest) -> Trace:
    return Trace("hand-made", TraceFormat.MOONCAKE, requests, "none")


def config(tokens: int = 1024, **tables: object) -> ReplayConfig:
    pool = PoolConfig(tokens=tokens, page_length=PAGE)
    return evolve(ReplayConfig(pool=pool, cost=COST), **tables)


def mooncake(count: int) -> Trace:
    whole = packaged_trace("mooncake")
    return evolve(whole, requests=whole.requests[:count])


def prefix_ids(choices: Sequence[int], length: int) -> tuple[int, ...]:
    """Block ids of a tree: an equal id means an equal whole prefix."""
    ids, node = [], 0
    for choice in choices[: -(-length // PAGE)]:
        node = node * 3 + choice + 1
        ids.append(node)
    return tuple(ids)


def ends(result: ReplayResult) -> int:
    return sum(result.refused.values()) + sum(result.expired.values()) + result.cancelled + result.completed


# --- Figures by hand --------------------------------------------------------------------------------------------


def test_one_request() -> None:
    """40 prompt tokens in chunks of 32 and 8, then 2 more tokens: steps of 132, 108, 100 and 100 microseconds."""
    result = replay(trace(request("r", 0, 40, 3)), config(scheduler=SchedulerConfig(prefill_chunk=32)))
    assert (result.offered, result.admitted, result.completed, result.steps) == (1, 1, 1, 4)
    assert result.first_token.maximum == 132 + 108
    assert result.virtual_span == 132 + 108 + 100 + 100
    assert result.queue_wait.maximum == 0
    assert (result.prefill_tokens, result.generated_tokens, result.hit_rate) == (40, 3, None)
    assert result.utilisation == result.peak_utilisation == 48 / 1024


def test_a_second_request_waits_for_the_pool_and_is_admitted_at_the_release() -> None:
    both = trace(request("first", 0, 32, 1), request("second", 10, 32, 1))
    result = replay(both, config(tokens=64))
    assert result.virtual_span == 132 + 132
    assert (result.queue_wait.count, result.queue_wait.maximum) == (2, 132 - 10)
    assert result.first_token.maximum == 264 - 10
    assert result.utilisation == 48 / 64


def test_the_batch_decodes_beside_a_chunk() -> None:
    """The second prompt is computed in the step that gives the first request its second token."""
    both = trace(request("first", 0, 16, 3), request("second", 0, 16, 1))
    result = replay(both, config())
    assert (result.steps, result.virtual_span) == (3, 116 + 116 + 100)


def test_a_prefix_is_computed_once() -> None:
    """The last page of a prompt that is whole pages is computed again, so that there is a first token (PAG-7)."""
    whole = trace(request("first", 0, 48, 1, (1, 2, 3)), request("second", SECOND, 48, 1, (1, 2, 3)))
    assert replay(whole, config()).hit_rate == 32 / 96
    longer = trace(request("first", 0, 48, 1, (1, 2, 3)), request("second", SECOND, 50, 1, (1, 2, 3, 4)))
    assert replay(longer, config()).hit_rate == 48 / 98
    other = trace(request("first", 0, 48, 1, (1, 2, 3)), request("second", SECOND, 48, 1, (7, 2, 3)))
    assert replay(other, config()).hit_rate == 0.0


def test_a_page_is_filled_by_the_step_that_writes_its_last_slot() -> None:
    """The last token of the output is never fed back, so 20 + 30 tokens leave 49 in pages of 16."""
    filled: list[tuple[int | None, object]] = []

    def record(event: PageEvent) -> None:
        if event.name == "settle" and event.parameters["filled"]:
            filled.append((event.page, event.parameters["write"]))

    replay(trace(request("r", 0, 20, 30)), config(), page_recorder=record)
    assert filled == [(1, True), (2, True), (3, True)]


def test_tenants_share_nothing() -> None:
    blocks = (1, 2, 3)
    two = trace(request("first", 0, 48, 1, blocks), request("second", SECOND, 48, 1, blocks, tenant="b"))
    assert replay(two, config()).hit_rate == 0.0


def test_a_page_may_be_a_part_of_a_block() -> None:
    long = TraceRequest("first", "a", 0, 64, 1, (1, 2), 2 * PAGE)
    two = trace(long, evolve(long, request="second", arrival=SECOND))
    assert replay(two, config()).hit_rate == 48 / 128


# --- Refusals and ends by reason --------------------------------------------------------------------------------


def test_each_reason_is_counted() -> None:
    requests = [
        request("runs", 0, 900, 100),
        request("never fits", 1, 1000, 100),
        request("waits out", 2, 900, 100),
        request("finds the queue full", 3, 900, 100),
    ]
    result = replay(
        trace(*requests), config(pool=PoolConfig(tokens=1024, page_length=PAGE, queue_limit=1), times=TimesConfig(500))
    )
    assert result.refused == {"NEVER_FITS": 1, "QUEUE_FULL": 1}
    assert result.expired == {"QUEUE_TIMEOUT": 1}
    assert (result.admitted, result.completed) == (1, 1)


def test_without_patience_a_shortage_is_a_refusal() -> None:
    both = trace(request("first", 0, 32, 1), request("second", 10, 32, 1))
    result = replay(both, config(tokens=64, times=TimesConfig(queue_wait=0)))
    assert (result.refused, result.completed) == ({"POOL_CAPACITY": 1}, 1)


def test_a_small_request_does_not_pass_a_large_one() -> None:
    """QUE-5: the large one waits for the pool, and whoever came after it waits behind it."""
    starts: list[str] = []

    def record(entry: JournalEntry) -> None:
        if entry.reply.decision is Decision.STARTED:
            starts.append(entry.event.key.request)  # type: ignore[union-attr]

    three = trace(request("first", 0, 64, 4), request("large", 1, 90, 4), request("small", 2, 8, 4))
    replay(three, config(tokens=112), ledger_recorder=record)
    assert starts == ["first", "large", "small"]


def test_a_deadline_that_leaves_no_room_is_too_late() -> None:
    """Alone, 20 tokens take at least 101 + 19 * 100 microseconds."""
    only = trace(request("r", 0, 10, 20))
    assert replay(only, config(times=TimesConfig(deadline=2_000))).refused == {"TOO_LATE": 1}
    assert replay(only, config(times=TimesConfig(deadline=2_001))).completed == 1


def test_a_request_that_waited_its_useful_life_away_expires() -> None:
    both = trace(request("first", 0, 32, 12), request("second", 10, 32, 12))
    expired_at: list[int] = []

    def record(entry: JournalEntry) -> None:
        if entry.reply.decision is Decision.EXPIRED:
            expired_at.append(entry.now)

    chosen = config(tokens=64, times=TimesConfig(deadline=2_000))
    result = replay(both, chosen, ledger_recorder=record)
    assert (result.expired, result.completed) == ({"TOO_LATE": 1}, 1)
    assert expired_at == [10 + 2_000 - (101 + 11 * 100) + 1]


def test_one_tenant_does_not_use_up_the_pool() -> None:
    pool = PoolConfig(tokens=96, page_length=PAGE, tenant_tokens=48)
    three = (request("a1", 0, 32, 1), request("a2", 0, 32, 1), request("b1", 0, 32, 1, tenant="b"))
    waits: dict[str, int] = {}

    def record(entry: JournalEntry) -> None:
        if entry.reply.decision is Decision.ADMITTED:
            waits[entry.event.key.request] = entry.now  # type: ignore[union-attr]

    replay(trace(*three), config(pool=pool), ledger_recorder=record)
    assert waits["a1"] == waits["b1"] == 0
    assert waits["a2"] == 132


# --- Injected cancels -------------------------------------------------------------------------------------------


def test_injected_cancels_depend_on_the_seed_and_grow_with_the_rate() -> None:
    some = mooncake(200)
    few = injected(some, CancellationConfig(rate=0.1, seed=3))
    many = injected(some, CancellationConfig(rate=0.3, seed=3))
    assert 0 < len(few) < len(many) < 200
    assert few.items() <= many.items()
    assert injected(some, CancellationConfig(rate=0.1, seed=4)) != few
    assert injected(some, CancellationConfig(rate=0.0)) == {}
    assert len(injected(some, CancellationConfig(rate=1.0))) == 200


def test_cancels_come_while_queued_and_while_steps_are_in_flight() -> None:
    """What was queued or not started is released at once; what runs, only when its step is over (LIF-2, LIF-3)."""
    answers: Counter[tuple[Decision, Reason]] = Counter()
    cancelled_at: dict[str, int] = {}
    delays: list[int] = []
    pages_drained = 0

    def ledger(entry: JournalEntry) -> None:
        if isinstance(entry.event, Cancel):
            answers[entry.reply.decision, entry.reply.reason] += 1
            if entry.reply.decision is Decision.ACCEPTED:
                cancelled_at[entry.event.key.request] = entry.now
        if isinstance(entry.event, Finish) and entry.event.key.request in cancelled_at:
            delays.append(entry.now - cancelled_at[entry.event.key.request])

    held: set[tuple[str | None, int | None]] = set()

    def pool(event: PageEvent) -> None:
        nonlocal pages_drained
        if event.name == "drop":
            held.add((None, event.page))
        if event.name in {"allocate", "share"}:
            held.discard((None, event.page))
        pages_drained += event.name == "settle" and (None, event.page) in held

    result = replay(
        mooncake(150),
        ReplayConfig(PoolConfig(tokens=131_072), cancellations=CancellationConfig(rate=0.6, within=5 * SECOND)),
        ledger_recorder=ledger,
        page_recorder=pool,
    )
    accepted = answers[Decision.ACCEPTED, Reason.NONE]
    released = answers[Decision.RELEASED, Reason.NONE]
    assert accepted > 5
    assert released > 5
    assert result.cancelled == accepted + released
    assert result.cancellations.sent == result.cancelled + result.cancellations.late
    assert result.cancellations.injected
    assert len(delays) == accepted
    assert max(delays) > 0
    assert pages_drained > 0
    assert ends(result) == 150


# --- Real workloads ---------------------------------------------------------------------------------------------


def test_mooncake_hits_what_an_endless_cache_would() -> None:
    """With room for everything, misses are blocks seen for the first time, and what runs at the same time."""
    some = mooncake(300)
    seen: set[int] = set()
    reusable = 0
    for each in some.requests:
        full = each.block_ids[: (each.input_tokens - 1) // 512]
        hits = next((place for place, block in enumerate(full) if block not in seen), len(full))
        reusable += 512 * hits
        seen.update(each.block_ids)
    result = replay(some, ReplayConfig(PoolConfig(tokens=512 * 16_384)))
    assert result.completed == 300
    assert result.hit_rate is not None
    hit_tokens = round(result.hit_rate * sum(each.input_tokens for each in some.requests))
    assert 0.95 * reusable <= hit_tokens <= reusable
    assert result.prefill_tokens + hit_tokens == sum(each.input_tokens for each in some.requests)
    assert result.generated_tokens == sum(each.output_tokens for each in some.requests)


def test_a_small_pool_refuses_and_keeps_its_accounts() -> None:
    result = replay(mooncake(120), ReplayConfig(PoolConfig(tokens=40_960), TimesConfig(queue_wait=4 * SECOND)))
    assert result.refused["NEVER_FITS"] > 0
    assert result.expired["QUEUE_TIMEOUT"] > 0
    assert ends(result) == result.offered == 120
    assert 0.5 < result.utilisation < result.peak_utilisation <= 1.0
    assert result.queue_wait.count == result.admitted


def test_vtc_runs_with_its_tenants() -> None:
    whole = packaged_trace("vtc")
    tenants: set[str] = set()

    def record(entry: JournalEntry) -> None:
        if isinstance(entry.event, Reserve):
            tenants.add(entry.event.key.tenant)

    result = replay(evolve(whole, requests=whole.requests[:150]), ledger_recorder=record)
    assert (result.completed, result.hit_rate) == (150, None)
    assert len(tenants) > 5


def journal(some: Trace, chosen: ReplayConfig) -> tuple[list[str], ReplayResult]:
    lines: list[str] = []
    result = replay(
        some,
        chosen,
        ledger_recorder=lambda entry: lines.append(repr(entry)),
        page_recorder=lambda event: lines.append(repr(event)),
    )
    return lines, evolve(result, seconds=0.0)


def test_equal_arguments_give_equal_journals_and_results() -> None:
    chosen = ReplayConfig(PoolConfig(tokens=131_072), cancellations=CancellationConfig(rate=0.3))
    first, again = journal(mooncake(8), chosen), journal(mooncake(8), chosen)
    assert len(first[0]) > 1000
    assert first == again


PROGRAM = """
from hashlib import sha256
from attrs import evolve
from kvescrow.reference.replay import CancellationConfig, PoolConfig, ReplayConfig, replay
from kvescrow.reference.traces import packaged_trace
trace, seen = packaged_trace("mooncake"), sha256()
take = lambda event: seen.update(repr(event).encode())
chosen = ReplayConfig(PoolConfig(tokens=131_072), cancellations=CancellationConfig(rate=0.3))
result = replay(evolve(trace, requests=trace.requests[:5]), chosen, ledger_recorder=take, page_recorder=take)
print(seen.hexdigest(), evolve(result, seconds=0.0).to_json())
"""


def test_the_hash_seed_changes_nothing() -> None:
    printed = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(printed) == 1


def test_the_result_is_json_and_names_what_is_synthetic() -> None:
    result = replay(mooncake(5), ReplayConfig(cancellations=CancellationConfig(rate=0.5)))
    read = json.loads(result.to_json())
    assert read["cost_model"]["synthetic"] is True
    assert read["cancellations"]["injected"] is True
    assert read["policy"]["order"] == "first-come"
    assert read["policy"]["pool_tokens"] == 524_288
    assert "Apache-2.0" in read["attribution"]
    assert read["queue_wait"]["count"] == read["admitted"] == 5


def test_a_run_is_checked_row_by_row() -> None:
    """Every event of ledger and pool is answered as the tables' rows answer, and the rows that matter are used."""
    some = trace(
        *(
            request(
                f"r{n}", 120 * n, 40 + 10 * (n % 3), 2 + n % 4, prefix_ids((n % 5 % 3, n % 3) * 3, 40 + 10 * (n % 3))
            )
            for n in range(40)
        )
    )
    chosen = config(
        tokens=12 * PAGE,
        times=TimesConfig(queue_wait=400),
        cancellations=CancellationConfig(rate=0.4, within=700),
    )
    monitor = Monitor(capacity_of(some, chosen).as_header())
    replay(
        some,
        chosen,
        ledger_recorder=lambda entry: monitor.feed(line_of(entry)),
        page_recorder=lambda event: monitor.feed(page_line(event)),
    )
    verdict = monitor.finish()
    assert verdict.findings == ()
    assert verdict.rows.keys() >= {
        "page.drop.private_draining",
        "page.drop.shared_cached",
        "page.evict.gone",
        "page.seal.published",
        "page.share.joined",
        "page.share.revived",
        "reservation.cancel.queued",
        "reservation.cancel.running",
        "reservation.finish.cancelled",
        "reservation.finish.completed",
        "reservation.promote.admit",
        "reservation.sweep.queue_timeout",
    }


def test_progress_is_told() -> None:
    seen: list[tuple[int, int]] = []
    replay(mooncake(60), progress=lambda ended, offered: seen.append((ended, offered)))
    assert seen == sorted(seen)
    assert {offered for _, offered in seen} == {60}


# --- What a user gets wrong -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pool", "message"),
    [
        (PoolConfig(tokens=32, page_length=16), "defaults: pool.tokens is 32: every request of hand-made would be"),
        (PoolConfig(page_length=16, tenant_tokens=32), "defaults: pool.tenant_tokens is 32: every request of hand-"),
        (PoolConfig(page_length=24), "defaults: pool.page_length is 24: blocks of hand-made have 16 tokens; set"),
        (PoolConfig(tokens=8, page_length=16), "defaults: pool.tokens is 8: that is 0 pages of 16 tokens; set"),
        (PoolConfig(tokens=10**9, page_length=1), "defaults: pool.tokens is 1000000000: that is 1000000000 pages"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused(pool: PoolConfig, message: str) -> None:
    some = trace(request("r", 0, 40, 3, (1, 2, 3)), request("s", 0, 100, 3, (1, 2, 3, 4, 5, 6, 7)))
    with pytest.raises(UserError) as caught:
        replay(some, ReplayConfig(pool))
    assert str(caught.value).startswith(message)


# --- What an implementation gets wrong --------------------------------------------------------------------------


def test_pages_that_are_never_given_back_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BatchPages, "release", lambda self, key: None)
    monkeypatch.setattr(BatchPages, "forget", lambda self, key, generation: None)
    with pytest.raises(ReplayFault, match=r"pages are taken, the ledger covers 0 tokens"):
        replay(trace(request("r", 0, 40, 3)), config())


def test_a_holder_of_pages_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BatchPages, "release", lambda self, key: None)
    with pytest.raises(ReplayFault, match=r"its pages were to be forgotten: LIVE"):
        replay(trace(request("r", 0, 40, 3)), config())


def test_pages_that_are_given_back_during_a_step_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Certifying a stop without waiting for the step in flight is refused by the worker's own records (REC-2)."""
    monkeypatch.setattr("kvescrow.reference.executions.Executions.in_flight", lambda self, key: 0)
    with pytest.raises(ReplayFault, match="expected CERTIFIED, found REFUSED: IN_FLIGHT"):
        replay(
            trace(request("r", 0, 40, 30)),
            config(cancellations=CancellationConfig(rate=1.0, within=500)),
        )


def test_a_lost_receipt_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work whose stop never reaches the ledger stays charged: the run's account differs from the live work's."""
    monkeypatch.setattr(Worker, "_confirm", lambda self, running, outcome: None)
    with pytest.raises(ReplayFault, match="its lease ran out although its owner renews it"):
        replay(trace(request("r", 0, 40, 3)), config())


# --- Any small workload -----------------------------------------------------------------------------------------

SMALL = st.lists(
    st.tuples(
        st.integers(0, 3_000),
        st.integers(1, 90),
        st.integers(1, 12),
        st.sampled_from(["a", "b"]),
        st.lists(st.integers(0, 2), min_size=6, max_size=6),
    ),
    min_size=1,
    max_size=12,
)


@given(SMALL, st.integers(7, 24), st.integers(1, 4), st.integers(1, 40), st.sampled_from([0.0, 0.5, 1.0]))
@settings(max_examples=150, deadline=None)
def test_every_request_ends_once_and_nothing_is_left(
    chosen: list[tuple[int, int, int, str, list[int]]], pool_pages: int, sequences: int, chunk: int, rate: float
) -> None:
    """The run checks accounts and pool at the end, and after each step that the ledger covers what the pool gave."""
    requests = [
        request(f"r{index}", arrival, prompt, output, prefix_ids(choices, prompt), tenant)
        for index, (arrival, prompt, output, tenant, choices) in enumerate(sorted(chosen))
    ]
    overruns = 0

    def record(entry: JournalEntry) -> None:
        nonlocal overruns
        overruns += isinstance(entry.event, Finish) and entry.event.receipt.used > entry.reply.bound

    result = replay(
        trace(*requests),
        config(
            tokens=pool_pages * PAGE,
            scheduler=SchedulerConfig(sequences=sequences, prefill_chunk=chunk),
            times=TimesConfig(queue_wait=2_000),
            cancellations=CancellationConfig(rate=rate, within=2_000),
        ),
        ledger_recorder=record,
    )
    assert ends(result) == result.offered == len(requests)
    assert overruns == 0
