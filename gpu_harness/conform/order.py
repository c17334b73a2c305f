"""When a worker hears that a step is over: as the device ends it, or in an order that the run's own course fixes.

What a worker decides next depends on what it has heard, and a device ends its steps when it does. So two runs of one
seed take two courses, each of which must be right. In a fixed order they take the same one: each step is taken in so
many of the run's turns after its launch, whatever the device does meanwhile. Work is launched on the same streams and
held by the same gates, and overlaps as it does; only when the host looks is fixed. What the device finds stays its own
word: under a planted mistake it is the outcome of a race, and it decides nothing that a journal tells.
"""

import random
from abc import ABC, abstractmethod

from kvescrow.gpu_harness.conform.conduct import LaunchedStep
from kvescrow.gpu_harness.streams import Stream

FEWEST_TURNS, MOST_TURNS = 1, 4
"""Turns from a step's launch to its end in a fixed order. With one, a stream's next step is launched before; with
more, the stream is as full as it may be and the other one goes on, so that steps end in many orders.
"""


class Order(ABC):
    """Which of the launched steps are over, as a worker hears it."""

    @abstractmethod
    def begin_turn(self) -> None:
        """Take note that the run takes one more turn."""

    @abstractmethod
    def launched(self, step: LaunchedStep) -> None:
        """Take note of a launch."""

    @abstractmethod
    def hold(self, stream: Stream) -> None:
        """Take note that a gate holds `stream`."""

    @abstractmethod
    def let_go(self) -> None:
        """Take note that no gate holds anything."""

    @abstractmethod
    def is_over(self, step: LaunchedStep) -> bool:
        """Whether the worker hears that `step` is over. Raises StreamFailed, EventMisuse, DeviceTimeout."""

    @abstractmethod
    def is_there(self, step: LaunchedStep) -> bool:
        """Whether the result of `step` can be read. Raises StreamFailed, DeviceTimeout."""

    @abstractmethod
    def wait(self, step: LaunchedStep) -> None:
        """Nothing can be done before a step is over, and `step` is the first of them."""

    def see_through(self, step: LaunchedStep) -> None:
        """Wait for `step`, which no gate holds; the worker hears of it from here on."""
        step.pending.event.synchronize()


class AsTheyEnd(Order):
    """The device's own order: a worker asks, and waits where nothing else can be done. It takes note of nothing."""

    def begin_turn(self) -> None:
        """Turns do not count."""

    def launched(self, step: LaunchedStep) -> None:
        """The device knows."""

    def hold(self, stream: Stream) -> None:
        """The device knows."""

    def let_go(self) -> None:
        """The device knows."""

    def is_over(self, step: LaunchedStep) -> bool:
        """By the event that the worker goes by."""
        return step.end.query()

    def is_there(self, step: LaunchedStep) -> bool:
        """By the device's word."""
        return step.pending.done()

    def wait(self, step: LaunchedStep) -> None:
        """Wait for it."""
        step.pending.event.synchronize()


class FixedOrder(Order):
    """A number of turns for each step, drawn from the seed; a device that is late is waited for.

    Steps of one stream end one after the other. What a gate holds is not over, however long the gate is there.
    """

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(f"order of a run, seed {seed}")
        self._turn = 0
        self._due: dict[int, int] = {}
        """Of a step by its number, the turn from which on it is over."""
        self._last_due: dict[str, int] = {}
        self._held: str | None = None

    def begin_turn(self) -> None:
        """Count it."""
        self._turn += 1

    def launched(self, step: LaunchedStep) -> None:
        """Draw its turns; it does not end before the one before it on its stream."""
        stream, turns = step.stream.name, self._draw.randint(FEWEST_TURNS, MOST_TURNS)
        self._due[step.number] = self._last_due[stream] = max(self._turn + turns, self._last_due.get(stream, 0))

    def hold(self, stream: Stream) -> None:
        """Steps of `stream` are not over."""
        self._held = stream.name

    def let_go(self) -> None:
        """Nothing is held."""
        self._held = None

    def is_over(self, step: LaunchedStep) -> bool:
        """When its turn has come.

        Of a step that is held its own event is not asked, since a gate on a GPU closes by itself in the end. Where a
        mistake has the worker go by another one, that is asked: this is how the mistake comes to light.
        """
        if step.stream.name == self._held:
            return step.end is not step.pending.event and step.end.query()
        return self._is_due(step) and step.end.query()

    def is_there(self, step: LaunchedStep) -> bool:
        """When its turn has come."""
        return step.stream.name != self._held and self._is_due(step)

    def wait(self, step: LaunchedStep) -> None:
        """Do nothing: turns go by."""

    def see_through(self, step: LaunchedStep) -> None:
        """Wait for `step`, whose turn has come with this."""
        super().see_through(step)
        self._due[step.number] = self._turn

    def _is_due(self, step: LaunchedStep) -> bool:
        """Whether its turn has come; then it is over, since it is waited for."""
        if self._turn < self._due[step.number]:
            return False
        step.pending.event.synchronize()
        return True
