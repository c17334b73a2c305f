"""The chunk rule in a replay: no gap passes the budget, and where that cannot be, the result says so."""

from __future__ import annotations

import pytest
from attrs import evolve

from kvescrow.reference.replay import ReplayConfig, replay
from kvescrow.reference.replay.config import SchedulerConfig
from kvescrow.reference.replay.result import ReplayResult
from kvescrow.reference.traces import packaged_trace
from kvescrow.spec.vocabulary import UserError


def run(gap_budget: int | None, requests: int = 60) -> ReplayResult:
    trace = packaged_trace("mooncake")
    some = evolve(trace, requests=trace.requests[:requests])
    return replay(some, ReplayConfig(scheduler=SchedulerConfig(gap_budget=gap_budget)))


def test_no_gap_passes_the_budget_and_the_budget_is_used() -> None:
    """CHK-1: a chunk of 2,048 tokens takes 25 ms; beside decodes the rule takes less of it."""
    free, bound = run(None), run(15_000)
    assert free.token_gap.maximum is not None
    assert bound.token_gap.maximum is not None
    assert free.token_gap.maximum > 25_000
    assert 14_900 < bound.token_gap.maximum <= 15_000
    assert bound.completed == free.completed == 60
    assert bound.prefill_tokens == free.prefill_tokens
    assert bound.steps > free.steps
    assert (free.held_back, bound.held_back) == ({}, {})


def test_a_budget_that_binds_nothing_changes_nothing() -> None:
    assert evolve(run(1_000_000), policy={}, seconds=0) == evolve(run(None), policy={}, seconds=0)


def test_a_budget_below_the_decodes_is_told_and_prompts_wait_for_their_end() -> None:
    """CHK-3: five milliseconds are the fixed part of a step, so only prompts that nobody decodes beside go on."""
    result = run(5_000, requests=6)
    assert set(result.held_back) == {"GAP_TOO_SMALL_FOR_DECODE"}
    assert result.completed == 6


def test_a_budget_that_leaves_no_chunk_is_told_apart() -> None:
    """CHK-3: one decode takes 5.05 ms and what it reads; the smallest chunk 10 microseconds more and what it reads."""
    assert "NO_CHUNK_FITS" in run(5_150, requests=6).held_back


def test_the_budget_is_in_the_policy_and_checked() -> None:
    assert run(20_000, requests=2).policy["gap_budget"] == 20_000
    with pytest.raises(UserError, match="gap_budget is 0: set it to an integer from 1"):
        SchedulerConfig(gap_budget=0)
