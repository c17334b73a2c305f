"""Figures by hand."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kvescrow.reference.replay.measures import Quantiles, TimeWeighted, quantiles


def test_a_mean_weighs_each_value_by_its_time() -> None:
    counter = TimeWeighted()
    counter.change(10, 4)  # 0 for 10
    counter.change(20, 6)  # 4 for 10
    counter.change(25, -10)  # 10 for 5
    assert counter.mean(50) == (4 * 10 + 10 * 5) / 50
    assert (counter.value, counter.peak) == (0, 10)
    assert TimeWeighted().mean(0) == 0.0


def test_quantiles_are_samples() -> None:
    assert quantiles([]) == Quantiles(0, None, None, None, None)
    assert quantiles([7]) == Quantiles(1, 7, 7, 7, 7)
    assert quantiles(range(100, 0, -1)) == Quantiles(100, 50, 90, 99, 100)


@given(st.lists(st.integers(0, 1000), min_size=1))
def test_a_quantile_has_its_share_at_or_below_it(samples: list[int]) -> None:
    found = quantiles(samples)
    for value, percent in ((found.p50, 50), (found.p90, 90), (found.p99, 99)):
        assert value is not None
        assert sum(sample <= value for sample in samples) * 100 >= percent * len(samples)
        assert sum(sample < value for sample in samples) * 100 < percent * len(samples)
