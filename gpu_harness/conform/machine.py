"""What a worker process has: a device with two compute streams, a decoder, its pages, and the steps in flight."""

from collections.abc import Sequence

from kvescrow.gpu_harness.conform.conduct import Conduct, LaunchedStep
from kvescrow.gpu_harness.conform.platform import Platform
from kvescrow.gpu_harness.conform.serving import Serving
from kvescrow.gpu_harness.conform.settings import LIMITS, POSITIONS
from kvescrow.gpu_harness.decoder import PagedDecoder
from kvescrow.gpu_harness.plan import StepBatch
from kvescrow.gpu_harness.streams import Event, Gate, Stream


class Machine:
    """One incarnation of the worker on the device. `pages` are usable ones."""

    def __init__(self, platform: Platform, conduct: Conduct, pages: int, epoch: int) -> None:
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
        self.in_flight: list[LaunchedStep] = []
        self._last: dict[str, Event] = {}

    def ahead(self, stream: Stream) -> int:
        """Steps of `stream` that are launched and not taken in."""
        return sum(step.stream is stream for step in self.in_flight)

    def launch(self, stream: Stream, batch: StepBatch, members: Sequence[Serving]) -> LaunchedStep:
        """Launch a step. Its pages are watched by the device's own event, whatever the worker asks."""
        pending = self.decoder.launch(stream, batch)
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

    def close(self) -> None:
        """Let go of the device; what is in flight is waited for."""
        self.device.close()
