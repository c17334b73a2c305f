"""Bounds err as rarely as they say, with one look and with ten, and dependence widens them."""

from __future__ import annotations

import numpy as np
import pytest

from kvescrow.reference.grading.statistics import (
    ErrorRates,
    design_effect,
    difference_bounds,
    exact_bounds,
    mean_bounds,
    sequence_bounds,
    share_bounds,
)

ONE, TEN = ErrorRates(0.05, 0.05), ErrorRates(0.05, 0.05, looks=10)


@pytest.mark.parametrize(
    ("target", "confidence", "misses", "needed"),
    [(0.90, 0.95, 0, 29), (0.95, 0.95, 0, 59), (0.99, 0.95, 0, 299), (0.99, 0.99, 0, 459), (0.99, 0.95, 1, 473)],
)
def test_one_look_needs_as_many_requests_as_the_tables_say(
    target: float, confidence: float, misses: int, needed: int
) -> None:
    """REL-3: 99 % attainment at 95 % confidence needs 299 requests without a miss."""
    assert exact_bounds(needed - misses, needed, 1 - confidence)[0] >= target
    assert exact_bounds(needed - 1 - misses, needed - 1, 1 - confidence)[0] < target


def test_bounds_of_the_ends_are_the_ends() -> None:
    for bounds in (exact_bounds, sequence_bounds):
        assert bounds(0, 10, 0.05)[0] == 0.0
        assert bounds(10, 10, 0.05)[1] == 1.0
        low, high = bounds(5, 10, 0.05)
        assert 0 < low < 0.5 < high < 1
    assert share_bounds(0, 0, ONE).high == 1.0


def test_a_sequence_is_where_the_likelihood_ratio_reaches_its_limit() -> None:
    """The bound solves the equation that defines it: one miss in ten at 5 %, checked by hand.

    B(9.5, 1.5) / B(0.5, 0.5) = 0.0185471 * 0.05 must equal p^9 (1 - p) there.
    """
    low, high = sequence_bounds(9, 10, 0.05)
    for bound in (low, high):
        assert bound**9 * (1 - bound) == pytest.approx(0.05 * 0.0092735, rel=1e-3)


@pytest.mark.parametrize("share", [0.5, 0.9, 0.99])
def test_looking_ten_times_errs_no_more_than_stated_with_a_sequence_and_more_with_the_exact_interval(
    share: float,
) -> None:
    """REL-3: on a system exactly at its target, ever above the lower or below the upper bound, over 1,000 runs."""
    runs, looks, step = 1000, 10, 60
    draw = np.random.default_rng(1)
    good = np.cumsum(draw.binomial(step, share, (runs, looks)), axis=1)
    counts = step * np.arange(1, looks + 1)

    def ever_wrong(bounds: object, side: int) -> int:
        known: dict[tuple[int, int], bool] = {}
        wrong = 0
        for row in good:
            for pair in zip(row.tolist(), counts.tolist(), strict=True):
                if pair not in known:
                    bound = bounds(*pair, 0.05)[side]  # type: ignore[operator]
                    known[pair] = bound > share if side == 0 else bound < share
                if known[pair]:
                    wrong += 1
                    break
        return wrong

    assert ever_wrong(sequence_bounds, 0) <= 50
    assert ever_wrong(sequence_bounds, 1) <= 50
    assert max(ever_wrong(exact_bounds, 0), ever_wrong(exact_bounds, 1)) > 60


def test_blocks_that_fail_together_widen_a_share() -> None:
    draw = np.random.default_rng(2)
    independent = (draw.random(1000) < 0.9).astype(float)
    together = np.repeat((draw.random(50) < 0.9).astype(float), 20)
    assert design_effect(independent, 1) == 1.0
    assert design_effect(independent, 20) < 2.0
    assert design_effect(together, 20) > 10.0
    assert design_effect(np.ones(1000), 20) == 20.0


def test_a_mean_is_bounded_at_the_stated_rate_even_where_requests_hang_together() -> None:
    """400 runs of a mean that is 0, with noise that ten requests in a row share: only blocks see it."""
    wrong = {1: 0, 20: 0}
    for seed in range(400):
        draw = np.random.default_rng(seed)
        values = np.repeat(draw.normal(0, 1, 60), 10) + draw.normal(0, 0.5, 600)
        for block in wrong:
            bounds = mean_bounds(values[:90] if block == 1 else values, block, ONE)
            assert bounds is not None
            wrong[block] += bounds.low > 0
    assert wrong[20] <= 0.08 * 400
    assert wrong[1] > 0.15 * 400


def test_too_few_blocks_give_no_bound() -> None:
    assert mean_bounds(np.zeros(19), 1, ONE) is None
    assert mean_bounds(np.zeros(199), 10, ONE) is None
    assert mean_bounds(np.ones(20), 1, ONE) is not None


def test_several_looks_share_the_error_of_a_mean() -> None:
    values = np.random.default_rng(3).normal(0, 1, 500)
    one, ten = mean_bounds(values, 1, ONE), mean_bounds(values, 1, TEN)
    assert one is not None and ten is not None
    assert ten.low < one.low < one.estimate < one.high < ten.high


def test_pairs_that_all_agree_leave_room_for_what_was_not_seen() -> None:
    """Twenty pairs without a loss say nothing of one request in a hundred; six hundred do."""
    few, many = (difference_bounds(np.zeros(count), 1, ONE) for count in (20, 600))
    assert few.low < -0.1 and few.high > 0.1
    assert -0.01 < many.low < 0 < many.high < 0.01
    lost = difference_bounds(np.array([-1.0] * 30 + [0.0] * 970), 1, ONE)
    assert lost.high < -0.01 and lost.estimate == -0.03
