"""Streams keep their order, events refuse what CUDA answers with silence, nothing hangs (CON-1, PAG-4)."""

from __future__ import annotations

import threading

import pytest
import torch

from kvescrow.gpu_harness.device import Device, open_device
from kvescrow.gpu_harness.streams import (
    DeviceError,
    DeviceTimeout,
    Event,
    EventAlreadyRecorded,
    EventNeverRecorded,
    HardwareAbsent,
    NotFinished,
    StreamFailed,
)

SHORT = 20_000
"""Microseconds: long enough for a wait that must run out to be real, short enough for a test."""


class Planted(Exception):
    """The error that a test plants in a stream."""


def plant() -> None:
    raise Planted


def test_an_event_that_was_never_recorded_answers_nothing(device: Device) -> None:
    event = Event()
    with pytest.raises(EventNeverRecorded):
        event.query()
    with pytest.raises(EventNeverRecorded):
        event.synchronize()
    with pytest.raises(EventNeverRecorded):
        device.decode.wait(event)
    device.synchronize()


def test_an_event_is_recorded_once(device: Device) -> None:
    event = device.decode.record()
    with pytest.raises(EventAlreadyRecorded):
        device.prefill.record(event)
    event.synchronize()
    assert event.query()


def test_work_behind_a_gate_is_in_flight_until_it_opens(device: Device) -> None:
    gate, marks = device.gate(), torch.zeros(1, device=device.torch_device)
    gate.hold(device.decode)
    held = device.decode.submit(lambda: device.download(marks.add_(1)))
    device.prefill.submit(lambda: None).wait()
    assert gate.holding()
    assert not held.done()
    with pytest.raises(NotFinished):
        held.result()
    with pytest.raises(NotFinished):
        held.elapsed_microseconds()
    gate.open()
    assert held.wait().tolist() == [1.0]
    assert held.done()
    assert not gate.holding()
    assert held.elapsed_microseconds() >= 0


def test_a_stream_that_waits_runs_after_the_event(device: Device) -> None:
    gate, cell = device.gate(), torch.zeros(1, device=device.torch_device)
    gate.hold(device.prefill)
    device.prefill.launch(lambda: cell.fill_(3))
    device.decode.wait(device.prefill.record())
    read = device.decode.submit(lambda: device.download(cell))
    assert not read.done()
    gate.open()
    assert read.wait().tolist() == [3.0]


def test_a_bounded_wait_runs_out(device: Device) -> None:
    gate = device.gate()
    gate.hold(device.decode)
    event = device.decode.record()
    with pytest.raises(DeviceTimeout):
        event.synchronize(SHORT)
    gate.open()
    event.synchronize()


def test_a_result_can_be_finished_on_the_host(device: Device) -> None:
    assert device.decode.submit(lambda: 20).then(lambda n: n + 1).wait() == 21


def test_an_error_in_a_worker_reaches_the_host() -> None:
    with open_device("cpu") as own:
        before = own.decode.record()
        own.decode.launch(plant)
        event = own.decode.record()
        with pytest.raises(StreamFailed) as caught:
            event.synchronize()
        assert isinstance(caught.value.__cause__, Planted)
        assert before.query()
        with pytest.raises(StreamFailed):
            own.decode.launch(lambda: None)
        own.prefill.synchronize()


def test_work_behind_an_error_does_not_run() -> None:
    ran = []
    with open_device("cpu") as own:
        gate = own.gate()
        gate.hold(own.decode)
        own.decode.launch(plant)
        later = own.decode.submit(lambda: ran.append(1))
        gate.open()
        with pytest.raises(StreamFailed):
            later.wait()
    assert not ran


def test_a_stream_that_waits_for_a_failed_one_fails_too() -> None:
    with open_device("cpu") as own:
        gate = own.gate()
        gate.hold(own.prefill)
        own.prefill.launch(plant)
        own.decode.wait(own.prefill.record())
        gate.open()
        with pytest.raises(StreamFailed):
            own.decode.synchronize()


def test_a_gate_that_nobody_opens_fails_its_stream() -> None:
    with open_device("cpu") as own:
        own.gate(SHORT).hold(own.decode)
        with pytest.raises(StreamFailed) as caught:
            own.decode.synchronize()
        assert isinstance(caught.value.__cause__, DeviceTimeout)


def test_closing_a_device_opens_its_gates() -> None:
    with open_device("cpu") as own:
        own.gate().hold(own.decode)
        held = own.decode.submit(lambda: 4)
        assert not held.done()
    assert held.result() == 4


def test_a_closed_stream_refuses_work_and_its_thread_is_gone() -> None:
    with open_device("cpu") as own:
        stream = own.stream("copies")
        assert any(thread.name == "stream-copies" for thread in threading.enumerate())
    with pytest.raises(DeviceError, match="closed"):
        stream.launch(lambda: None)
    assert not any(thread.name == "stream-copies" for thread in threading.enumerate())


def test_one_thread_is_pinned_on_host_and_workers_and_restored() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with open_device("cpu") as own:
            assert torch.get_num_threads() == 1
            assert own.prefill.submit(torch.get_num_threads).wait() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_absent_hardware_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(HardwareAbsent, match="no CUDA device"), open_device("cuda"):
        pass
