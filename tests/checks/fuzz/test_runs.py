"""A run as a whole: what it needs to pass, what it says where it does not, and that it repeats itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve, fields

from kvescrow.checks.fuzz import TARGETS, FuzzResult, run_fuzz
from kvescrow.checks.fuzz import run as runs
from kvescrow.checks.fuzz.pages import SCOPES
from kvescrow.checks.fuzz.profiles import PROFILES, settings_of
from kvescrow.checks.fuzz.result import FAILED, PASSED, UNCOVERED
from kvescrow.checks.fuzz.run import fuzz
from kvescrow.checks.targets.ledgers import memory_subject, open_memory
from kvescrow.checks.targets.protocols import LedgerFacts
from kvescrow.checks.targets.subject import Kind, Subject
from kvescrow.spec.tables.registry import TABLE_BY_NAME
from kvescrow.spec.vocabulary import PrefixScope, UserError

SHORT = evolve(PROFILES["pr"], least_rounds=1, most_rounds=1)


def same(one: FuzzResult, other: FuzzResult) -> bool:
    return evolve(one, seconds=0.0) == evolve(other, seconds=0.0)


def test_the_reference_passes_with_every_row_and_guard_seen() -> None:
    # That of pages, which takes a minute, is run for the coverage of the tables (`test_coverage`).
    result = run_of(memory_subject())
    assert (result.verdict, result.holes, result.failure) == (PASSED, (), "")
    assert result.rows_hit == result.rows > 0
    assert result.guards_hit + len(result.unreachable) == result.guards > 0


def run_of(subject: Subject) -> FuzzResult:
    return fuzz("reference", subject, evolve(PROFILES["pr"], least_rounds=1))


def test_a_run_that_saw_too_little_does_not_pass_and_names_what_it_missed() -> None:
    result = fuzz("reference", memory_subject(), evolve(SHORT, examples=2))
    assert result.verdict == UNCOVERED
    assert result.rows_hit < result.rows
    rows = {row_id for name in ("reservation", "account") for row_id in TABLE_BY_NAME[name].row_by_id}
    assert len(rows.intersection(result.holes)) == result.rows - result.rows_hit, "each row that was missed is named"


def test_equal_seeds_make_equal_runs_and_others_do_not() -> None:
    first, second, other = (fuzz("reference", memory_subject(), SHORT, seed) for seed in (1, 1, 2))
    assert same(first, second)
    assert not same(first, other)


def test_a_listed_hole_that_is_reached_fails_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = {"ledger": {"reservation.reserve.admit": "nothing is ever admitted"}}
    monkeypatch.setattr(runs, "UNREACHABLE", listed)
    result = fuzz("reference", memory_subject(), SHORT)
    assert result.verdict == FAILED
    assert result.failure.startswith("Listed as unreachable, but reached: reservation.reserve.admit")


def test_a_law_that_does_not_apply_is_listed_with_its_capability() -> None:
    result = fuzz("reference", memory_subject(), evolve(SHORT, examples=1))
    assert [law.capability for law in result.not_applicable] == ["durable"]


class Raising:
    """The reference, but for one event on which it breaks."""

    def __init__(self, setup: Any) -> None:
        self._right = open_memory(setup)

    def submit(self, event: Any) -> LedgerFacts:
        if type(event).__name__ == "Cancel":
            raise KeyError("no such request")
        return self._right.submit(event)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._right, name)


def test_an_exception_is_a_disagreement_and_never_a_refusal() -> None:
    result = fuzz("raising", Subject(Kind.LEDGER, Raising), SHORT)
    assert result.verdict == FAILED
    assert "implementation raised KeyError: 'no such request'" in result.failure
    assert "Repeat: kvescrow fuzz --target raising --seed" in result.failure


def test_a_failure_repeats_from_its_seed() -> None:
    first = fuzz("raising", Subject(Kind.LEDGER, Raising), SHORT, 7)
    assert fuzz("raising", Subject(Kind.LEDGER, Raising), SHORT, first.seed).failure == first.failure


class Drifting(Raising):
    """Answers the first cancel of a process only as it should not."""

    wrong = True

    def submit(self, event: Any) -> LedgerFacts:
        if type(event).__name__ == "Cancel" and Drifting.wrong:
            Drifting.wrong = False
            raise KeyError("once")
        return self._right.submit(event)


def test_a_target_that_does_not_repeat_itself_fails_and_is_told_so() -> None:
    Drifting.wrong = True
    result = fuzz("drifting", Subject(Kind.LEDGER, Drifting), SHORT)
    assert result.verdict == FAILED
    assert "does not repeat itself" in result.failure


@pytest.mark.parametrize(
    ("target", "remedy"),
    [
        ("ledger-memroy", "choose one of ledger-memory"),
        ("no_such_module_at_all:factory", "cannot import no_such_module_at_all"),
        ("kvescrow.checks.targets.ledgers:no_such", "has no function no_such"),
        ("os:getcwd", "returned str: let it return a Subject"),
    ],
)
def test_a_wrong_target_is_told_with_its_remedy(target: str, remedy: str) -> None:
    with pytest.raises(UserError, match="target") as told:
        run_fuzz(target)
    assert remedy in str(told.value)


def test_a_wrong_profile_is_told_with_its_remedy() -> None:
    with pytest.raises(UserError, match="choose one of pr, minute, soak, hour"):
        run_fuzz("ledger-memory", "quick")


def test_a_third_party_is_fuzzed_by_module_and_factory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A target of another package is named and fuzzed without a line of this one changed (TGT-1)."""
    (tmp_path / "somebodys_ledger.py").write_text(
        "from kvescrow.checks.targets.ledgers import memory_subject as subject\n", "utf-8"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(PROFILES, "pr", evolve(SHORT, examples=2))  # type: ignore[arg-type]
    result = run_fuzz("somebodys_ledger:subject")
    assert (result.target, result.verdict, result.failure) == ("somebodys_ledger:subject", UNCOVERED, "")
    assert result.to_json()["verdict"] == UNCOVERED


@pytest.mark.parametrize("in_ci", [True, False])
def test_settings_do_not_depend_on_the_environment(in_ci: bool, repository: Path) -> None:
    code = (
        "from kvescrow.checks.fuzz.profiles import PROFILES, settings_of\n"
        "for name in ('pr', 'soak'):\n"
        "    s = settings_of(PROFILES[name])\n"
        "    print(s.derandomize, s.database is not None, s.deadline, [c.name for c in s.suppress_health_check])\n"
    )
    environment = {"CI": "true"} if in_ci else {}
    answer = subprocess.run(
        [sys.executable, "-c", code],
        env={"PATH": "", "PYTHONPATH": ":".join(sys.path), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stdout.splitlines() == ["True False None ['too_slow']", "False True None ['too_slow']"]


def test_the_number_of_examples_is_the_profiles() -> None:
    settings = settings_of(PROFILES["pr"])
    assert (settings.max_examples, settings.stateful_step_count) == (PROFILES["pr"].examples, PROFILES["pr"].steps)


def test_importing_the_package_loads_no_hypothesis() -> None:
    code = "import sys, kvescrow.checks.fuzz; print('hypothesis' in sys.modules, 'torch' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "False False"


def test_targets_are_named() -> None:
    assert {"ledger-memory", "ledger-sqlite", "pages"} <= set(TARGETS)


def test_for_each_scope_field_one_scope_differs_in_it_alone() -> None:
    own, *others = SCOPES
    differing = [
        [a.name for a in fields(PrefixScope) if getattr(own, a.name) != getattr(other, a.name)] for other in others
    ]
    assert sorted(differing) == sorted([attribute.name] for attribute in fields(PrefixScope))
