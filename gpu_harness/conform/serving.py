"""One execution as the worker sees it."""

import torch
from attrs import define, field

from kvescrow.gpu_harness.conform.workload import Planned
from kvescrow.gpu_harness.pages import PageClaim
from kvescrow.reference.executions import holder_name
from kvescrow.spec.vocabulary import Key


@define(eq=False)
class Serving:
    """A started request. `generation` is unique in the run, so it is the owner stamp of its private pages."""

    planned: Planned
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
    has_pages: bool = False
    published: int = 0
    """Of its pages, the first ones that are shared."""
    is_prefilled: bool = False
    """Whether its prompt is computed, by the device's word."""
    is_stopping: bool = False
    """A cancel was accepted; steps may still be in flight."""
    delivered: int = 0
    """Tokens that its client was given."""
    tokens: list[int] = field(factory=list)
    """Every token that was sampled, those that came after a cancel included."""
    logits: list[torch.Tensor] = field(factory=list)
    """What each was sampled from, [vocabulary], on the host."""

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
        return bool(self.planned.cancel_at) and self.launches + 1 >= (self.planned.cancel_at or 0)
