"""A larger chunk raises prompt throughput and lowers goodput, once it exceeds what the gap allows (EXP-1, REL-1)."""

from __future__ import annotations

import pytest

from kvescrow.checks.experiments.goodput import CHUNKS, Constraints, goodput
from kvescrow.checks.experiments.result import Experiment


@pytest.fixture(scope="module")
def found() -> Experiment:
    return goodput()


def column(found: Experiment, name: str) -> list[float]:
    place = found.columns.index(name)
    return [float(row[place].rstrip("%ms ").replace(",", "")) for row in found.rows]


def test_the_fastest_chunk_is_not_the_best(found: Experiment) -> None:
    best, fastest = found.figures["best_goodput"], found.figures["highest_throughput"]
    assert best["chunk"] < fastest["chunk"]
    assert fastest["goodput_per_second"] < best["per_second"] / 2
    assert best["share"] == 1.0


def test_throughput_rises_with_the_chunk_and_so_does_the_gap(found: Experiment) -> None:
    throughput, gaps = column(found, "prompt tokens/s"), column(found, "widest gap of chat")
    assert throughput == sorted(throughput)
    assert throughput[-1] > 2 * throughput[0]
    assert gaps == sorted(gaps)
    assert [int(chunk) for chunk in column(found, "chunk")] == list(CHUNKS)


def test_goodput_falls_where_the_gap_passes_its_objective(found: Experiment) -> None:
    """A step of 2,048 prompt tokens takes 5 + 20.48 ms and its decodes: within 30 ms; one of 4,096 takes 46 ms."""
    for gap, chat in zip(column(found, "widest gap of chat"), column(found, "chat"), strict=True):
        assert (chat > 90) == (gap <= 30)


def test_a_chunk_that_is_too_small_misses_as_well(found: Experiment) -> None:
    """The worker falls behind: steps of 256 tokens spend most of their time on their fixed cost."""
    assert column(found, "documents")[0] < 100
    assert column(found, "good requests/s")[0] < found.figures["best_goodput"]["per_second"]


def test_without_the_gap_the_fastest_is_as_good() -> None:
    free = goodput(Constraints(gap=1_000_000))
    assert free.figures["highest_throughput"]["goodput_per_second"] >= 0.99 * free.figures["best_goodput"]["per_second"]
    assert free.figures["best_goodput"]["chunk"] > 2048
