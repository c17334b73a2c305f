"""Streams, events and gates of a CUDA device."""

import time
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from kvescrow.gpu_harness.streams import DeviceError, Event, Gate, Pending, Signal, Stream, StreamFailed

CUDA_CYCLES_PER_MICROSECOND = 2_000
"""`torch.cuda._sleep` counts clock cycles; current data-centre GPUs run near 2 GHz, and a slower one waits
longer.
"""

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
    """A kernel that sleeps for a bounded number of cycles."""

    def __init__(self, microseconds: int) -> None:
        self._cycles = microseconds * CUDA_CYCLES_PER_MICROSECOND
        self._passed = Event()

    def hold(self, stream: Stream) -> None:
        stream.launch(lambda: torch.cuda._sleep(self._cycles))  # type: ignore[no-untyped-call]
        stream.record(self._passed)

    def open(self) -> None:
        """Nothing to do: the sleeping kernel ends by itself."""

    def holding(self) -> bool:
        return not self._passed.query()


def cuda_stream(name: str, device: torch.device) -> Stream:
    """A new CUDA stream on `device`."""
    return _CudaStream(name, device)


def cuda_gate(microseconds: int) -> Gate:
    """A gate whose window closes by itself after `microseconds`."""
    return _CudaGate(microseconds)
