"""What a seed draws does not depend on the modules that are loaded beside the run."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from attrs import evolve
from hypothesis.internal.conjecture import providers

from kvescrow.checks.fuzz.constants import none_of_loaded_modules
from kvescrow.checks.fuzz.driver import Driver
from kvescrow.checks.fuzz.profiles import PROFILES
from kvescrow.checks.fuzz.run import Run
from kvescrow.checks.targets.registry import subject_called

ONE_ROUND = evolve(PROFILES["pr"], examples=20, least_rounds=1, most_rounds=1)


class Kept(Run):
    """A run that keeps what was done."""

    drawn: list[list[str]]

    def _on_run(self, driver: Driver) -> None:
        super()._on_run(driver)
        self.drawn.append(list(driver.steps))


def drawn() -> list[list[str]]:
    run = Kept("ledger-memory", subject_called("ledger-memory"), ONE_ROUND, lambda now: None)
    run.drawn = []
    run.rounds(1)
    return run.drawn


@pytest.fixture
def somebodys_module(tmp_path: Path) -> Iterator[ModuleType]:
    """A module of a user, full of numbers that could be drawn."""
    file = tmp_path / "somebodys_engine.py"
    file.write_text(f"SIZES = {list(range(300, 440, 7))}\n", "utf-8")
    spec = importlib.util.spec_from_file_location("somebodys_engine", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules["somebodys_engine"] = module
    yield module
    del sys.modules["somebodys_engine"]


def test_a_seed_draws_the_same_whatever_is_loaded(request: pytest.FixtureRequest) -> None:
    before = drawn()
    request.getfixturevalue("somebodys_module")
    assert 307 in providers._get_local_constants().integers, "it could be drawn elsewhere"
    assert drawn() == before


def test_others_draw_what_they_drew_before() -> None:
    found = providers._get_local_constants
    with pytest.raises(KeyError), none_of_loaded_modules():
        assert len(providers._get_local_constants()) == 0
        raise KeyError
    assert providers._get_local_constants is found


def test_a_hypothesis_without_such_constants_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(providers, "_get_local_constants")
    with none_of_loaded_modules():
        assert not hasattr(providers, "_get_local_constants")
