"""The decisions of a worker at which a mistake reaches memory, each in one place: the seam for sabotage.

The run asks a `Conduct` and does what it says. This one is right; `gpu_harness.sabotage` has wrong ones, which the
evidence must catch.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from attrs import define, field

from kvescrow.gpu_harness.conform.frames import Frames
from kvescrow.gpu_harness.conform.serving import Serving
from kvescrow.gpu_harness.conform.workload import prefix_scope
from kvescrow.gpu_harness.decoder import StepResult
from kvescrow.gpu_harness.descriptor import DescriptorRing
from kvescrow.gpu_harness.device import Device
from kvescrow.gpu_harness.model import ModelWeights
from kvescrow.gpu_harness.pages import PageClaim, PagedMemory
from kvescrow.gpu_harness.streams import Event, Pending, Stream
from kvescrow.spec.vocabulary import PrefixScope

if TYPE_CHECKING:
    from kvescrow.gpu_harness.conform.loop import Loop


@define(eq=False)
class LaunchedStep:
    """A step on its way: its ticket number, whom it serves, and the device's word on it."""

    number: int
    stream: Stream
    members: tuple[Serving, ...]
    pending: Pending[StepResult]
    end: Event
    """What the worker asks to know that the step is over."""
    settled: bool = field(default=False, init=False)


class Conduct:
    """The right decisions."""

    # --- what the worker has ----------------------------------------------------------------------------------------

    def memory(self, device: Device, weights: ModelWeights, pages: int) -> PagedMemory:
        """The pool on the device; `pages` counts the sink."""
        return PagedMemory(device, weights.shape, pages, weights.dtype)

    def frames(self, memory: PagedMemory) -> Frames:
        """What does on the device as the page pool decides."""
        return Frames(memory)

    def ring(self, device: Device) -> DescriptorRing:
        """Where step descriptors are written."""
        return DescriptorRing(device)

    # --- prefixes ---------------------------------------------------------------------------------------------------

    def scope(self, number: int) -> PrefixScope:
        """The scope in which a request of scope `number` may share pages (SCO-1)."""
        return prefix_scope(number)

    def known_as(self, tokens: Sequence[int]) -> Sequence[int]:
        """The tokens by which the page pool knows a prompt (SCO-2)."""
        return tokens

    def hits(self, serving: Serving, claims: Sequence[PageClaim], cached: int) -> tuple[list[PageClaim], int]:
        """The pages that a request starts with and the tokens in them, after the pool's answer (PAG-7)."""
        return list(claims), cached

    def drains_before(self, epoch: int) -> bool:
        """Whether weights are changed only when nothing runs on the old ones (SCO-5)."""
        return True

    # --- steps ------------------------------------------------------------------------------------------------------

    def table(self, claims: Sequence[PageClaim]) -> tuple[PageClaim, ...]:
        """The block table of a request in a step: its pages in logical order."""
        return tuple(claims)

    def scratch(self, frames: Frames) -> int | None:
        """The page that padding rows write; None: the one that the pool has for it."""
        return None

    def end(self, stream: Stream, other: Stream, pending: Pending[StepResult], before: Event | None) -> Event:
        """The event that says when a step on `stream` is over; `before` ends with the step before it there (PAG-4)."""
        return pending.event

    # --- ends -------------------------------------------------------------------------------------------------------

    def obeys(self, serving: Serving) -> bool:
        """Whether an accepted cancel withholds the next launch (LIF-3)."""
        return True

    def over_at_cancel(self, steps: Sequence[LaunchedStep]) -> Sequence[LaunchedStep]:
        """Which of the `steps` in flight for an execution end with its accepted cancel: no kernel does (LIF-3)."""
        return ()

    def may_show(self, serving: Serving) -> bool:
        """Whether a client may be given what a step has sampled for it: an accepted cancel dominates (LIF-6)."""
        return not serving.is_stopping

    # --- what others do meanwhile -----------------------------------------------------------------------------------

    def holds(self, loop: "Loop", stream: Stream, members: Sequence[Serving]) -> bool:
        """Whether the next step is held back, so that what is done meanwhile is done while it is in flight."""
        return False

    def meanwhile(self, loop: "Loop", step: LaunchedStep) -> None:
        """What is done while `step` is held back."""
