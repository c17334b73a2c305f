"""What a worker process has: a device with two compute streams, a decoder, its pages, and the steps in flight.

`HereMachine` has it in this process; `apart` has one in a process of its own.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Protocol

from attrs import evolve

from kvescrow.gpu_harness.conform.conduct import Conduct, LaunchedStep
from kvescrow.gpu_harness.conform.frames import Prints
from kvescrow.gpu_harness.conform.platform import Platform
from kvescrow.gpu_harness.conform.rehearsal import rehearse
from kvescrow.gpu_harness.conform.serving import Serving
from kvescrow.gpu_harness.conform.settings import LIMITS, POSITIONS
from kvescrow.gpu_harness.decoder import PagedDecoder
from kvescrow.gpu_harness.evidence import Evidence
from kvescrow.gpu_harness.pages import PageClaim
from kvescrow.gpu_harness.plan import StepBatch
from kvescrow.gpu_harness.streams import Event, Gate, Stream


class PageFrames(Protocol):
    """What a worker asks of the pages on its machine: `Frames`, or the way to them in another process."""

    @property
    def clean(self) -> int:
        """Number of pages that hold poison, and are granted to nobody."""

    @property
    def scrubs(self) -> int:
        """Pages scrubbed."""

    @property
    def found(self) -> Evidence:
        """What was found so far, where no audit will come."""

    def grant(self, stream: Stream, pages: Sequence[int], *, owner: int, scope: int, first_index: int) -> None:
        """Hand `pages` to `owner` on `stream`."""

    def join(self, stream: Stream, pages: Iterable[int]) -> None:
        """Order `stream` after all that was done to `pages`."""

    def claims(self, pages: Iterable[int]) -> list[PageClaim]:
        """The claims under which `pages` are known now."""

    def publish(self, pages: Sequence[int]) -> None:
        """Stamp computed pages as shared."""

    def sums(self, pages: Sequence[int]) -> Prints:
        """Sum up the bits of `pages`."""

    def scrub(self, pages: Iterable[int]) -> None:
        """Poison those of `pages` that are not clean."""

    def finish_scrubs(self) -> None:
        """Wait until all that was asked for is done to the pages."""

    def collect(self) -> None:
        """Take in the checks that are done."""

    def audit(self, free: Sequence[int]) -> Evidence:
        """Look at every page when all work is over, and return all evidence of these pages."""


class Machine(ABC):
    """One incarnation of the worker on the device."""

    prefill: Stream
    decode: Stream

    def __init__(self) -> None:
        self.in_flight: list[LaunchedStep] = []

    def ahead(self, stream: Stream) -> int:
        """Steps of `stream` that are launched and not taken in."""
        return sum(step.stream is stream for step in self.in_flight)

    @property
    @abstractmethod
    def pages(self) -> PageFrames:
        """Its pages."""

    @abstractmethod
    def launch(self, stream: Stream, batch: StepBatch, members: Sequence[Serving]) -> LaunchedStep:
        """Launch a step."""

    @abstractmethod
    def hold(self, stream: Stream) -> Gate:
        """Hold back what is launched on `stream` from now on."""

    @abstractmethod
    def load(self, epoch: int) -> None:
        """Change the weights for all steps that are launched from now on."""

    @abstractmethod
    def kill(self) -> None:
        """End the worker with its steps in flight; when this returns, nothing of it can touch its memory again."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the device."""


class HereMachine(Machine):
    """In this process. `pages` are usable ones."""

    def __init__(self, platform: Platform, conduct: Conduct, pages: int, epoch: int) -> None:
        super().__init__()
        self._platform, self._conduct = platform, conduct
        self.device = platform.device()
        weights = platform.weights(epoch)
        memory = conduct.memory(self.device, weights, pages + 1)
        ring = conduct.ring(self.device)
        self.decoder = PagedDecoder(
            weights, memory, platform.probe.recipe, slots=LIMITS.sequences, positions=POSITIONS, ring=ring
        )
        self.frames = conduct.frames(memory)
        self.prefill, self.decode = self.device.prefill, self.device.decode
        self._last: dict[str, Event] = {}
        if self.device.is_cuda:
            rehearse(self.decoder, self.prefill, self.decode, self.device.stream("rehearsal"))

    @property
    def pages(self) -> PageFrames:
        """Its pages."""
        return self.frames

    def launch(self, stream: Stream, batch: StepBatch, members: Sequence[Serving]) -> LaunchedStep:
        """Launch a step. Its pages are watched by the device's own event, whatever the worker asks."""
        pending = self.decoder.launch(stream, evolve(batch, scratch=self._conduct.scratch(self.frames)))
        self.frames.watch.launched(batch.ticket, batch.pages, pending.event)
        other = self.decode if stream is self.prefill else self.prefill
        end = self._conduct.end(stream, other, pending, self._last.get(stream.name))
        launched = LaunchedStep(batch.ticket, stream, tuple(members), pending, end)
        self._last[stream.name] = pending.event
        self.in_flight.append(launched)
        return launched

    def hold(self, stream: Stream) -> Gate:
        """Hold back what is launched on `stream` from now on."""
        gate = self.device.gate()
        gate.hold(stream)
        return gate

    def load(self, epoch: int) -> None:
        """Change the weights for all steps that are launched from now on."""
        self.decoder.weights = self._platform.weights(epoch)

    def kill(self) -> None:
        """Let its steps run out: a process that has ended waits for its context in the same way."""
        self.device.close()
        self.frames.collect()

    def close(self) -> None:
        """Let go of the device; what is in flight is waited for."""
        self.device.close()
