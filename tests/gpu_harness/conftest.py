"""A small decoder on the device under test, and a driver that plays requests through it.

The device is the CPU, or what KVESCROW_TEST_DEVICE names; without the hardware it names, every test fails.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Sequence

import pytest
import torch
from attrs import define, field

from kvescrow.gpu_harness.arithmetic import Recipe
from kvescrow.gpu_harness.decoder import PagedDecoder, StepResult
from kvescrow.gpu_harness.device import Device, open_device
from kvescrow.gpu_harness.evidence import NOTHING
from kvescrow.gpu_harness.model import SHAPES, ModelWeights, seeded_weights
from kvescrow.gpu_harness.pages import PAGE_LENGTH, PageClaim, PagedMemory
from kvescrow.gpu_harness.plan import Segment, StepBatch
from kvescrow.gpu_harness.probe import exact_recipe
from kvescrow.gpu_harness.streams import Stream

SCOPES = 3
POSITIONS = 192
PAGES = 160


@define
class Request:
    """A request as the driver sees it: `done` positions are in the cache, each row gave one token and its logits."""

    number: int
    scope: int
    prompt: list[int]
    claims: tuple[PageClaim, ...]
    done: int = 0
    tokens: list[int] = field(factory=list)
    logits: list[torch.Tensor] = field(factory=list)

    def next_segment(self, chunk: int, feed: bool = False) -> Segment:
        """The next prefill chunk, or the next decode row (`feed`: its token stays on the device)."""
        tokens: tuple[int, ...] | None = tuple(self.prompt[self.done : self.done + chunk])
        if not tokens:
            tokens = None if feed else (self.tokens[-1],)
        return Segment(self.number, self.scope, self.number, self.done, tokens, self.claims)


class Rig:
    """A decoder, its pool, and the evidence of everything that ran on them."""

    def __init__(self, device: Device, weights: ModelWeights, recipe: Recipe) -> None:
        self.device, self.weights, self.recipe = device, weights, recipe
        self.memory = PagedMemory(device, weights.shape, PAGES, weights.dtype)
        self.decoder = PagedDecoder(weights, self.memory, recipe, slots=32, positions=POSITIONS)
        self.free = list(range(1, PAGES))
        self.evidence = NOTHING
        self.ticket = 0

    def admit(
        self, number: int, prompt: Sequence[int], count: int, *, scope: int = 0, shared: Sequence[PageClaim] = ()
    ) -> Request:
        """A request whose first pages are `shared`; the others are granted to it."""
        needed = -(-(len(prompt) + count) // PAGE_LENGTH) - len(shared)
        pages = [self.free.pop() for _ in range(needed)]
        grant = self.memory.grant(self.device.decode, pages, owner=number, scope=scope, first_index=len(shared))
        self.evidence += grant.evidence.wait()
        return Request(number, scope, list(prompt), (*shared, *grant.claims), len(shared) * PAGE_LENGTH)

    def step(self, *segments: Segment, stream: Stream | None = None, scratch: int | None = None) -> StepResult:
        """One step, waited for; what the host did to the pool before is ordered before it."""
        self.device.synchronize()
        self.ticket += 1
        batch = StepBatch(self.ticket, segments, scratch)
        result = self.decoder.launch(stream or self.device.decode, batch).wait()
        self.evidence += result.evidence
        return result

    def play(self, requests: Sequence[Request], count: int, chunk: int, draw: random.Random) -> None:
        """Run all to `count` tokens in batches that change at random."""
        while running := [r for r in requests if len(r.tokens) < count]:
            chosen = [r for r in running if draw.random() < 0.7] or running[:1]
            segments = [r.next_segment(chunk, feed=draw.random() < 0.5) for r in chosen]
            self.take(chosen, segments, self.step(*segments))

    @staticmethod
    def take(requests: Sequence[Request], segments: Sequence[Segment], result: StepResult) -> None:
        """Hand a step's rows to its requests."""
        rows = zip(requests, segments, result.tokens, result.logits, strict=True)
        for request, segment, token, logits in rows:
            request.done = segment.end
            if request.done >= len(request.prompt):
                request.tokens.append(token)
                request.logits.append(logits)

    def bits_of(self, claims: Sequence[PageClaim]) -> torch.Tensor:
        """A copy of the pages as integers, [layers, pages, ...]."""
        self.device.synchronize()
        return self.memory.bits[:, [claim.page for claim in claims]].clone()


@pytest.fixture(scope="session")
def device() -> Iterator[Device]:
    with open_device(os.environ.get("KVESCROW_TEST_DEVICE", "cpu")) as opened:
        yield opened


@pytest.fixture(scope="session")
def weights_of(device: Device) -> Callable[[torch.dtype], ModelWeights]:
    """The tiny model's weights by dtype."""
    made: dict[torch.dtype, ModelWeights] = {}

    def of(dtype: torch.dtype) -> ModelWeights:
        if dtype not in made:
            made[dtype] = seeded_weights(SHAPES["tiny"], 7, scopes=SCOPES, dtype=dtype, device=device.torch_device)
        return made[dtype]

    return of


@pytest.fixture(scope="session")
def recipe_of(device: Device, weights_of: Callable[[torch.dtype], ModelWeights]) -> Callable[[torch.dtype], Recipe]:
    """The recipe that the probe finds exact for the tiny model, by dtype."""
    found: dict[torch.dtype, Recipe] = {}

    def of(dtype: torch.dtype) -> Recipe:
        if dtype not in found:
            probe = exact_recipe(device, weights_of(dtype))
            assert probe.exact, probe.reason
            found[dtype] = probe.recipe
        return found[dtype]

    return of


@pytest.fixture
def rig_of(
    device: Device,
    weights_of: Callable[[torch.dtype], ModelWeights],
    recipe_of: Callable[[torch.dtype], Recipe],
) -> Callable[[torch.dtype], Rig]:
    """A fresh rig by dtype."""
    return lambda dtype: Rig(device, weights_of(dtype), recipe_of(dtype))


@pytest.fixture
def rig(rig_of: Callable[[torch.dtype], Rig]) -> Rig:
    """A fresh fp32 rig."""
    return rig_of(torch.float32)


@pytest.fixture
def prompts() -> list[list[int]]:
    """Prompts around page and block edges."""
    draw = random.Random(11)
    lengths = (1, 15, 16, 17, 63, 64, 65, 150)
    return [[draw.randrange(SHAPES["tiny"].vocabulary) for _ in range(length)] for length in lengths]
