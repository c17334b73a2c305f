"""The reference's release process agrees with its table, and planted mistakes in it are found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve

from kvescrow.checks.fuzz.profiles import PROFILES
from kvescrow.checks.fuzz.run import fuzz
from kvescrow.checks.targets.release import release_subject
from kvescrow.reference.grading.release import ReleaseProcess
from kvescrow.spec.vocabulary import Decision, GradeVerdict, ReleaseState

Plant = Callable[[pytest.MonkeyPatch], None]
SHORT = evolve(PROFILES["pr"], least_rounds=1)


def no_data_promotes(patch: pytest.MonkeyPatch) -> None:
    """What has no data passes."""
    original = ReleaseProcess.look

    def look(self: ReleaseProcess, verdict: GradeVerdict) -> Any:
        return original(self, GradeVerdict.PASS if verdict is GradeVerdict.NO_DATA else verdict)

    patch.setattr(ReleaseProcess, "look", look)


def failed_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A failed candidate may be started again."""
    original = ReleaseProcess.start

    def start(self: ReleaseProcess) -> Any:
        if self.now.state is ReleaseState.FAILED:
            self.now = evolve(self.now, state=ReleaseState.BASELINE)
        return original(self)

    patch.setattr(ReleaseProcess, "start", start)


def orphans_are_released(patch: pytest.MonkeyPatch) -> None:
    """Work that nobody confirmed is written off."""
    original = ReleaseProcess.orphan

    def orphan(self: ReleaseProcess) -> Any:
        reply = original(self)
        if reply.decision is Decision.SUSPECTED:
            self.now = evolve(self.now, orphaned=0)
        return reply

    patch.setattr(ReleaseProcess, "orphan", orphan)


def switched_unverified(patch: pytest.MonkeyPatch) -> None:
    """A charge that does not add up is switched over."""

    def verify(self: ReleaseProcess, charged: int) -> Any:
        return original(self, self.now.orphaned if self.now.state is ReleaseState.DRAINED else charged)

    original = ReleaseProcess.verify
    patch.setattr(ReleaseProcess, "verify", verify)


def test_the_reference_agrees_with_the_table() -> None:
    result = fuzz("release", release_subject(), SHORT, 1)
    assert result.verdict == "passed", result.failure or result.holes
    assert (result.rows_hit, result.guards_hit) == (result.rows, result.guards)


@pytest.mark.parametrize(
    ("plant", "told"),
    [
        (no_data_promotes, "look("),
        (failed_is_forgotten, "start("),
        (orphans_are_released, "orphan("),
        (switched_unverified, "verify("),
    ],
)
def test_a_mistake_is_found(plant: Plant, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    result = fuzz("release", release_subject(), SHORT, 1)
    assert result.verdict == "failed"
    assert told in result.failure.splitlines()[1], result.failure
