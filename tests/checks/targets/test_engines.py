"""Adapters of released engines break what is listed and nothing else (TGT-2).

Without its engine a test is skipped by name.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from attrs import evolve

from kvescrow.checks.cli.targets import OTHERS
from kvescrow.checks.fuzz.plays import PLAYS
from kvescrow.checks.fuzz.profiles import PROFILES
from kvescrow.checks.fuzz.run import fuzz
from kvescrow.checks.targets import limits_ledger, token_throttle_ledger
from kvescrow.checks.targets.capacity import CapacitySetup
from kvescrow.checks.targets.harness_clock import HarnessClock
from kvescrow.checks.targets.registry import subject_called
from kvescrow.spec.vocabulary import UserError

LISTED = {
    "sglang": {"scope.joined"},
    "vllm": {"withdrawn"},
    "vllm-at-return": set(),
    "vllm-scheduler": {"backed"},
    "vllm-scheduler-at-return": set(),
    "limits": {"refused", "race"},
    "limits-moving": {"race"},
    "limits-sliding": {"race"},
    "token-throttle": {"settled.late"},
    "token-throttle-bounded": set(),
}
MOST_LINES = 170
SHORT = evolve(PROFILES["pr"], least_rounds=1)


def opened(name: str) -> None:
    try:
        subject = subject_called(name)
        subject.open(PLAYS[subject.kind].setup_of(0)).close()
    except UserError as missing:
        pytest.skip(f"not_run {name}: {missing}")


@pytest.mark.parametrize("name", LISTED)
def test_an_engine_breaks_what_is_listed_and_nothing_else(name: str) -> None:
    opened(name)
    result = fuzz(name, subject_called(name), SHORT)
    assert (result.verdict, result.failure) == ("passed", "")
    assert {deviation.law for deviation in result.deviations} == LISTED[name]
    assert all(deviation.exercised for deviation in result.deviations)


ADAPTERS = ("vllm_manager", "vllm_scheduler", "sglang_manager", "transformers_manager", "limits_ledger")


@pytest.mark.parametrize("name", (*ADAPTERS, "token_throttle_ledger"))
def test_an_adapter_is_short(repository: Path, name: str) -> None:
    assert len((repository / "checks" / "targets" / f"{name}.py").read_text("utf-8").splitlines()) <= MOST_LINES


def test_what_is_listed_is_tried() -> None:
    """Transformers has a test of its own, which needs no other engine."""
    assert {*LISTED, "transformers"} == set(OTHERS)


@pytest.mark.parametrize("module", [limits_ledger, token_throttle_ledger])
def test_another_release_of_a_ledger_is_not_driven(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 12, 0))
    first = ("limits_fixed_subject", "token_throttle_subject")
    subject = next(made() for name, made in vars(module).items() if name in first)
    for found, told in (([], "is not installed"), ([SimpleNamespace(version="0.1")], "0.1 is installed, but this")):
        monkeypatch.setattr(module, "distributions", lambda name, found=found: found)
        with pytest.raises(UserError, match=told):
            subject.open(CapacitySetup((8,)))


def test_an_older_python_is_told_what_token_throttle_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 11, 9))
    with pytest.raises(UserError, match=r"3\.12 or newer, and this is 3\.11: make venv PYTHON=python3\.12"):
        token_throttle_ledger.token_throttle_subject().open(CapacitySetup((8,)))


def test_an_engine_sees_the_harness_clock_while_it_is_called_and_no_one_else_does() -> None:
    clock, before = HarnessClock(), time.time
    clock.set(64_000_000)
    with clock:
        begun = time.time()
        with clock:
            assert time.time() == begun == 2**32 + 64
        assert time.time() == begun
    assert time.time is before
