"""The shape of a bench report, and rounds that take turns."""

from __future__ import annotations

import json

import pytest

from kvescrow.checks.bench.report import BenchReport, BenchRow, interleaved_rates, machine
from kvescrow.spec.vocabulary import UserError

REPORT = BenchReport(
    {"cores": "2"}, (BenchRow("miss", 3000.0, 2000.0, "peer", "1/s"), BenchRow("x", 1.0, None, "-", "s"))
)


def test_json_has_the_ratio_of_ours_to_the_peers() -> None:
    rows = json.loads(json.dumps(REPORT.to_json()))["rows"]
    assert rows[0] == {
        "name": "miss", "ours": 3000.0, "peer": 2000.0, "peer_name": "peer", "unit": "1/s", "ratio": 1.5,
    }  # fmt: skip
    assert rows[1]["ratio"] is None


def test_the_table_shows_each_row_and_the_machine() -> None:
    lines = REPORT.table().splitlines()
    assert lines[1].split() == ["miss", "3,000", "2,000", "1.50", "1/s", "peer"]
    assert lines[2].split() == ["x", "1", "-", "-", "s", "-"]
    assert lines[-1] == "cores 2"


def test_the_machine_is_named() -> None:
    assert all(machine()[name] for name in ("processor", "cores", "python", "system"))


def test_subjects_take_turns() -> None:
    order: list[tuple[str, int]] = []

    def subject(name: str) -> object:
        def run(number: int) -> int:
            order.append((name, number))
            return sum(range(10_000)) and 1

        return run

    rates = interleaved_rates((subject("a"), subject("b")), 3)
    assert order == [("a", 0), ("b", 0), ("b", 1), ("a", 1), ("a", 2), ("b", 2)]
    assert len(rates) == 2 and min(rates) > 0


def test_a_single_round_is_no_median() -> None:
    with pytest.raises(UserError, match="rounds: 2"):
        interleaved_rates((lambda number: 1,), 2)
