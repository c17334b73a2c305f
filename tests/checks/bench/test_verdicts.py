"""What the measuring verbs exit with: only what was measured as it was asked for passes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvescrow.checks.bench.report import BenchReport, BenchRow
from kvescrow.checks.cli.front import main
from kvescrow.checks.targets.measured import OtherWork


def status(file: Path, *arguments: str) -> tuple[object, dict[str, object]]:
    with pytest.raises(SystemExit) as left:
        main(["bench", *arguments, "--json", str(file)])
    return left.value.code, json.loads(file.read_text("utf-8"))


def report(peer: float | None) -> BenchReport:
    name = "TLC" if peer else "TLC: java is not installed"
    return BenchReport(
        {}, (BenchRow("search", 2.0, peer, name, "states/s"), BenchRow("prove", 1.0, None, "none", "1/s"))
    )


@pytest.mark.parametrize(
    ("peer", "asked", "expected"),
    [(1.0, ("--peer", "TLC"), (0, "passed")), (None, (), (0, "passed")), (None, ("--peer", "TLC"), (3, "not_run"))],
)
def test_a_peer_that_is_named_and_has_no_figure_is_not_run(
    peer: float | None,
    asked: tuple[str, ...],
    expected: tuple[int, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kvescrow.checks.bench.check.measure", lambda **asked: report(peer))
    code, found = status(tmp_path / "r.json", "check", *asked)
    assert (code, found["verdict"]) == expected


@pytest.mark.parametrize("verb", ["pages", "ledger", "check"])
def test_a_subject_that_does_other_work_fails_the_measurement(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(*arguments: object, **named: object) -> BenchReport:
        raise OtherWork("3 tokens were cached, not 2")

    monkeypatch.setattr(f"kvescrow.checks.bench.{verb}.measure", measure)
    code, found = status(tmp_path / "r.json", verb)
    assert (code, found) == (1, {"verdict": "failed", "fault": "3 tokens were cached, not 2"})
