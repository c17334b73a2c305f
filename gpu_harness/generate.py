"""Greedy continuation of a batch of prompts on the paged decoder, with no more around it than a measurement needs."""

from collections.abc import Sequence

import torch
from attrs import define, field

from kvescrow.gpu_harness.arithmetic import Recipe
from kvescrow.gpu_harness.decoder import PagedDecoder, StepResult
from kvescrow.gpu_harness.device import Device
from kvescrow.gpu_harness.evidence import NOTHING, Evidence
from kvescrow.gpu_harness.model import ModelWeights
from kvescrow.gpu_harness.pages import PAGE_LENGTH, PageClaim, PagedMemory
from kvescrow.gpu_harness.plan import Segment, StepBatch
from kvescrow.gpu_harness.streams import Pending

STEP_LIMIT_MICROSECONDS = 600_000_000
"""A step of a large model on a busy processor takes seconds, never this long."""


@define(eq=False)
class Batch:
    """Prompts that are decoded together: all prefilled one after the other, then one token each in every step."""

    device: Device
    decoder: PagedDecoder
    prompts: tuple[tuple[int, ...], ...]
    claims: tuple[tuple[PageClaim, ...], ...]
    evidence: Evidence = NOTHING
    _ticket: int = field(default=0, init=False)
    _step: int = field(default=0, init=False)

    @classmethod
    def of(
        cls,
        device: Device,
        weights: ModelWeights,
        recipe: Recipe,
        prompts: Sequence[Sequence[int]],
        count: int,
        *,
        watched: bool = True,
    ) -> "Batch":
        """Grant every prompt the pages of itself and `count` tokens; `watched`: whether steps take evidence."""
        longest = max(map(len, prompts)) + count
        needed = [-(-(len(prompt) + count) // PAGE_LENGTH) for prompt in prompts]
        memory = PagedMemory(device, weights.shape, 1 + sum(needed), weights.dtype)
        decoder = PagedDecoder(weights, memory, recipe, slots=len(prompts), positions=longest, watched=watched)
        claims, first = [], 1
        for request, pages in enumerate(needed):
            own = range(first, first + pages)
            claims.append(memory.grant(device.decode, own, owner=request, scope=0, first_index=0).claims)
            first += pages
        device.synchronize()
        return cls(device, decoder, tuple(map(tuple, prompts)), tuple(claims))

    def prefill(self, request: int) -> Pending[StepResult]:
        """Launch the whole prompt of one request; its first token is sampled."""
        return self._launch([Segment(request, 0, request, 0, self.prompts[request], self.claims[request])])

    def decode(self) -> Pending[StepResult]:
        """Launch one token of every request, fed with the one before on the device."""
        segments = [
            Segment(request, 0, request, len(prompt) + self._step, None, self.claims[request])
            for request, prompt in enumerate(self.prompts)
        ]
        self._step += 1
        return self._launch(segments)

    def again(self) -> None:
        """Decode from the ends of the prompts again, over the same pages, to measure the same steps once more.

        The pages' tails hold tokens by then, which is evidence where steps are watched.
        """
        self._step = 0

    def take(self, pending: Pending[StepResult]) -> StepResult:
        """Wait for a step and keep its evidence."""
        result = pending.wait(STEP_LIMIT_MICROSECONDS)
        self.evidence += result.evidence
        return result

    def generate(self, count: int) -> tuple[list[list[int]], list[torch.Tensor]]:
        """`count` tokens of each prompt, and the logits [count, vocabulary] that each was chosen from."""
        tokens: list[list[int]] = []
        logits: list[list[torch.Tensor]] = []
        for request in range(len(self.prompts)):
            first = self.take(self.prefill(request))
            tokens.append([first.tokens[0]])
            logits.append([first.logits[0]])
        for _ in range(count - 1):
            result = self.take(self.decode())
            for request, token in enumerate(result.tokens):
                tokens[request].append(token)
                logits[request].append(result.logits[request])
        return tokens, [torch.stack(rows) for rows in logits]

    def _launch(self, segments: Sequence[Segment]) -> Pending[StepResult]:
        self._ticket += 1
        return self.decoder.launch(self.device.decode, StepBatch(self._ticket, segments))
