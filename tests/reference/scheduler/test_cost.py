"""The linear cost model, by hand-computed figures (CHK-2)."""

from __future__ import annotations

import pytest

from kvescrow.reference.scheduler import StepCost, StepWork, of_chunk, of_decodes

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
    assert of_chunk(start=512, length=100) == StepWork(prefill_tokens=100, context_tokens=512)
    assert of_decodes([7, 8]) == StepWork(decode_sequences=2, context_tokens=15)
    assert of_decodes([]) == StepWork()


def test_every_step_takes_time() -> None:
    assert StepCost(1, 0, 0, 0).duration(StepWork()) == 1
    with pytest.raises(ValueError, match="must be >= 1"):
        StepCost(fixed=0)
    with pytest.raises(ValueError, match="must be >= 0"):
        StepCost(per_context_token=-1)
