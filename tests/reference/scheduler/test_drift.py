"""Page's test on residuals: what it lets pass, and what it calls failed (CHK-5)."""

from __future__ import annotations

import random

import pytest

from kvescrow.reference.scheduler import DriftDetector

PREDICTED = 10_000


def steps_until_failed(detector: DriftDetector, residuals: list[int]) -> int | None:
    """After how many steps it fails; residuals are in thousandths of the prediction."""
    for number, residual in enumerate(residuals, start=1):
        if detector.observe(PREDICTED, PREDICTED + PREDICTED * residual // 1000):
            return number
    return None


@pytest.mark.parametrize("off", [0, 49, -49])
def test_what_stays_inside_half_the_band_never_fails(off: int) -> None:
    assert steps_until_failed(DriftDetector(100), [off] * 1_000) is None


@pytest.mark.parametrize(("off", "steps"), [(100, 6), (-100, 6), (75, 11), (10_000, 6), (-900, 6)])
def test_a_lasting_shift_fails_the_model(off: int, steps: int) -> None:
    """Half a band a step is left of a shift of one band, and two and a half are too many; larger ones are clipped."""
    detector = DriftDetector(100)
    assert steps_until_failed(detector, [off] * 100) == steps
    assert detector.alarm is not None
    assert (detector.alarm.step, detector.alarm.slower) == (steps, off > 0)


def test_steps_that_were_held_up_are_no_drift() -> None:
    """Three in ten take ten times as long as predicted."""
    assert steps_until_failed(DriftDetector(100), [9_000, 0, 0, 9_000, 0, 0, 9_000, 0, 0, 0] * 200) is None


def test_a_failed_model_stays_failed() -> None:
    detector = DriftDetector(100)
    steps_until_failed(detector, [100] * 6)
    first = detector.alarm
    assert steps_until_failed(detector, [0] * 100) == 1
    assert detector.failed
    assert detector.alarm == first


def test_noise_of_the_stated_size_is_no_drift_and_a_shift_of_one_band_is_found_soon() -> None:
    """The band is two standard deviations, of twenty draws of five hundred steps each."""
    draw = random.Random(1)
    for _ in range(20):
        calm = [round(draw.gauss(0, 50)) for _ in range(500)]
        assert steps_until_failed(DriftDetector(100), calm) is None
        found = steps_until_failed(DriftDetector(100), [round(draw.gauss(100, 50)) for _ in range(60)])
        assert found is not None
