"""What answers to a requirement is found where it stands, and a gap or an outlived exception is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvescrow.checks.cli.front import main
from kvescrow.checks.trace import TraceReport, trace
from kvescrow.checks.uncovered import UNCOVERED
from kvescrow.spec.tables.promise import PROMISE
from kvescrow.spec.vocabulary import UserError

REQUIREMENTS = """\
# Requirements

## PAG: pages

- PAG-1 A promise is kept,
  whatever happens.
- PAG-77 It is quiet.
- PAG-78 It is quick.
"""
TEST = '''\
"""A file about PAG-77."""
DATA = "PAG-78 is no citation here"
class TestIt:
    """PAG-77 again."""
    def test_one(self):
        """It keeps PAG-77."""
def test_two():
    assert DATA  # PAG-77, and SHA-256 is no requirement
'''


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with three requirements, a test and a module."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "requirements.md").write_text(REQUIREMENTS, "utf-8")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_it.py").write_text(TEST, "utf-8")
    (tmp_path / "reference").mkdir()
    (tmp_path / "reference" / "pool.py").write_text('"""Keeps PAG-78."""\n', "utf-8")
    return tmp_path


def traced(checkout: Path, uncovered: dict[str, str] | None = None) -> TraceReport:
    found = trace(checkout, [PROMISE], uncovered or {})
    # The promise table cites requirements that this small checkout does not state.
    return TraceReport(found.covered, tuple(p for p in found.problems if not p.startswith("promise.")))


def test_rows_and_laws_are_found_in_the_tables(checkout: Path) -> None:
    first = traced(checkout).covered[0]
    assert first.requirement.id == "PAG-1"
    assert first.requirement.text == "A promise is kept, whatever happens."
    assert "promise.admit.pool_capacity" in first.rows
    assert "promise.promises_can_be_kept" in first.laws
    assert first.tests == ()


def test_tests_are_found_by_docstrings_and_comments_alone(checkout: Path) -> None:
    _, second, third = traced(checkout).covered
    assert set(second.tests) == {"tests/test_it.py", "tests/test_it.py::test_one", "tests/test_it.py::test_two"}
    assert third.tests == ()


def test_a_module_is_listed_and_covers_nothing(checkout: Path) -> None:
    report = traced(checkout)
    third = report.covered[2]
    assert third.modules == ("reference/pool.py",)
    assert not third.is_covered
    assert report.problems == ("PAG-78 has neither row, law nor test: write one, or list it with the reason",)
    assert report.verdict == "failed"


def test_a_listed_gap_passes(checkout: Path) -> None:
    assert traced(checkout, {"PAG-78": "not built"}).verdict == "passed"


def test_an_exception_that_has_outlived_its_cause_fails(checkout: Path) -> None:
    report = traced(checkout, {"PAG-78": "not built", "PAG-77": "not built"})
    assert report.problems == (
        "PAG-77 is listed as not covered, but tests/test_it.py answers to it: take it off the list",
    )


def test_what_is_no_requirement_is_told_wherever_it_stands(checkout: Path) -> None:
    (checkout / "tests" / "test_it.py").write_text('"""PAG-99 PAG-78."""\n', "utf-8")
    report = traced(checkout, {"PAG-77": "not built", "PAG-55": "not built"})
    assert report.problems == (
        "PAG-55 is listed as not covered, but it is no requirement",
        "PAG-99 is named in tests/test_it.py, but it is no requirement",
    )
    assert any("cites LIF-4" in problem for problem in trace(checkout, [PROMISE], {}).problems)


def test_outside_a_checkout_there_is_nothing_to_trace(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="run this in a checkout"):
        trace(tmp_path)


def test_this_checkout_is_covered_and_its_exceptions_are_open(repository: Path) -> None:
    report = trace(repository)
    assert report.problems == ()
    assert {each.requirement.id for each in report.covered if not each.is_covered} == set(UNCOVERED)
    assert all(len(reason.split()) >= 4 for reason in UNCOVERED.values())


def test_the_verb_shows_places_and_writes_json(
    repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["trace", "PAG-1", "--root", str(repository), "--json", str(tmp_path / "trace.json")])
    shown = capsys.readouterr().out
    assert "row    promise.admit.pool_capacity" in shown
    assert "PAG-2 " not in shown
    written = json.loads((tmp_path / "trace.json").read_text("utf-8"))["requirements"]
    assert written["PAG-1"]["laws"]
    assert list(written["PAG-1"]) == ["text", "rows", "laws", "tests", "modules"]


def test_a_requirement_that_there_is_not_is_refused(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["trace", "PAG-99", "--root", str(repository)])
    assert end.value.code == 2
    assert "no requirement is called PAG-99" in capsys.readouterr().err
