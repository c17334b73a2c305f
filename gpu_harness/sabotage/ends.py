"""Mistakes about when work is over: cancels, tickets, events, descriptors."""

from collections.abc import Sequence

import torch

from kvescrow.gpu_harness.conform.conduct import Conduct, LaunchedStep
from kvescrow.gpu_harness.conform.loop import Loop
from kvescrow.gpu_harness.conform.serving import Serving
from kvescrow.gpu_harness.decoder import StepResult
from kvescrow.gpu_harness.descriptor import DescriptorRing, Packed
from kvescrow.gpu_harness.device import Device
from kvescrow.gpu_harness.streams import Event, Pending, Stream


class ReleaseAtCancel(Conduct):
    """An accepted cancel counts as the end of the steps in flight: pages and charge are given back at once."""

    def over_at_cancel(self, steps: Sequence[LaunchedStep]) -> Sequence[LaunchedStep]:
        """All of them."""
        return steps


class ReuseBeforeTicketEnds(Conduct):
    """A step counts as over with the one before it on its stream: the last committed end instead of the last launch."""

    def end(self, stream: Stream, other: Stream, pending: Pending[StepResult], before: Event | None) -> Event:
        """The end of the step before."""
        return pending.begin if before is None else before


class UnrecordedEvent(Conduct):
    """The event that is asked for a step's end was never recorded."""

    def end(self, stream: Stream, other: Stream, pending: Pending[StepResult], before: Event | None) -> Event:
        """A fresh event."""
        return Event()


class _AsCuda(Event):
    """An event that answers as CUDA does while it was never recorded."""

    def query(self) -> bool:
        """Done, says CUDA."""
        return True


class UnrecordedEventBelieved(Conduct):
    """The same on a device that answers as CUDA does: what was never recorded is done."""

    def end(self, stream: Stream, other: Stream, pending: Pending[StepResult], before: Event | None) -> Event:
        """A fresh event, without the wrapper's refusal."""
        return _AsCuda()


class EventOnWrongStream(Conduct):
    """The event for a step's end is recorded on the other compute stream."""

    def end(self, stream: Stream, other: Stream, pending: Pending[StepResult], before: Event | None) -> Event:
        """Done as soon as the other stream has nothing to do."""
        return other.record()


class EventReused(Conduct):
    """One event a stream is recorded for every step, so that earlier readers wait for a later point or for none."""

    def __init__(self) -> None:
        self._events: dict[str, Event] = {}

    def end(self, stream: Stream, other: Stream, pending: Pending[StepResult], before: Event | None) -> Event:
        """The stream's only event, recorded again."""
        return stream.record(self._events.setdefault(stream.name, Event()))


class _HastyRing(DescriptorRing):
    """One slot, written without looking whether its step has read it."""

    def __init__(self, device: Device) -> None:
        super().__init__(device)
        self._sizes: list[torch.Size] = []
        self.is_open = False

    def put(self, packed: Packed) -> int:
        """Write over the last descriptor if it is still to be read and looks the same; else as it should be."""
        same = self.is_open and packed.sizes == self._sizes
        self._sizes = packed.sizes
        if not same:
            return super().put(packed)
        slot = (self._next - 1) % len(self._buffers)
        self._write(slot, packed.words)
        self.is_open = False
        return slot


class DescriptorSlotReused(Conduct):
    """The slot of a step's descriptor is written for the next step while the step waits to read it."""

    def __init__(self) -> None:
        self._rings: list[_HastyRing] = []

    def ring(self, device: Device) -> DescriptorRing:
        """One that does not look."""
        self._rings.append(_HastyRing(device))
        return self._rings[-1]

    def holds(self, loop: Loop, stream: Stream, members: Sequence[Serving]) -> bool:
        """Every decode step."""
        return stream is loop.worker.machine.decode

    def meanwhile(self, loop: Loop, step: LaunchedStep) -> None:
        """Launch the next one."""
        self._rings[-1].is_open = True
        loop.go_on(step, turns=1)
        self._rings[-1].is_open = False


class CancelIgnored(Conduct):
    """A cancel is accepted, and the worker goes on as if none had come."""

    def obeys(self, serving: Serving) -> bool:
        """No."""
        return False


class OutputAfterCancel(Conduct):
    """A cancel withholds the next launch, but what was in flight is shown to the client."""

    def may_show(self, serving: Serving) -> bool:
        """Always."""
        return True
