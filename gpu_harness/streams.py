"""Streams, events and gates: one interface for real streams on cuda and worker threads on cpu.

A stream runs what is launched on it in order, and two streams are not ordered with each other unless one
waits for an event of the other. That is all that a reuse hazard needs, so the CPU shows the same hazards as
the GPU.

Two misuses that CUDA answers with silence are refused here with a typed error: asking an event that was
never recorded (CUDA says "done"), and recording an event twice (CUDA forgets the first point). Every wait
is bounded, and an error on a stream reaches the host at its next question (CON-1, PAG-4).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

WAIT_LIMIT_MICROSECONDS = 60_000_000
"""No wait lasts longer: a lost wake-up is an error after a minute, never a hang."""

T = TypeVar("T")
U = TypeVar("U")


class DeviceError(RuntimeError):
    """Anything that this module refuses or reports."""


class HardwareAbsent(DeviceError):
    """The device that was asked for is not in this machine: the run is not_run, not passed (CON-3)."""


class EventMisuse(DeviceError):
    """An event was used in a way that CUDA answers with silence."""


class EventNeverRecorded(EventMisuse):
    """An event was asked or waited for before any stream recorded it."""


class EventAlreadyRecorded(EventMisuse):
    """An event was recorded a second time, which would move the point that earlier readers rely on."""


class StreamFailed(DeviceError):
    """Work launched on the stream raised; the cause is chained."""


class DeviceTimeout(DeviceError):
    """A bounded wait ran out."""


class NotFinished(DeviceError):
    """A result was read before the event behind it was done."""


class Signal(Protocol):
    """A point in one stream's work."""

    def query(self) -> bool:
        """Whether the point is reached. Raises StreamFailed."""
        ...

    def wait(self, microseconds: int) -> bool:
        """Block until it is reached; False if that takes longer than `microseconds`. Raises StreamFailed."""
        ...


class Event:
    """A point in a stream's work; recorded once, then asked any number of times."""

    def __init__(self) -> None:
        self._signal: Signal | None = None

    @property
    def signal(self) -> Signal:
        """The recorded point. Raises EventNeverRecorded."""
        if self._signal is None:
            raise EventNeverRecorded("the event was never recorded, so it cannot say that anything is done")
        return self._signal

    def bind(self, signal: Signal) -> None:
        """Called by `Stream.record`. Raises EventAlreadyRecorded."""
        if self._signal is not None:
            raise EventAlreadyRecorded("the event was recorded before; record a new event for each step")
        self._signal = signal

    def query(self) -> bool:
        """Whether all work launched before the record is done. Raises EventNeverRecorded, StreamFailed."""
        return self.signal.query()

    def synchronize(self, microseconds: int = WAIT_LIMIT_MICROSECONDS) -> None:
        """Block the host until `query` holds. Raises EventNeverRecorded, StreamFailed, DeviceTimeout."""
        if not self.signal.wait(microseconds):
            raise DeviceTimeout(f"the event was not done after {microseconds} us")


class Pending(Generic[T]):
    """What a launched function returned, readable once its event is done."""

    def __init__(self, begin: Event, end: Event, read: Callable[[], T], clock: Callable[[], int]) -> None:
        self.begin, self.event, self._read, self._clock = begin, end, read, clock

    def done(self) -> bool:
        """Whether the result may be read. Raises StreamFailed."""
        return self.event.query()

    def result(self) -> T:
        """The result. Raises NotFinished while the work is in flight, StreamFailed if it raised."""
        if not self.event.query():
            raise NotFinished("the work is still in flight")
        return self._read()

    def wait(self, microseconds: int = WAIT_LIMIT_MICROSECONDS) -> T:
        """Block, then the result. Raises StreamFailed, DeviceTimeout."""
        self.event.synchronize(microseconds)
        return self._read()

    def elapsed_microseconds(self) -> int:
        """Time on the device between begin and end of the work. Raises NotFinished."""
        if not self.event.query():
            raise NotFinished("the work is still in flight")
        return self._clock()

    def then(self, finish: Callable[[T], U]) -> "Pending[U]":
        """The same work with `finish` applied on the host when the result is read."""
        return Pending(self.begin, self.event, lambda: finish(self._read()), self._clock)


class Stream(ABC):
    """An ordered queue of device work."""

    def __init__(self, name: str) -> None:
        self.name = name

    @abstractmethod
    def launch(self, work: Callable[[], object]) -> None:
        """Queue `work`. Raises StreamFailed if earlier work raised."""

    @abstractmethod
    def wait(self, event: Event) -> None:
        """Order all later work of this stream after `event`. Raises EventNeverRecorded."""

    @abstractmethod
    def submit(self, work: Callable[[], T]) -> Pending[T]:
        """Queue `work` between two fresh events and give access to what it returns."""

    @abstractmethod
    def close(self) -> None:
        """Wait (bounded) for the work in flight and stop."""

    @abstractmethod
    def _mark(self) -> Signal: ...

    def record(self, event: Event | None = None) -> Event:
        """Record `event`, or a fresh one, behind all work launched so far. Raises EventAlreadyRecorded."""
        event = Event() if event is None else event
        event.bind(self._mark())
        return event

    def synchronize(self, microseconds: int = WAIT_LIMIT_MICROSECONDS) -> None:
        """Block the host until everything launched so far is done. Raises StreamFailed, DeviceTimeout."""
        self.record().synchronize(microseconds)


class Gate(ABC):
    """Holds a stream, so that a window of work in flight is certain rather than likely."""

    @abstractmethod
    def hold(self, stream: Stream) -> None:
        """Later work of `stream` does not start while the gate holds. Once per gate."""

    @abstractmethod
    def open(self) -> None:
        """Let the stream go on. On cuda the window closes by itself too, after its bounded length."""

    @abstractmethod
    def holding(self) -> bool:
        """Whether the stream is still held: ask after the conflicting work, to know that the window was
        real.
        """
