"""The workload of a run: deterministic, equal blocks equal tokens, twins across tenants, declared cancels (CON-1)."""

from __future__ import annotations

from collections import Counter

import pytest

from kvescrow.gpu_harness.conform.workload import (
    BLOCK,
    ECHO_DELAY,
    LONGEST_OUTPUT,
    LONGEST_PROMPT,
    OWNERS,
    REPEAT,
    REPEAT_EVERY,
    SCALE,
    TWIN,
    TWIN_EVERY,
    WHILE_WAITING,
    Planned,
    any_token,
    workload,
)
from kvescrow.reference.traces import Trace, TraceFormat, TraceRequest, packaged_trace
from kvescrow.spec.vocabulary import UserError

CHUNK = 40


def plan(requests: int = 64, seed: int = 1, rate: float = 0.2) -> tuple[Planned, ...]:
    return workload(
        packaged_trace("mooncake"), requests=requests, seed=seed, tokens=any_token(512), chunk=CHUNK, cancel_rate=rate
    )


def of(*requests: TraceRequest) -> tuple[Planned, ...]:
    trace = Trace("made", TraceFormat.MOONCAKE, requests, "made for a test")
    return workload(trace, requests=len(requests), seed=1, tokens=any_token(512), chunk=CHUNK)


def test_the_same_arguments_give_the_same_workload_and_the_seed_another() -> None:
    assert plan() == plan()
    assert plan(seed=2)[0].prompt != plan()[0].prompt


def test_lengths_stay_within_the_bounds_and_end_everywhere_in_a_page() -> None:
    planned = plan(200)
    assert {len(each.prompt) <= LONGEST_PROMPT and 1 <= each.output <= LONGEST_OUTPUT for each in planned} == {True}
    assert {len(each.prompt) % 16 for each in planned} == set(range(16))


def test_equal_blocks_give_equal_tokens_and_others_do_not() -> None:
    one = TraceRequest("one", "t", 0, BLOCK * 2 * SCALE, 16, (7, 8), 512)
    other = TraceRequest("other", "t", 0, BLOCK * 2 * SCALE, 16, (7, 9), 512)
    first, second = of(one, other)
    assert first.prompt[:BLOCK] == second.prompt[:BLOCK]
    assert first.prompt[BLOCK:] != second.prompt[BLOCK:]


def test_blocks_of_another_length_are_made_smaller_by_the_same_factor() -> None:
    size = 64 // SCALE
    one = TraceRequest("one", "t", 0, 64 * 3, 16, (7, 8, 9), 64)
    other = TraceRequest("other", "t", 0, 64 * 3 - SCALE, 16, (7, 8, 10), 64)
    first, second = of(one, other)
    assert (len(first.prompt), len(second.prompt)) == (3 * size, 3 * size - 1)
    assert first.prompt[: 2 * size] == second.prompt[: 2 * size]
    assert first.prompt[2 * size : -1] != second.prompt[2 * size :]


def test_prompts_of_ragpulse_share_what_opens_them_and_go_their_own_ways() -> None:
    planned = workload(packaged_trace("ragpulse"), requests=100, seed=1, tokens=any_token(512), chunk=CHUNK)
    offered = [each.prompt for each in planned if not each.key.request.endswith((TWIN, REPEAT))]
    (shared,) = Counter(prompt[: 1024 // SCALE] for prompt in offered).most_common(1)
    assert shared[1] > 60
    assert len(set(offered)) == 100


def test_requests_without_block_ids_share_nothing() -> None:
    one = TraceRequest("one", "t", 0, BLOCK * SCALE, 16)
    other = TraceRequest("other", "t", 0, BLOCK * SCALE, 16)
    first, second = of(one, other)
    assert first.prompt != second.prompt


def test_prompts_are_offered_again_later_by_another_tenant_and_by_the_same() -> None:
    planned = {each.key.request: each for each in plan(80)}
    twins = [(planned[name.removesuffix(TWIN)], each) for name, each in planned.items() if each.is_twin]
    repeats = [(planned[name.removesuffix(REPEAT)], each) for name, each in planned.items() if name.endswith(REPEAT)]
    assert (len(twins), len(repeats)) == (80 // TWIN_EVERY, 80 // REPEAT_EVERY)
    for original, echo in twins + repeats:
        assert (echo.prompt, echo.output) == (original.prompt, original.output)
        assert echo.arrival == original.arrival + ECHO_DELAY
        assert (echo.key.tenant == original.key.tenant) == (not echo.is_twin)
        assert echo.key.tenant == OWNERS[echo.scope][0]
    assert {each.scope for each in planned.values()} == set(range(len(OWNERS)))


def test_requests_come_in_order_and_at_one_rate_whatever_was_recorded() -> None:
    slow = [TraceRequest(str(number), "t", number * 10**7, 64, 16) for number in range(5)]
    fast = [TraceRequest(str(number), "t", number * 10, 64, 16) for number in range(5)]
    assert [each.arrival for each in of(*slow)] == [each.arrival for each in of(*fast)]
    arrivals = [each.arrival for each in plan(80)]
    assert arrivals == sorted(arrivals)


def test_a_higher_rate_adds_cancels_and_moves_none() -> None:
    few, many = plan(rate=0.2), plan(rate=0.6)
    chosen = [(one.cancel_at, other.cancel_at) for one, other in zip(few, many, strict=True)]
    assert all(before in (None, after) for before, after in chosen)
    assert sum(before is None for before, _ in chosen) > sum(after is None for _, after in chosen) > 0
    assert WHILE_WAITING in {before for before, _ in chosen}
    assert all(each.cancel_at is None for each in plan(rate=0.0))


@pytest.mark.parametrize("requests", [0, -1, 1001])
def test_more_requests_than_the_trace_has_are_refused(requests: int) -> None:
    with pytest.raises(UserError, match=f"requests: {requests} asked for, but mooncake has 1 to 1000"):
        plan(requests)
