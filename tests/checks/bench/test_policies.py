"""Each policy is replayed on the same requests, and ours is held to what it promises."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from kvescrow.checks.bench.policies import OURS, PolicyReport, measure
from kvescrow.checks.cli.front import main


@pytest.fixture(scope="module")
def report() -> PolicyReport:
    return measure(40, lambda what: None)


def test_every_policy_has_the_same_requests(report: PolicyReport) -> None:
    assert {"estimate", "full-maximum", "no-evict", "watermark", "peak-formula"} == set(report.figures)
    assert {found["offered"] for found in report.figures.values()} == {40}
    assert report.holds
    assert len(report.rows()) == 6
    rows: Any = report.to_json()["rows"]
    assert [row["peer_name"] for row in rows] == [policy for policy in report.figures if policy != OURS]


@pytest.mark.parametrize(
    ("policy", "change"),
    [
        (OURS, {"preemptions": 1}),
        (OURS, {"broken_promises": 1}),
        ("watermark", {"goodput": {"met": 41}}),
    ],
)
def test_what_ours_promises_is_judged(report: PolicyReport, policy: str, change: dict[str, Any]) -> None:
    changed = {**report.figures, policy: {**report.figures[policy], **change}}
    assert not evolve(report, figures=changed).holds


def test_the_verb_draws_and_writes(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    written, drawn = tmp_path / "policies.json", tmp_path / "policies.png"
    with pytest.raises(SystemExit) as ended:
        main(["bench", "policies", "--requests", "10", "--json", str(written), "--plot", str(drawn)])
    assert ended.value.code == 0
    assert json.loads(written.read_text("utf-8"))["verdict"] == "passed"
    assert drawn.read_bytes().startswith(b"\x89PNG")
