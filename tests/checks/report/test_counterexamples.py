"""Scenario files become steps: each state as the file has it, with what a step changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from attrs import evolve

from kvescrow.checks.explore import explore, instance_called
from kvescrow.checks.explore.scenario import write_scenario
from kvescrow.checks.report.counterexamples import read_counterexample, read_counterexamples
from kvescrow.spec.tables.promise import PROMISE
from kvescrow.spec.vocabulary import UserError


@pytest.fixture
def examples(repository: Path) -> Path:
    return repository / "docs" / "examples" / "counterexamples"


def test_a_way_that_the_search_found_has_its_states(examples: Path) -> None:
    found = read_counterexample(examples / "release-at-cancel.searched.json")
    assert found.law == "reservation.only_a_confirmed_stop_releases"
    assert [step.row for step in found.steps] == [
        "",
        "reservation.reserve.admit",
        "reservation.start.commit",
        "reservation.cancel.running",
    ]
    started = {field.name: (field.before, field.value) for field in found.steps[2].fields if field.changed}
    assert started["reservation 0.state"] == ("RESERVED", "RUNNING")
    broken = {field.name: (field.before, field.value) for field in found.steps[3].fields if field.changed}
    assert broken["reservation 0.state"] == ("RUNNING", "CANCELLED")


def test_a_refuted_obligation_shows_the_state_before_and_after(examples: Path) -> None:
    found = read_counterexample(examples / "release-at-cancel.proved.json")
    before, after = found.steps
    assert (before.row, after.row) == ("", "reservation.cancel.running")
    changed = {field.name: (field.before, field.value) for field in after.fields if field.changed}
    assert changed["reservation.state"][1] == "CANCELLED"
    assert not any(field.changed for field in before.fields)


def test_what_the_search_writes_can_be_walked(tmp_path: Path) -> None:
    """A release that forgets the pool's counter is found, and its scenario holds each state on the way."""
    row = PROMISE.row_by_id["promise.close.released"]
    kept = tuple(effect for effect in row.do if str(effect.target) != "pool.promised")
    assert len(kept) < len(row.do)
    table = evolve(PROMISE, rows=tuple(evolve(each, do=kept) if each is row else each for each in PROMISE.rows))
    instance = instance_called("promises").with_table(table)
    breach = explore(instance).breach
    assert breach is not None
    write_scenario(instance, breach, tmp_path / "x.json")
    found = read_counterexample(tmp_path / "x.json")
    assert len(found.steps) == len(breach.scenario) + 1
    assert any(field.changed for field in found.steps[1].fields)
    assert {field.name: field.value for field in found.steps[-1].fields if field.name in breach.state} == {
        name: str(getattr(value, "value", value)) for name, value in breach.state.items()
    }


def test_a_file_without_states_shows_the_last_one(tmp_path: Path, examples: Path) -> None:
    old = json.loads((examples / "release-at-cancel.searched.json").read_text("utf-8"))
    del old["states"]
    (tmp_path / "old.json").write_text(json.dumps(old), "utf-8")
    assert len(read_counterexample(tmp_path / "old.json").steps) == len(old["scenario"])


def test_no_folder_has_none(tmp_path: Path) -> None:
    assert read_counterexamples(tmp_path / "absent") == ()


@pytest.mark.parametrize("text", ["[]", "{}", '{"kvescrow_search": 1}', "no JSON"])
def test_a_file_that_is_no_scenario_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text, "utf-8")
    with pytest.raises(UserError, match=r"x\.json"):
        read_counterexamples(tmp_path)
