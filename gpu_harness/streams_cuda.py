"""Streams, events and gates of a CUDA device."""

import time
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from kvescrow.gpu_harness.launching import cannot_launch
from kvescrow.gpu_harness.streams import DeviceError, Event, Gate, Pending, Signal, Stream, StreamFailed

CUDA_CYCLES_PER_MICROSECOND = 2_000
"""`torch.cuda._sleep` counts clock cycles; current data-centre GPUs run near 2 GHz, and a slower one waits
longer.
"""
LONGEST_WAIT_MICROSECONDS = 2_000_000
"""A gate that the host opens closes its window by itself after this time: far beyond what is done in one."""
LONGEST_SLEEP_MICROSECONDS = 100_000
"""The window of a gate that the host cannot open, every one of which is waited for to its end."""

T = TypeVar("T")


class _CudaSignal:
    def __init__(self, stream: Any) -> None:
        self.event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        self.event.record(stream)

    def query(self) -> bool:
        try:
            return bool(self.event.query())  # type: ignore[no-untyped-call]
        except RuntimeError as failure:
            raise StreamFailed(f"work on the device raised {failure!r}") from failure

    def wait(self, microseconds: int) -> bool:
        limit = time.monotonic_ns() + microseconds * 1_000
        while not self.query():
            if time.monotonic_ns() > limit:
                return False
            time.sleep(0.000_05)
        return True


class _CudaStream(Stream):
    """A CUDA stream; the host launches kernels on it directly."""

    def __init__(self, name: str, device: torch.device) -> None:
        super().__init__(name)
        self.raw: Any = torch.cuda.Stream(device=device)  # type: ignore[no-untyped-call]

    def launch(self, work: Callable[[], object]) -> None:
        self._run(work)

    def _run(self, work: Callable[[], T]) -> T:
        try:
            with torch.cuda.stream(self.raw):
                return work()
        except DeviceError:
            raise
        except Exception as failure:
            raise StreamFailed(f"launching on stream {self.name} raised {failure!r}") from failure

    def wait(self, event: Event) -> None:
        signal = event.signal
        assert isinstance(signal, _CudaSignal)
        self.raw.wait_event(signal.event)

    def submit(self, work: Callable[[], T]) -> Pending[T]:
        begin = self.record()
        result = self._run(work)
        end = self.record()

        def clock() -> int:
            first, last = begin.signal, end.signal
            assert isinstance(first, _CudaSignal) and isinstance(last, _CudaSignal)
            milliseconds: float = first.event.elapsed_time(last.event)
            return round(milliseconds * 1_000)

        return Pending(begin, end, lambda: result, clock)

    def close(self) -> None:
        self.synchronize()

    def _mark(self) -> Signal:
        return _CudaSignal(self.raw)


class _CudaGate(Gate):
    """A kernel that waits for the host, for a bounded time; without triton one that sleeps a number of cycles."""

    def __init__(self, device: torch.device, microseconds: int | None) -> None:
        self._sleeps = bool(cannot_launch(device))
        longest = LONGEST_SLEEP_MICROSECONDS if self._sleeps else LONGEST_WAIT_MICROSECONDS
        self._microseconds = longest if microseconds is None else microseconds
        # Pinned memory is not to be asked for while a stream is held.
        self._flag = torch.zeros(1, dtype=torch.int32, pin_memory=True)
        self._passed = Event()

    def hold(self, stream: Stream) -> None:
        stream.launch(self._keep)
        stream.record(self._passed)

    def _keep(self) -> None:
        if self._sleeps:
            torch.cuda._sleep(self._microseconds * CUDA_CYCLES_PER_MICROSECOND)  # type: ignore[no-untyped-call]
            return
        from kvescrow.gpu_harness.kernels.gates import hold

        hold(self._flag, self._microseconds)

    def open(self) -> None:
        """Tell the kernel; one that sleeps ends by itself."""
        self._flag.fill_(1)

    def holding(self) -> bool:
        return not self._passed.query()


def cuda_stream(name: str, device: torch.device) -> Stream:
    """A new CUDA stream on `device`."""
    return _CudaStream(name, device)


def cuda_gate(device: torch.device, microseconds: int | None) -> Gate:
    """A gate whose window closes by itself after `microseconds`, or after the longest window that it should have."""
    return _CudaGate(device, microseconds)
