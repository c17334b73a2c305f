"""The verbs `grade` and `diagnose`: what they print, and how they exit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from attrs import evolve

from kvescrow.checks.cli.front import main
from kvescrow.reference.grading.files import write_run
from kvescrow.reference.grading.incidents.recipes import RECIPES, incident
from kvescrow.reference.grading.records import Run
from tests.reference.grading.runs import drawn, run

OBJECTIVES = """
[classes.chat]
attainment = 0.95
first_token = 500_000
completion = 5_000_000
[non_inferiority]
good = 0.02
token_gap = 0.02
"""
BASE = drawn(1)


def status(*arguments: str) -> int:
    with pytest.raises(SystemExit) as left:
        main(list(arguments))
    assert isinstance(left.value.code, int)
    return left.value.code


def graded(tmp_path: Path, candidate: Run) -> int:
    (tmp_path / "objectives.toml").write_text(OBJECTIVES)
    paths = [str(tmp_path / name) for name in ("base.jsonl", "candidate.jsonl")]
    for path, one in zip(paths, (BASE, candidate), strict=True):
        write_run(Path(path), one)
    return status(
        "grade", *paths, "--objectives", str(tmp_path / "objectives.toml"), "--json", str(tmp_path / "g.json")
    )


@pytest.mark.parametrize(
    ("candidate", "verdict", "expected"),
    [
        (drawn(2), "PASS", 0),
        (drawn(2, gaps=1.05), "FAIL", 1),
        (run(), "NO_DATA", 3),
        (evolve(BASE, offered=7), "INVALID_RUN", 5),
    ],
)
def test_the_status_tells_the_verdict(
    candidate: Run, verdict: str, expected: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert graded(tmp_path, candidate) == expected
    assert f"grade: {verdict}" in capsys.readouterr().out
    assert json.loads((tmp_path / "g.json").read_text())["verdict"] == verdict


def test_too_little_to_tell_has_a_status_of_its_own(tmp_path: Path) -> None:
    few = drawn(1, 40)
    (tmp_path / "o.toml").write_text(OBJECTIVES)
    write_run(tmp_path / "few.jsonl", few)
    assert status("grade", *[str(tmp_path / "few.jsonl")] * 2, "--objectives", str(tmp_path / "o.toml")) == 4


def test_a_mistake_is_told_and_not_traced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "o.toml").write_text("[classes.chat]\ncompletion = 'soon'\n")
    assert status("grade", "a", "b", "--objectives", str(tmp_path / "o.toml")) == 2
    told = capsys.readouterr().err
    assert "classes.chat: completion is 'soon'" in told and "Traceback" not in told


def test_diagnose_prints_parts_causes_and_what_would_tell_them_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [tmp_path / "before.jsonl", tmp_path / "after.jsonl"]
    for path, one in zip(paths, incident(RECIPES[0], 1), strict=True):
        write_run(path, one)
    assert status("diagnose", *map(str, paths), "--json", str(tmp_path / "d.json")) == 0
    told = capsys.readouterr().out
    assert "diagnose: device_slower" in told and "to tell them apart: " in told
    written = json.loads((tmp_path / "d.json").read_text())
    assert sum(written["parts_microseconds"].values()) == written["lost_microseconds"]
    assert status("diagnose", str(paths[0]), str(paths[0])) == 3
    assert "diagnose: insufficient: " in capsys.readouterr().out


def test_a_replay_writes_records_that_can_be_graded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A slower model of the device, on virtual time: the same requests, and every wait in a span."""
    (tmp_path / "slow.toml").write_text("[cost]\nfixed = 6_000_000\nper_prefill_token = 12_000\n")
    base, slow = str(tmp_path / "base.jsonl"), str(tmp_path / "slow.jsonl")
    assert status("replay", "mooncake", "--requests", "30", "--records", base) == 0
    assert status("replay", "mooncake", "--requests", "30", "--records", slow,
                  "--config", str(tmp_path / "slow.toml")) == 0  # fmt: skip
    assert status("diagnose", base, slow) == 0
    assert "diagnose: device_slower" in capsys.readouterr().out
    (tmp_path / "o.toml").write_text(OBJECTIVES.replace("chat", "all").replace("500_000", "60_000_000")
                                     .replace("5_000_000", "900_000_000").replace("0.95", "0.5")
                                     + '[waive]\ncorrectness = "no output"\n')  # fmt: skip
    assert status("grade", base, slow, "--objectives", str(tmp_path / "o.toml")) == 1
    assert "token_gap: gain -" in capsys.readouterr().out
