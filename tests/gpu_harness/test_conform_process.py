"""A worker in a process of its own, killed with steps in flight: fenced, replaced, nothing wrong (LEA-3, LEA-4)."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from attrs import evolve

from kvescrow.checks.monitor import check_journal
from kvescrow.gpu_harness.conform import ConformResult, Settings, conform
from kvescrow.gpu_harness.conform.apart import ApartMachine, WorkerDied
from kvescrow.gpu_harness.conform.platform import Platform, open_platform
from kvescrow.gpu_harness.evidence import NOTHING
from kvescrow.gpu_harness.plan import Segment, StepBatch
from kvescrow.gpu_harness.streams import DeviceError
from kvescrow.reference.traces import packaged_trace

SETTINGS = Settings(device=os.environ.get("KVESCROW_TEST_DEVICE", "cpu"), requests=14, own_process=True)


def run(settings: Settings, **options: object) -> ConformResult:
    return conform(packaged_trace("mooncake"), settings, **options)  # type: ignore[arg-type]


def fenced(journal: Path) -> list[str]:
    """The fences in the journal of a run with two workers, after both of its files were checked."""
    files = [journal, journal.with_name(f"{journal.name}.2")]
    verdicts = [check_journal(each) for each in files]
    assert [verdict.outcome.value for verdict in verdicts] == ["passed"] * 2
    return sorted(row for row in verdicts[0].rows if row.startswith("reservation.fence"))


def test_a_process_that_is_killed_in_flight_is_fenced_and_replaced(tmp_path: Path) -> None:
    journal = tmp_path / "run.jsonl"
    result = run(evolve(SETTINGS, kills=(6,)), journal=journal)
    tally = result.tally
    assert result.evidence == NOTHING
    assert result.violations == ()
    assert (tally.workers_killed, tally.processes_killed) == (1, 1)
    assert tally.lost_in_flight > 0
    assert tally.suspected > 0
    cancelled = tally.cancelled_running + tally.cancelled_queued + tally.cancelled_reserved
    assert tally.completed + cancelled == result.requests
    assert result.as_json()["own_process"] is True
    assert fenced(journal)[-2:] == ["reservation.fence.failed", "reservation.fence.foreign_owner"]


def test_a_process_that_somebody_else_kills_is_replaced_too(tmp_path: Path) -> None:
    killed: list[int] = []

    def progress(ended: int, _: int) -> None:
        if ended == 5 and not killed:
            (child,) = multiprocessing.active_children()
            assert child.pid is not None
            killed.append(child.pid)
            os.kill(child.pid, signal.SIGKILL)

    result = run(SETTINGS, journal=tmp_path / "run.jsonl", progress=progress)
    assert len(killed) == 1
    assert (result.evidence, result.violations) == (NOTHING, ())
    assert (result.tally.workers_killed, result.tally.processes_killed) == (1, 1)
    assert "reservation.fence.failed" in fenced(tmp_path / "run.jsonl")


@pytest.fixture(scope="module")
def platform() -> Iterator[Platform]:
    with open_platform(SETTINGS) as opened:
        yield opened


@pytest.fixture(scope="module")
def machine(platform: Platform) -> Iterator[ApartMachine]:
    opened = ApartMachine(SETTINGS, platform.probe, epoch=0)
    yield opened
    opened.close()


def test_what_a_process_computes_is_what_is_computed_here(platform: Platform, machine: ApartMachine) -> None:
    prompt = tuple(range(1, 20))
    machine.pages.grant(machine.prefill, [3, 4], owner=7, scope=1, first_index=0)
    batch = StepBatch(1, [Segment(7, 1, 0, 0, prompt, tuple(machine.pages.claims([3, 4])))])
    gate = machine.hold(machine.prefill)
    step = machine.launch(machine.prefill, batch, ())
    assert not step.pending.done()
    assert gate.holding()
    gate.open()
    result = step.pending.wait()
    oracle = platform.decoded(1, 0, prompt, 1)
    assert result.evidence == NOTHING
    assert (result.tokens, result.logits[0].tolist()) == (oracle.tokens, oracle.logits[0].tolist())
    assert machine.pages.sums([3]).result() == {3: oracle.sums[0]}


def test_what_is_raised_there_is_raised_here(machine: ApartMachine) -> None:
    with pytest.raises(ValueError, match="page 0 is not one of 1"):
        machine.pages.grant(machine.prefill, [0], owner=7, scope=1, first_index=0)
    with pytest.raises(DeviceError, match="stream prefill is another process's"):
        machine.prefill.launch(lambda: None)


def test_a_process_that_ends_without_being_killed_is_no_fence(platform: Platform) -> None:
    before = multiprocessing.active_children()
    machine = ApartMachine(SETTINGS, platform.probe, epoch=0)
    (child,) = (each for each in multiprocessing.active_children() if each not in before)
    child.terminate()
    with pytest.raises(WorkerDied, match=f"process {child.pid} is gone"):
        machine.load(1)
    with pytest.raises(DeviceError, match="its exit status is -15"):
        machine.kill()
