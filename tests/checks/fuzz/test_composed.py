"""Ledger, page pool and worker together: the reference agrees, and each mistake between the parts is found."""

from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve

from kvescrow.checks.fuzz.profiles import PROFILES
from kvescrow.checks.fuzz.run import fuzz
from kvescrow.checks.targets.composed import composed_subject
from kvescrow.reference.executions import Executions
from kvescrow.reference.pages import PagePool
from kvescrow.spec.vocabulary import Decision, Reason

SHORT = evolve(PROFILES["pr"], least_rounds=6, most_rounds=6)
Plant = Callable[[pytest.MonkeyPatch], None]


def certify_in_flight(patch: pytest.MonkeyPatch) -> None:
    """The worker certifies a stop although a step is in flight."""
    original = Executions.certify

    def certify(self: Executions, key: Any) -> Any:
        execution = self._executions.get(key)
        flying = execution.in_flight if execution else 0
        if execution:
            execution.in_flight = 0
        reply = original(self, key)
        if execution:
            execution.in_flight = flying
        return reply

    patch.setattr(Executions, "certify", certify)


def launch_after_close(patch: pytest.MonkeyPatch) -> None:
    """The worker goes on launching for an execution that must stop."""
    original = Executions._launch_refusal

    def refusal(self: Executions, share: Any) -> Reason:
        reason = original(self, share)
        return Reason.NONE if reason is Reason.STOPPING else reason

    patch.setattr(Executions, "_launch_refusal", refusal)


def settle_twice(patch: pytest.MonkeyPatch) -> None:
    """The end of a step is taken in again when it is told again."""
    original = Executions.settle

    def settle(self: Executions, number: int, *, ok: bool = True) -> Any:
        reply = original(self, number, ok=ok)
        return evolve(reply, decision=Decision.SETTLED) if reply.decision is Decision.RECORDED else reply

    patch.setattr(Executions, "settle", settle)


def stale_generation(patch: pytest.MonkeyPatch) -> None:
    """A second generation takes the place of one that is still here."""
    original = Executions.begin

    def begin(self: Executions, key: Any, generation: int) -> Any:
        execution = self._executions.get(key)
        if execution is not None and execution.generation != generation:
            execution.generation = generation
        return original(self, key, generation)

    patch.setattr(Executions, "begin", begin)


def drained_at_once(patch: pytest.MonkeyPatch) -> None:
    """A drop frees pages although a launched step may still touch them."""
    original = PagePool.drop

    def drop(self: PagePool, holder: str, page: int) -> Any:
        record = self._pages[page]
        readers, writers = record.readers, record.writers
        record.readers = record.writers = 0
        reply = original(self, holder, page)
        record.readers, record.writers = readers, writers
        return reply

    patch.setattr(PagePool, "drop", drop)


def test_the_reference_agrees_with_the_tables() -> None:
    result = fuzz("composed", composed_subject(), PROFILES["pr"], 1)
    assert result.verdict == "passed", result.failure or result.holes
    assert (result.rows_hit, result.guards_hit) == (result.rows, result.guards)


@pytest.mark.parametrize(
    ("plant", "told"),
    [
        (certify_in_flight, "certify"),
        (launch_after_close, "launch"),
        (settle_twice, "settle"),
        (stale_generation, "begin"),
        (drained_at_once, "drop("),
    ],
)
def test_a_mistake_between_the_parts_is_found(plant: Plant, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    result = fuzz("composed", composed_subject(), SHORT, 1)
    assert result.verdict == "failed"
    assert told in result.failure.splitlines()[1], result.failure
