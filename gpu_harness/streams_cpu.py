"""Worker threads that stand for device streams."""

import queue
import threading
import time
from collections.abc import Callable
from typing import TypeVar

import torch

from kvescrow.gpu_harness.streams import (
    WAIT_LIMIT_MICROSECONDS,
    DeviceError,
    DeviceTimeout,
    Event,
    Gate,
    Pending,
    Signal,
    Stream,
    StreamFailed,
)

T = TypeVar("T")


class _CpuSignal:
    def __init__(self) -> None:
        self.reached = threading.Event()
        self.failure: BaseException | None = None
        self.nanoseconds = 0

    def reach(self, failure: BaseException | None) -> None:
        self.failure, self.nanoseconds = failure, time.perf_counter_ns()
        self.reached.set()

    def query(self) -> bool:
        return self.wait(0)

    def wait(self, microseconds: int) -> bool:
        reached = self.reached.wait(microseconds / 1_000_000) if microseconds else self.reached.is_set()
        if reached and self.failure is not None:
            raise StreamFailed(f"work on the stream raised {self.failure!r}") from self.failure
        return reached


class _CpuStream(Stream):
    """A worker thread that stands for a device stream."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._jobs: queue.SimpleQueue[Callable[[], object] | _CpuSignal | None] = queue.SimpleQueue()
        self._failure: BaseException | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._work, name=f"stream-{name}", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        torch.set_num_threads(1)  # the OpenMP setting belongs to each thread; the host's does not reach this one
        while (job := self._jobs.get()) is not None:
            if isinstance(job, _CpuSignal):
                job.reach(self._failure)
            elif self._failure is None:
                try:
                    job()
                except BaseException as failure:  # whatever it is, the host must hear of it instead of waiting
                    self._failure = failure

    def _put(self, job: Callable[[], object] | _CpuSignal) -> None:
        if self._closed:
            raise DeviceError(f"stream {self.name} is closed")
        self._jobs.put(job)

    def launch(self, work: Callable[[], object]) -> None:
        if self._failure is not None:
            raise StreamFailed(f"stream {self.name} failed earlier: {self._failure!r}") from self._failure
        self._put(work)

    def wait(self, event: Event) -> None:
        signal = event.signal

        def hold() -> None:
            if not signal.wait(WAIT_LIMIT_MICROSECONDS):
                raise DeviceTimeout(f"stream {self.name} waited {WAIT_LIMIT_MICROSECONDS} us for an event")

        self.launch(hold)

    def submit(self, work: Callable[[], T]) -> Pending[T]:
        results: list[T] = []
        begin = self.record()
        self.launch(lambda: results.append(work()))
        end = self.record()

        def clock() -> int:
            first, last = begin.signal, end.signal
            assert isinstance(first, _CpuSignal) and isinstance(last, _CpuSignal)
            return (last.nanoseconds - first.nanoseconds) // 1_000

        return Pending(begin, end, lambda: results[0], clock)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._jobs.put(None)
            self._thread.join(WAIT_LIMIT_MICROSECONDS / 1_000_000)
            if self._thread.is_alive():
                raise DeviceTimeout(f"stream {self.name} did not stop")

    def _mark(self) -> Signal:
        signal = _CpuSignal()
        self._put(signal)
        return signal


class _CpuGate(Gate):
    """A worker thread waits for the host; never opened, it fails the stream instead of hanging it."""

    def __init__(self, microseconds: int) -> None:
        self._microseconds = microseconds
        self._opened = threading.Event()

    def hold(self, stream: Stream) -> None:
        def keep() -> None:
            if not self._opened.wait(self._microseconds / 1_000_000):
                raise DeviceTimeout(f"the gate was not opened within {self._microseconds} us")

        stream.launch(keep)

    def open(self) -> None:
        self._opened.set()

    def holding(self) -> bool:
        return not self._opened.is_set()


def cpu_stream(name: str) -> Stream:
    """A new worker thread with one pinned compute thread."""
    return _CpuStream(name)


def cpu_gate(microseconds: int) -> Gate:
    """A gate that fails its stream if the host has not opened it after `microseconds`."""
    return _CpuGate(microseconds)
