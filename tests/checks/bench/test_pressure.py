"""Both sides are judged by the same laws, repeat themselves, and count a history once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from attrs import evolve

from kvescrow.checks.bench.pressure import CALLS, PressureReport, Side, measure
from kvescrow.checks.cli.front import main
from kvescrow.checks.targets.protocols import Granted, ManagerPool, ManagerSetup
from kvescrow.checks.targets.subject import Kind, Subject
from kvescrow.spec.vocabulary import PrefixScope, UserError

RUNS = 20


class ForgetsEveryPage:
    """Grants room without a page."""

    def __init__(self, setup: ManagerSetup) -> None:
        self.total = setup.pages

    def submit(self, request: str, prompt: Sequence[int], scope: PrefixScope) -> Granted:
        return Granted()

    def reserve(self, request: str, tokens: int) -> Granted:
        return Granted()

    def release(self, request: str) -> None:
        pass

    def evict(self) -> None:
        pass

    def pages_of(self, request: str) -> tuple[int, ...]:
        return ()

    def pool(self) -> ManagerPool:
        return ManagerPool(self.total, frozenset(range(self.total)), frozenset(), {})

    def close(self) -> None:
        pass


def test_a_fault_that_every_history_meets_is_counted_once_in_each() -> None:
    said: list[str] = []
    report = measure("toy", Subject(Kind.MANAGER, ForgetsEveryPage), RUNS, 3, said.append)
    assert report.plain.findings["room"] == RUNS
    assert report.plain.per_thousand() == 1000
    assert 0 < report.pressed.calls <= RUNS * CALLS
    assert said == ["toy, with pressure: 20 runs", "toy, uniform: 20 runs"]
    figures = report.to_json()["findings_per_thousand_runs"]
    assert isinstance(figures, dict)
    assert figures["uniform"] == {"all": 1000.0, "room": 1000.0}
    assert report.rows()[1][0] == "all"
    assert measure("toy", Subject(Kind.MANAGER, ForgetsEveryPage), RUNS, 3, said.append) == report


@pytest.mark.parametrize("kind", sorted(set(Kind) - {Kind.MANAGER, Kind.SCHEDULER}, key=str))
def test_a_target_of_another_kind_is_refused(kind: Kind) -> None:
    with pytest.raises(UserError, match="'toy': pressure is measured on a manager or a scheduler"):
        measure("toy", Subject(kind, ForgetsEveryPage), 1, 0, print)


def test_a_known_deviation_counts_like_any_finding() -> None:
    from kvescrow.checks.targets.subject import ListedDeviation

    steps = (("submit", "r0", (1,), PrefixScope("a")), ("reserve", "r0", 1))
    listed = ListedDeviation("known", "room", "no page at all", steps)
    subject = Subject(Kind.MANAGER, ForgetsEveryPage)
    known = measure("toy", evolve(subject, deviations=(listed,)), 5, 0, lambda line: None)
    assert known == measure("toy", subject, 5, 0, lambda line: None)


class Closes(ForgetsEveryPage):
    """And fails at its end."""

    def close(self) -> None:
        raise ZeroDivisionError


def test_an_error_at_the_end_of_a_history_does_not_hide_what_was_found_in_it() -> None:
    report = measure("toy", Subject(Kind.MANAGER, Closes), RUNS, 3, lambda line: None)
    assert report.plain.findings["room"] == RUNS


@pytest.mark.parametrize(
    ("pressed", "plain", "verdict"), [(3, 3, "passed"), (3, 0, "passed"), (2, 3, "failed"), (0, 0, "vacuous")]
)
def test_pressure_that_finds_less_than_uniform_draws_does_not_pass(pressed: int, plain: int, verdict: str) -> None:
    sides = (Side(10, findings=Counter({"room": found})) for found in (pressed, plain))
    assert PressureReport("toy", *sides).verdict == verdict


def _status(monkeypatch: pytest.MonkeyPatch, subject: Subject, file: Path) -> tuple[object, dict[str, object]]:
    monkeypatch.setattr("kvescrow.checks.targets.registry.subject_called", lambda name: subject)
    with pytest.raises(SystemExit) as left:
        main(["bench", "pressure", "--target", "toy", "--runs", "3", "--json", str(file)])
    return left.value.code, json.loads(file.read_text("utf-8"))


def test_the_exit_status_is_the_verdicts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    status, found = _status(monkeypatch, Subject(Kind.MANAGER, ForgetsEveryPage), tmp_path / "p.json")
    assert (status, found["verdict"]) == (0, "passed")


def test_a_target_that_is_not_installed_is_not_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def missing(setup: ManagerSetup) -> None:
        raise UserError("it is not installed")

    status, found = _status(monkeypatch, Subject(Kind.MANAGER, missing), tmp_path / "p.json")
    assert (status, found) == (3, {"verdict": "not_run", "reason": "it is not installed"})
