"""Requests on the real decoder, moved step by step, each step timed on the host.

A step takes from the moment at which the host begins to describe it to the moment at which its tokens are on the host:
that is what a client waits for between two tokens.
"""

import random
from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import Protocol

from attrs import define

from kvescrow.gpu_harness.arithmetic import Recipe
from kvescrow.gpu_harness.decoder import PagedDecoder
from kvescrow.gpu_harness.device import Device
from kvescrow.gpu_harness.model import ModelWeights
from kvescrow.gpu_harness.pages import PAGE_LENGTH, PageClaim, PagedMemory
from kvescrow.gpu_harness.plan import Segment, StepBatch
from kvescrow.reference.scheduler import MeasuredStep, StepWork, of_chunk, of_decodes

Clock = Callable[[], int]
"""Nanoseconds that never go back."""


@define(eq=False)
class Request:
    """One request: a prompt, of which `position` tokens are computed, then output."""

    slot: int
    prompt: tuple[int, ...]
    claims: tuple[PageClaim, ...] = ()
    position: int = 0

    @property
    def prompt_left(self) -> int:
        """Prompt tokens to compute."""
        return max(0, len(self.prompt) - self.position)


class Bench(Protocol):
    """Where steps are run and timed."""

    def now(self) -> int:
        """Return the time in microseconds, from an arbitrary beginning."""
        ...

    def open(self, prompt: int, outputs: int) -> Request:
        """Return a request with a prompt of so many tokens and room for so many more."""
        ...

    def close(self, request: Request) -> None:
        """Give back what it holds."""
        ...

    def step(self, decodes: Sequence[Request], chunk: tuple[Request, int] | None) -> MeasuredStep:
        """Run a step that gives `decodes` a token each and computes a chunk of so many prompt tokens beside them."""
        ...


def work_of(decodes: Sequence[Request], chunk: tuple[Request, int] | None) -> StepWork:
    """Return what such a step does."""
    work = of_decodes(request.position for request in decodes)
    return work if chunk is None else work + of_chunk(chunk[0].position, chunk[1])


class DecoderBench:
    """A decoder with `slots` requests of at most `positions` tokens each, on one stream."""

    def __init__(
        self,
        device: Device,
        weights: ModelWeights,
        recipe: Recipe,
        *,
        slots: int,
        positions: int,
        seed: int = 1,
        clock: Clock = perf_counter_ns,
    ) -> None:
        self._stream = device.decode
        self._pages_each = -(-positions // PAGE_LENGTH)
        self._memory = PagedMemory(device, weights.shape, 1 + slots * self._pages_each, weights.dtype)
        self._decoder = PagedDecoder(weights, self._memory, recipe, slots=slots, positions=positions)
        self._free = list(range(slots))
        self._draw = random.Random(seed)
        self._vocabulary = weights.shape.vocabulary
        self._clock = clock
        self._tickets = 0

    def now(self) -> int:
        """Return the time in microseconds."""
        return self._clock() // 1000

    def open(self, prompt: int, outputs: int) -> Request:
        """Grant all pages that the request may need, and wait until they are its own."""
        slot = self._free.pop()
        tokens = tuple(self._draw.randrange(self._vocabulary) for _ in range(prompt))
        needed = -(-(prompt + outputs) // PAGE_LENGTH)
        first = 1 + slot * self._pages_each
        grant = self._memory.grant(self._stream, range(first, first + needed), owner=slot, scope=0, first_index=0)
        grant.evidence.wait()
        return Request(slot, tokens, grant.claims)

    def close(self, request: Request) -> None:
        """Scrub its pages; no step is in flight between steps of this bench."""
        self._memory.reclaim(self._stream, [claim.page for claim in request.claims]).wait()
        self._free.append(request.slot)

    def step(self, decodes: Sequence[Request], chunk: tuple[Request, int] | None) -> MeasuredStep:
        """Launch the step and wait for its tokens."""
        work = work_of(decodes, chunk)
        began = self._clock()
        segments = [self._segment(request, None) for request in decodes]
        if chunk is not None:
            request, length = chunk
            segments.append(self._segment(request, request.prompt[request.position : request.position + length]))
        self._tickets += 1
        self._decoder.launch(self._stream, StepBatch(self._tickets, segments)).wait()
        took = self._clock() - began
        for request in decodes:
            request.position += 1
        if chunk is not None:
            chunk[0].position += chunk[1]
        return MeasuredStep(work, max(1, took // 1000))

    def _segment(self, request: Request, tokens: tuple[int, ...] | None) -> Segment:
        return Segment(request.slot, 0, request.slot, request.position, tokens, request.claims)
