"""Steps taken in at turns that the seed fixes: the same seed, the same journal, byte for byte, on any machine."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from attrs import evolve

from kvescrow.gpu_harness.conform import Conduct, ConformResult, LaunchedStep, Settings, Verdict, conform
from kvescrow.gpu_harness.conform.harness import conform_on, of_hazards
from kvescrow.gpu_harness.conform.order import MOST_TURNS, AsTheyEnd, FixedOrder
from kvescrow.gpu_harness.conform.platform import Platform, open_platform
from kvescrow.gpu_harness.device import Device
from kvescrow.gpu_harness.sabotage import CAUGHT, sabotaged
from kvescrow.gpu_harness.streams import Event, Gate, Stream
from kvescrow.reference.traces import packaged_trace

DEVICE = os.environ.get("KVESCROW_TEST_DEVICE", "cpu")
SETTINGS = Settings(device=DEVICE, fixed_order=True)
KILLED = evolve(SETTINGS, requests=14, growth=True, epoch_after=7, kills=(6,))


@pytest.fixture(scope="module")
def platform() -> Iterator[Platform]:
    with open_platform(SETTINGS) as opened:
        yield opened


@contextmanager
def a_busy_machine() -> Iterator[None]:
    """Another thread wants the processor, and the interpreter, all the while."""
    over = threading.Event()

    def spin() -> None:
        while not over.is_set():
            sum(range(1000))

    thread = threading.Thread(target=spin)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def journals(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def course(platform: Platform, folder: Path, seed: int = 1, conduct: Conduct | None = None) -> dict[str, bytes]:
    """The journals of the hazards, with a killed worker and growth."""
    folder.mkdir()
    offered, settings = of_hazards(evolve(SETTINGS, seed=seed, growth=True, kills=(8,)), platform)
    result = conform_on(platform, offered, settings, conduct=conduct, journal=folder / "run.jsonl")
    assert result.verdict is Verdict.PASSED, result.summary
    assert result.as_json()["fixed_order"] is True
    return journals(folder)


class Slow(Conduct):
    """A device on which every other step takes much longer: each stream is held for a while before it."""

    def __init__(self) -> None:
        self.held = 0

    def end(self, stream: Stream, other: Stream, pending: object, before: Event | None) -> Event:
        self.held += 1
        if self.held % 2:
            pause = threading.Event()
            stream.launch(lambda: pause.wait(0.02))
        return pending.event  # type: ignore[attr-defined,no-any-return]


def test_the_same_seed_gives_the_same_journals_on_a_busy_machine_and_a_slow_device(
    platform: Platform, tmp_path: Path
) -> None:
    quiet = course(platform, tmp_path / "quiet")
    assert sorted(quiet) == ["run.jsonl", "run.jsonl.2"]
    with a_busy_machine():
        assert course(platform, tmp_path / "busy") == quiet
    slow = Slow()
    assert course(platform, tmp_path / "slow", conduct=slow) == quiet
    assert slow.held > 50


def test_another_seed_takes_another_course(platform: Platform, tmp_path: Path) -> None:
    assert course(platform, tmp_path / "one") != course(platform, tmp_path / "other", seed=2)


def test_a_process_of_its_own_takes_the_same_course(tmp_path: Path) -> None:
    results: dict[bool, ConformResult] = {}
    found = {}
    for own_process in (False, True):
        folder = tmp_path / str(own_process)
        folder.mkdir()
        settings = evolve(KILLED, own_process=own_process)
        results[own_process] = conform(packaged_trace("mooncake"), settings, journal=folder / "run.jsonl")
        found[own_process] = journals(folder)
    assert [result.tally.processes_killed for result in results.values()] == [0, 1]
    assert results[True].evidence == results[False].evidence
    assert found[True] == found[False]


@pytest.mark.parametrize("name", ["release-at-cancel", "event-on-wrong-stream", "descriptor-slot-reused"])
def test_races_are_certain_in_a_fixed_order_too(name: str, platform: Platform) -> None:
    assert sabotaged(name, platform, SETTINGS).verdict == CAUGHT


# --- the order itself -------------------------------------------------------------------------------------------------


class Launches:
    """Steps on a device that does what a test lets it do."""

    def __init__(self, device: Device, order: FixedOrder | AsTheyEnd) -> None:
        self.device, self.order, self.number = device, order, 0

    def launch(self, stream: Stream, end: Event | None = None) -> LaunchedStep:
        self.number += 1
        pending = stream.submit(lambda: None)
        step = LaunchedStep(self.number, stream, (), pending, end or pending.event)  # type: ignore[arg-type]
        self.order.launched(step)
        return step

    def turns(self, count: int) -> None:
        for _ in range(count):
            self.order.begin_turn()


@pytest.fixture
def fixed(device: Device) -> Launches:
    return Launches(device, FixedOrder(1))


@contextmanager
def held(launches: Launches, stream: Stream) -> Iterator[Gate]:
    gate = launches.device.gate()
    gate.hold(stream)
    launches.order.hold(stream)
    yield gate
    gate.open()
    launches.order.let_go()


def test_a_step_that_the_device_has_ended_is_not_over_before_its_turn(fixed: Launches) -> None:
    step = fixed.launch(fixed.device.decode)
    step.pending.wait()
    assert not fixed.order.is_over(step)
    assert not fixed.order.is_there(step)
    fixed.turns(MOST_TURNS)
    assert fixed.order.is_over(step)
    assert fixed.order.is_there(step)


def test_a_step_whose_turn_has_come_is_waited_for(fixed: Launches) -> None:
    gate = fixed.device.gate()
    gate.hold(fixed.device.decode)
    step = fixed.launch(fixed.device.decode)
    fixed.turns(MOST_TURNS)
    timer = threading.Timer(0.05, gate.open)
    timer.start()
    assert fixed.order.is_over(step)
    assert step.pending.done()
    timer.join()


def test_steps_of_one_stream_end_one_after_the_other(fixed: Launches) -> None:
    steps = [fixed.launch(fixed.device.decode) for _ in range(40)]
    for _ in range(MOST_TURNS):
        fixed.turns(1)
        over = [fixed.order.is_over(step) for step in steps]
        assert over == sorted(over, reverse=True)
    assert all(over)


def test_the_turns_are_the_seed_s(device: Device) -> None:
    def course(seed: int) -> list[list[bool]]:
        launches = Launches(device, FixedOrder(seed))
        seen = []
        for _ in range(20):
            # Each on a stream of its own name, so that none waits for another.
            steps = [launches.launch(stream) for stream in (device.prefill, device.decode)]
            launches.turns(1)
            seen.append([launches.order.is_over(step) for step in steps])
            launches.turns(MOST_TURNS)
        return seen

    assert course(1) == course(1)
    assert course(1) != course(2)


def test_what_a_gate_holds_is_not_over_unless_the_worker_goes_by_another_event(fixed: Launches) -> None:
    decode = fixed.device.decode
    with held(fixed, decode):
        step, mistaken = fixed.launch(decode), fixed.launch(decode, end=fixed.device.prefill.record())
        fixed.device.prefill.synchronize()
        fixed.turns(MOST_TURNS)
        assert not fixed.order.is_over(step)
        assert fixed.order.is_over(mistaken)
        assert not fixed.order.is_there(mistaken)
    assert fixed.order.is_over(step)
    assert fixed.order.is_there(mistaken)


def test_what_was_seen_through_is_over(fixed: Launches) -> None:
    step = fixed.launch(fixed.device.decode)
    fixed.order.see_through(step)
    assert fixed.order.is_over(step)
    assert fixed.order.is_there(step)


def test_as_they_end_a_step_is_over_when_the_device_says_so(device: Device) -> None:
    launches = Launches(device, AsTheyEnd())
    gate = device.gate()
    gate.hold(device.decode)
    step = launches.launch(device.decode)
    launches.turns(MOST_TURNS)
    assert not launches.order.is_over(step)
    gate.open()
    launches.order.wait(step)
    assert launches.order.is_over(step)
    assert launches.order.is_there(step)
