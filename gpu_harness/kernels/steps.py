"""What a step does with pages, by kernels: write, attend, and look at every page that it lists."""

import torch

from kvescrow.gpu_harness.inspection import LISTING_KINDS, Counters, Inspection, Inspector
from kvescrow.gpu_harness.kernels.attention import attend
from kvescrow.gpu_harness.kernels.looks import look
from kvescrow.gpu_harness.kernels.rows import finish_rows, project_rows
from kvescrow.gpu_harness.kernels.stamps import KINDS
from kvescrow.gpu_harness.kernels.writes import write
from kvescrow.gpu_harness.pages import PagedMemory
from kvescrow.gpu_harness.plan import StepPlan

assert len(LISTING_KINDS) == KINDS


class KernelSteps(Inspector):
    """The inspection of steps, and their writes and attention. `positions` bounds the contexts."""

    def __init__(self, memory: PagedMemory, positions: int, *, watched: bool) -> None:
        super().__init__(memory)
        self._positions, self._watched = positions, watched

    project, finish = staticmethod(project_rows), staticmethod(finish_rows)
    """Row work, for steps that need not have the bits of torch."""

    def before(self, plan: StepPlan, ticket: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Counters, as `Counters` has them, with what is wrong before the model reads."""
        counters = Counters.of(plan.listing)
        if self._watched:
            look(self._memory, plan, counters, is_before=True)
        return counters.counts, counters.found

    def attended(
        self,
        qkv: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
        pages: torch.Tensor,
        plan: StepPlan,
        before: tuple[torch.Tensor, torch.Tensor],
    ) -> torch.Tensor:
        """Write keys and values of the rows into one layer `pages`, then attend: [rows, query width].

        What is wrong with the pages that are written and read is counted in `before`.
        """
        query, key, value = (part.contiguous() for part in qkv)
        tiles, counters = plan.paged, Counters(*before) if self._watched else None
        assert tiles is not None
        write(key, value, pages, self._memory.stamps, plan, tiles.write_listings, counters)
        found = attend(query, pages, self._memory.stamps, tiles, plan.listing, self._positions, counters)
        return found.flatten(1)

    def after(self, plan: StepPlan, before: tuple[torch.Tensor, torch.Tensor], logits: torch.Tensor) -> Inspection:
        """The inspection of the whole step, its end included."""
        counters = Counters(*before)
        if self._watched:
            look(self._memory, plan, counters, is_before=False)
        return Inspection(counters.counts > 0, counters.found, logits.amax(-1).isnan())
