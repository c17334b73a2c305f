"""Adapters of released engines break what is listed and nothing else (TGT-2).

Without its engine a test is skipped by name.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from attrs import evolve

from kvescrow.checks.fuzz.plays import PLAYS
from kvescrow.checks.fuzz.profiles import PROFILES
from kvescrow.checks.fuzz.run import fuzz
from kvescrow.checks.targets.registry import subject_called
from kvescrow.spec.vocabulary import UserError

LISTED = {
    "sglang": {"scope.joined"},
    "vllm": {"withdrawn"},
    "vllm-at-return": set(),
    "vllm-scheduler": {"backed"},
    "vllm-scheduler-at-return": set(),
}
MOST_LINES = 150
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


@pytest.mark.parametrize(
    "file", ["vllm_manager.py", "vllm_scheduler.py", "sglang_manager.py", "transformers_manager.py"]
)
def test_an_adapter_is_short(repository: Path, file: str) -> None:
    assert len((repository / "checks" / "targets" / file).read_text("utf-8").splitlines()) <= MOST_LINES
