"""One step of a paged-KV decoder: prefill chunks and decode rows in one batch, with the evidence taken on
the device.

Before the model reads, the stamps of every listed page are compared with what the descriptor expects, and
16 words of it with poison; when the model has written, the stamps are compared again, so that reuse in the
middle of a step is seen too (CON-1, CON-2).
"""

from functools import partial
from typing import TYPE_CHECKING

import torch
from attrs import evolve, frozen

from kvescrow.gpu_harness.arithmetic import Recipe, finish_layer, in_buckets, logits_of, project_qkv, rope_table
from kvescrow.gpu_harness.descriptor import DescriptorRing, pack, unpack
from kvescrow.gpu_harness.evidence import NOTHING, Evidence, EvidenceKind, Finding, from_findings
from kvescrow.gpu_harness.gathered import GatheredAttention
from kvescrow.gpu_harness.inspection import Inspection, Inspector, Unwatched, evidence_of
from kvescrow.gpu_harness.kernels import absent, on_device, products_of
from kvescrow.gpu_harness.model import ModelWeights
from kvescrow.gpu_harness.pages import PagedMemory
from kvescrow.gpu_harness.plan import BadBatch, StepBatch, StepPlan, check_batch, plan_step
from kvescrow.gpu_harness.replays import Outputs, Replays, bucket_of, padded
from kvescrow.gpu_harness.streams import Pending, Stream
from kvescrow.spec.vocabulary import UserError

if TYPE_CHECKING:
    from kvescrow.gpu_harness.kernels.steps import KernelSteps


@frozen
class StepResult:
    """What a step gave: for each segment in order the sampled token and its logits [segments, vocabulary],
    on the host.
    """

    batch: StepBatch
    tokens: tuple[int, ...]
    logits: torch.Tensor
    evidence: Evidence


