"""One execution as the worker sees it."""

import torch
from attrs import define, field

from kvescrow.gpu_harness.conform.workload import Planned
from kvescrow.gpu_harness.pages import PageClaim
from kvescrow.gpu_harness.streams import Pending
from kvescrow.reference.executions import holder_name
from kvescrow.spec.vocabulary import Key


@define(eq=False)
class Serving:
    """A started request. `generation` is unique in the run, so it is the owner stamp of its private pages."""

    planned: Planned
    scope: int
    """Number of its scope: tenant, adapter, and the weight epoch in which it started."""
    life: int
    generation: int
    slot: int
    prompt_left: int
    """Prompt tokens whose computation has not been launched."""
    outputs_left: int
    """Tokens that no launched step samples yet."""
    position: int = 0
    """Tokens whose keys and values are there, or will be after the launched steps."""
    launches: int = 0
    pages: list[int] = field(factory=list)
    claims: list[PageClaim] = field(factory=list)
    """The pages that its steps list: those of `pages`, unless a worker makes mistakes."""
    bound: int = 0
    """Tokens that are reserved for it."""
    has_pages: bool = False
    published: int = 0
    """Of its pages, the first ones that are shared."""
    is_prefilled: bool = False
    """Whether its prompt is computed, by the device's word."""
    is_stopping: bool = False
    """A cancel was accepted; steps may still be in flight."""
    cancel_sent: bool = False
    """A cancel was accepted, whatever the worker makes of it."""
    waits_for_growth: bool = False
    """It needs more than is reserved for it, and was denied it."""
    delivered: int = 0
    """Tokens that its client was given."""
    tokens: list[int] = field(factory=list)
    """Every token that was sampled, those that came after a cancel included."""
    logits: list[torch.Tensor] = field(factory=list)
    """What each was sampled from, [vocabulary], on the host."""

    sums: Pending[dict[int, int]] | None = None
    """Of its pages, by number, when it was completed."""

    @property
    def key(self) -> Key:
        """The key of its reservation."""
        return self.planned.key

    @property
    def holder(self) -> str:
        """Its name in the page pool."""
        return holder_name(self.key, self.generation)

    @property
    def used(self) -> int:
        """Tokens used: prompt computed or reused, and output given."""
        return min(self.position, len(self.planned.prompt)) + self.delivered

    @property
    def cancel_is_due(self) -> bool:
        """Whether its client cancels under its next launch."""
        return (
            bool(self.planned.cancel_at) and not self.cancel_sent and self.launches + 1 >= (self.planned.cancel_at or 0)
        )
