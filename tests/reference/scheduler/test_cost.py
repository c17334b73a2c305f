"""The linear cost model, by hand-computed figures (CHK-2)."""

from __future__ import annotations

import pytest

from kvescrow.reference.scheduler import CostModel, StepCost, StepWork, WorkRange, of_chunk, of_decodes

COST = StepCost(fixed=5_000, per_prefill_token=100, per_decode_sequence=30, per_context_token=1)


@pytest.mark.parametrize(
    ("work", "microseconds"),
    [
        (StepWork(), 5),
        (StepWork(prefill_tokens=10), 6),
        (StepWork(prefill_tokens=10, decode_sequences=1), 7),  # 6.03, rounded up
        (StepWork(decode_sequences=2, context_tokens=940), 6),
        (of_chunk(start=900, length=10) + of_decodes([40, 60]), 8),  # 5,000 + 1,000 + 60 + 1,000 = 7,060
    ],
)
def test_duration(work: StepWork, microseconds: int) -> None:
    assert COST.duration(work) == microseconds


def test_work_of_a_chunk_and_of_decodes() -> None:
    pairs = sum(range(513, 613))  # each token attends to itself and to all before it
    assert of_chunk(start=512, length=100) == StepWork(prefill_tokens=100, context_tokens=512, attended_pairs=pairs)
    assert of_decodes([7, 8]) == StepWork(decode_sequences=2, context_tokens=15)
    assert of_decodes([]) == StepWork()


def test_a_pair_costs_femtoseconds_and_nothing_is_rounded_twice() -> None:
    """CHK-2: a thousand pairs of 7 femtoseconds are 7 picoseconds, which a microsecond hides and a sum does not."""
    cost = StepCost(999, 0, 0, 0, per_attended_pair=7)
    assert cost.femtoseconds(StepWork(attended_pairs=1_000)) == 999_007_000
    assert cost.duration(StepWork(attended_pairs=1_000)) == 1
    assert cost.duration(StepWork(attended_pairs=10**9)) == 8
    work = of_chunk(3, 4) + of_decodes([5])
    assert work.times(2) == work + work
    assert COST.femtoseconds(work.times(3), steps=3) == 3 * COST.femtoseconds(work)


def test_a_model_says_where_it_holds_and_how_far_it_may_be_off() -> None:
    """CHK-2: both sides of each bound of the range, and the upper edge of the band, rounded up once."""
    model = CostModel(COST, WorkRange(8, 2, 40, 100), band=250)
    assert model.covers(StepWork(8, 2, 40, 100))
    for beyond in (StepWork(9, 2, 40, 100), StepWork(8, 3, 40, 100), StepWork(8, 2, 41, 100), StepWork(8, 2, 40, 101)):
        assert not model.covers(beyond)
    assert CostModel(COST).covers(StepWork(10**9, 10**9, 10**9, 10**9))
    assert model.at_most(StepWork()) == 7  # 6.25
    assert model.at_most(StepWork(), steps=4) == 25
    assert CostModel(COST).at_most(StepWork(prefill_tokens=10)) == COST.duration(StepWork(prefill_tokens=10))


def test_every_step_takes_time() -> None:
    assert StepCost(1, 0, 0, 0).duration(StepWork()) == 1
    with pytest.raises(ValueError, match="must be >= 1"):
        StepCost(fixed=0)
    with pytest.raises(ValueError, match="must be >= 0"):
        StepCost(per_context_token=-1)