class PagedDecoder:
    """A model bound to a pool. `positions` bounds the context, `slots` the requests that are known at a
    time. `watched`: whether steps take evidence; they do, but for a measurement of what that costs.
    """

    def __init__(
        self,
        weights: ModelWeights,
        memory: PagedMemory,
        recipe: Recipe,
        *,
        slots: int,
        positions: int,
        ring: DescriptorRing | None = None,
        watched: bool = True,
    ) -> None:
        if (weights.shape, weights.dtype) != (memory.shape, memory.dtype):
            raise BadBatch("weights and pool have different shapes or dtypes")
        device = memory.device.torch_device
        recipe = on_device(recipe, memory.device, weights)
        self.weights, self.memory, self.recipe = weights, memory, recipe
        self.slots, self.positions = slots, positions
        self._turns = rope_table(weights.shape, positions, device)
        self._sampled = torch.zeros(slots, dtype=torch.int64, device=device)
        self._attention = GatheredAttention(weights.shape, recipe, weights.dtype)
        self._kernels = _kernels(memory, positions, watched) if recipe.kernels else None
        self._inspector = self._kernels or (Inspector(memory) if watched else Unwatched(memory))
        self._replays = Replays(memory.device) if recipe.replayed else None
        self._ring = ring or DescriptorRing(memory.device)
        recipe.products(weights)  # made here, and not by the first step on the stream of that step
        if memory.device.is_cuda:
            torch.cuda.synchronize(device)  # the streams are not ordered after the default stream

    def launch(self, stream: Stream, batch: StepBatch) -> Pending[StepResult]:
        """Queue one step on `stream`. The result's event is the step's ticket. Raises BadBatch,
        StreamFailed.
        """
        scratch = self.memory.scratch if batch.scratch is None else batch.scratch
        batch = evolve(batch, scratch=scratch)
        self._check(batch, scratch)
        device, weights, ring = self.memory.device, self.weights, self._ring
        plan, bucket = plan_step(batch, self.recipe, lambda host: host), None
        segments, listings = len(plan.slots), len(plan.listing.pages)
        if self._replays is not None and (bucket := bucket_of(batch)) is not None:
            plan = padded(plan, bucket, self.recipe, self.positions, scratch)
        packed = pack(plan)
        slot = ring.put(packed)

        def work() -> Outputs:
            words = ring.read(slot, len(packed.words))
            step = partial(self._step, weights, batch.ticket)
            if self._replays is None or bucket is None:
                outputs = step(unpack(packed, words))
            else:
                outputs = self._replays.run(stream.name, bucket, weights, packed, words, step)
            return tuple(device.download(part) for part in outputs)

        def finish(outputs: Outputs) -> StepResult:
            ticket, logits, tokens, nan_rows, violations, stamps = outputs
            inspection = Inspection(violations[:listings], stamps[:listings], nan_rows[:segments])
            evidence = evidence_of(batch, inspection) + _ticket_evidence(batch, int(ticket))
            return StepResult(batch, tuple(tokens[:segments].tolist()), logits[:segments], evidence)

        pending = stream.submit(work)
        ring.launched(slot, pending.event)
        return pending.then(finish)

    def _check(self, batch: StepBatch, scratch: int) -> None:
        check_batch(batch, self.slots)
        is_known = all(0 <= page < self.memory.pages for page in batch.pages)
        if not is_known or not 0 <= scratch <= self.memory.scratch:
            raise BadBatch(f"ticket {batch.ticket}: a page is not one of the pool's {self.memory.pages}")
        for s in batch.segments:
            who = f"ticket {batch.ticket}, request {s.request}"
            if s.end > self.positions:
                raise BadBatch(f"{who}: position {s.end - 1} is beyond the {self.positions} of this decoder")
            if not 0 <= s.scope < self.weights.scopes:
                raise BadBatch(f"{who}: scope {s.scope} is not one of the {self.weights.scopes} of the weights")
            if any(not 0 <= token < self.weights.shape.vocabulary for token in s.tokens or ()):
                raise BadBatch(f"{who}: a token id is outside the vocabulary")

    @torch.inference_mode()
    def _step(self, weights: ModelWeights, ticket: int, plan: StepPlan) -> Outputs:
        """The ticket as it was read, logits, tokens, and the parts of the inspection."""
        before = self._inspector.before(plan, ticket)
        with products_of(self.recipe):
            x = self._forward(weights, plan, before)
            head = partial(logits_of, weights, self.recipe.products(weights).head)
            (logits,) = in_buckets(head, self.recipe.row_bucket, self._padded(x, plan))
        logits = logits[: plan.last_rows.shape[0]]
        tokens = logits.argmax(-1)
        self._sampled[plan.slots] = tokens
        # The greatest of logits with a NaN among them is a NaN: the chosen ones tell whether there was any.
        seen = self._inspector.after(plan, before, logits.gather(-1, tokens[:, None]))
        return plan.ticket, logits, tokens, seen.nan_rows, seen.violations, seen.stamps

    def _padded(self, x: torch.Tensor, plan: StepPlan) -> torch.Tensor:
        """The last row of each segment, padded to a size that the recipe allows."""
        last = x[plan.last_rows]
        missing = self.recipe.padded_rows(last.shape[0]) - last.shape[0]
        return torch.cat([last, last.new_zeros(missing, last.shape[1])]) if missing else last

    def _forward(
        self, weights: ModelWeights, plan: StepPlan, before: tuple[torch.Tensor, torch.Tensor]
    ) -> torch.Tensor:
        """The residual stream [rows, hidden] after all layers; K and V of the rows are written to the pool."""
        shape, bucket = weights.shape, self.recipe.row_bucket
        tokens = plan.tokens.clone()
        tokens[plan.fed_rows] = self._sampled[plan.fed_slots]
        x = weights.embedding.index_select(0, tokens)
        turns = self._turns.index_select(0, plan.positions)
        views = self._attention.views(plan)
        project, finish = project_qkv, finish_layer
        if self._kernels is not None and bucket is None:  # nothing asks for bits that torch gives as well
            project, finish = self._kernels.project, self._kernels.finish
        layers = zip(weights.layers, self.recipe.products(weights).layers, self.memory.kv, strict=True)
        for layer, products, pages in layers:
            q, k, v = in_buckets(partial(project, shape, layer, products), bucket, x, turns, plan.scopes)
            if self._kernels is not None:
                attended = self._kernels.attended((q, k, v), pages, plan, before)
            else:
                pages[plan.write_pages, 0, plan.write_slots] = k
                pages[plan.write_pages, 1, plan.write_slots] = v
                attended = self._attention.attended(q, pages, views)
            (x,) = in_buckets(partial(finish, shape, layer, products), bucket, x, attended)
        return x


def _kernels(memory: PagedMemory, positions: int, watched: bool) -> "KernelSteps":
    if reason := absent(memory.shape):
        raise UserError(f"kernels over the block table: {reason}")
    from kvescrow.gpu_harness.kernels.steps import KernelSteps

    return KernelSteps(memory, positions, watched=watched)


def _ticket_evidence(batch: StepBatch, found: int) -> Evidence:
    """DESCRIPTOR_MISMATCH where the step ran on the descriptor of another one."""
    if found == batch.ticket:
        return NOTHING
    kind, wanted = EvidenceKind.DESCRIPTOR_MISMATCH, f"the descriptor of ticket {batch.ticket}"
    return from_findings([Finding(kind, -1, -1, batch.ticket, wanted, f"that of {found}")])
