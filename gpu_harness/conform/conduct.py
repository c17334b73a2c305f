"""The decisions of a worker at which a mistake reaches memory, each in one place: the seam for sabotage.

The run asks a `Conduct` and does what it says. This one is right; `gpu_harness.sabotage` has wrong ones, which the
evidence must catch.
"""

from collections.abc import Sequence

from attrs import define, field

from kvescrow.gpu_harness.conform.serving import Serving
from kvescrow.gpu_harness.conform.workload import TENANTS
from kvescrow.gpu_harness.decoder import StepResult
from kvescrow.gpu_harness.pages import PAGE_LENGTH
from kvescrow.gpu_harness.streams import Event, Pending, Stream
from kvescrow.spec.vocabulary import PrefixScope


@define(eq=False)
class LaunchedStep:
    """A step on its way: its ticket number, whom it serves, and the device's word on it."""

    number: int
    stream: Stream
    members: tuple[Serving, ...]
    pending: Pending[StepResult]
    before: Event | None
    """Ends with the step before it on the same stream; None where it is the first."""
    settled: bool = field(default=False, init=False)


class Conduct:
    """The right decisions."""

    def scope(self, scope: int) -> PrefixScope:
        """The scope in which a request of the tenant with adapter number `scope` may share pages (SCO-1)."""
        return PrefixScope(tenant=TENANTS[scope], adapter=f"adapter-{scope}", page_length=PAGE_LENGTH)

    def is_over(self, step: LaunchedStep) -> bool:
        """Whether nothing of a launched step can touch its pages any more (PAG-4)."""
        return step.pending.done()

    def over_at_cancel(self, steps: Sequence[LaunchedStep]) -> Sequence[LaunchedStep]:
        """Which of the `steps` in flight for an execution end with its accepted cancel: no kernel does (LIF-3)."""
        return ()

    def may_show(self, serving: Serving) -> bool:
        """Whether a client may be given what a step has sampled for it: an accepted cancel dominates (LIF-6)."""
        return not serving.is_stopping
