"""Fits of steps whose cost is known: what is found again in spite of noise and of steps that were held up (CHK-2)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from kvescrow.reference.scheduler import (
    Checked,
    CostModel,
    MeasuredStep,
    StepCost,
    WorkRange,
    calibrated,
    checked,
    of_chunk,
    of_decodes,
)
from kvescrow.reference.scheduler.calibration import residual
from kvescrow.spec.vocabulary import UserError

TRUE = StepCost(2_500_000, 16_000, 80_000, 600, 85_000_000)
Noise = Callable[[random.Random], float]


def exact(draw: random.Random) -> float:
    return 1.0


def noisy(draw: random.Random) -> float:
    """A few per cent, and one step in twenty that takes up to ten times as long."""
    return draw.gauss(1, 0.03) * (draw.uniform(2, 10) if draw.random() < 0.05 else 1)


def steps(seed: int, number: int, noise: Noise, cost: StepCost = TRUE) -> list[MeasuredStep]:
    return list(_steps(random.Random(seed), number, noise, cost))


def _steps(draw: random.Random, number: int, noise: Noise, cost: StepCost) -> Iterator[MeasuredStep]:
    for _ in range(number):
        decodes = of_decodes(draw.randrange(500) for _ in range(draw.choice((0, 1, 4, 8))))
        length = draw.choice((8, 64, 256, 512) if not decodes.decode_sequences else (0, 8, 64, 256, 512))
        work = decodes + of_chunk(draw.randrange(1_500), length) if length else decodes
        yield MeasuredStep(work, max(1, round(cost.duration(work) * noise(draw))))


def test_exact_steps_give_the_coefficients_back() -> None:
    model = calibrated(steps(1, 200, exact), steps(2, 100, exact))
    for name in ("fixed", "per_prefill_token", "per_decode_sequence", "per_context_token", "per_attended_pair"):
        assert getattr(model.cost, name) == pytest.approx(getattr(TRUE, name), rel=0.01)
    assert model.band <= 2
    assert checked(model, steps(3, 100, exact)).holds


def test_steps_that_were_held_up_pull_little() -> None:
    """A mean would be off by a fifth."""
    model = calibrated(steps(1, 300, noisy), steps(2, 300, exact))
    result = checked(model, steps(3, 300, exact))
    assert abs(result.median) < 20
    assert result.largest < 60


def test_the_band_holds_what_it_says_of_unseen_steps() -> None:
    """99 in 100 of a second part lie inside by construction; of a third about as many do."""
    model = calibrated(steps(1, 400, noisy), steps(2, 400, noisy))
    second = checked(model, steps(2, 400, noisy))
    assert second.steps - second.inside == 3
    assert checked(model, steps(3, 400, noisy)).holds


def test_a_machine_that_became_slower_is_outside() -> None:
    """CHK-5: every step takes half as long again."""
    model = calibrated(steps(1, 200, exact), steps(2, 100, exact))
    result = checked(model, steps(3, 100, lambda draw: 1.5))
    assert not result.holds
    assert result.median == pytest.approx(500, abs=5)


def test_the_range_is_what_was_measured() -> None:
    parts = steps(1, 100, exact), steps(2, 100, exact)
    limit = calibrated(*parts).range
    assert limit is not None
    for step in (*parts[0], *parts[1]):
        assert limit.covers(step.work)
    assert not limit.covers(of_chunk(0, limit.prefill_tokens + 1))


def test_no_coefficient_is_negative() -> None:
    """What costs nothing is found to cost nothing, whatever the noise says."""
    free = StepCost(1_000_000, 10_000, 0, 0, 0)
    cost = calibrated(steps(1, 200, noisy, free), steps(2, 200, noisy, free)).cost
    assert min(cost.per_decode_sequence, cost.per_context_token, cost.per_attended_pair) >= 0
    assert cost.per_prefill_token == pytest.approx(10_000, rel=0.1)


def test_counts_are_exact() -> None:
    model = CostModel(StepCost(1_000_000, 0, 0, 0), WorkRange(0, 1, 1, 0), band=100)
    work = of_decodes([1])
    seen = [MeasuredStep(work, took) for took in (1_000, 1_100, 1_101, 900, 899)]
    assert [residual(model, step) for step in seen] == [0, 100, 101, -100, -101]
    assert checked(model, seen) == Checked(steps=5, inside=3, median=0, typical=100, largest=101)
    assert Checked(100, 95, 0, 0, 0).holds
    assert not Checked(100, 94, 0, 0, 0).holds


def test_too_little_is_refused() -> None:
    with pytest.raises(UserError, match="99 measured steps are too few"):
        calibrated(steps(1, 99, exact), steps(2, 100, exact))
    with pytest.raises(UserError, match="no step was held out"):
        checked(CostModel(), [])
