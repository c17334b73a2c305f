"""Whether a row's bits are independent of the batch on this device, with these widths: measured, never
assumed.

Exact comparison means something only where this holds, so a run probes first and refuses strict comparison
where it does not. One layer of the real weights is run three ways: each request alone, all together in odd
chunks, and by the dense oracle; the logits must have the same bits (CON-2).
"""

import random
from collections.abc import Sequence

import torch
from attrs import evolve, frozen

from kvescrow.gpu_harness.arithmetic import ANY_SIZE, FIXED_SIZE, KERNELS, OWN_PRODUCTS, Recipe
from kvescrow.gpu_harness.decoder import PagedDecoder
from kvescrow.gpu_harness.device import Device
from kvescrow.gpu_harness.kernels import absent
from kvescrow.gpu_harness.model import ModelWeights
from kvescrow.gpu_harness.oracle import DenseOracle, same_bits
from kvescrow.gpu_harness.pages import PAGE_LENGTH, PagedMemory
from kvescrow.gpu_harness.plan import Segment, StepBatch
from kvescrow.gpu_harness.streams import StreamFailed

PROMPT_LENGTHS = (1, 2, 3, 16, 17, 31, 47, 64, 65, 70, 90)
"""Eleven requests: row counts run through the sizes at which libraries change kernels, contexts through
block edges.
"""

DECODED = 3
CHUNK = 5
SEED = 20_260


@frozen
class ProbeResult:
    """Whether `recipe` is exact on the device; if not, `reason` says what differed and by how much."""

    recipe: Recipe
    exact: bool
    reason: str
    passed_over: tuple[str, ...] = ()
    """Faster recipes that are not exact or not possible here, each with the reason."""


def exact_recipe(device: Device, weights: ModelWeights) -> ProbeResult:
    """The fastest recipe that is exact on `device` for `weights`, or the last one tried with the reason
    against it.
    """
    candidates: tuple[Recipe, ...] = (ANY_SIZE, FIXED_SIZE)
    passed_over: list[str] = []
    if device.is_cuda:
        candidates = (KERNELS, OWN_PRODUCTS, FIXED_SIZE)
        if reason := absent(weights.shape, device):
            candidates, passed_over = (FIXED_SIZE,), [f"{KERNELS.name}: {reason}"]
    for recipe in candidates:
        result = _tried(device, weights, recipe)
        if result.exact:
            break
        passed_over.append(f"{recipe.name}: {result.reason}")
    return evolve(result, passed_over=tuple(passed_over))


def _tried(device: Device, weights: ModelWeights, recipe: Recipe) -> ProbeResult:
    """The probe's result. Kernels that cannot be built or launched here are a reason against their recipe alone."""
    try:
        return probe_exactness(device, weights, recipe)
    except StreamFailed as failure:
        if not recipe.kernels:
            raise
        return ProbeResult(recipe, False, str(failure))


def probe_exactness(device: Device, weights: ModelWeights, recipe: Recipe) -> ProbeResult:
    """Compare the three ways of running. `weights` are on `device`; takes seconds."""
    if odd := weights.shape.odd_widths():
        names = ", ".join(f"{name} = {width}" for name, width in odd.items())
        return ProbeResult(recipe, False, f"widths must be multiples of 64 for exact arithmetic: {names}")
    one_layer = evolve(weights, shape=evolve(weights.shape, layers=1), layers=weights.layers[:1])
    draw = random.Random(SEED)
    prompts = [[draw.randrange(weights.shape.vocabulary) for _ in range(length)] for length in PROMPT_LENGTHS]
    alone = [row for prompt in prompts for row in _decode(device, one_layer, recipe, [prompt], len(prompt))]
    together = _decode(device, one_layer, recipe, prompts, CHUNK)
    dense = [_dense(one_layer, recipe, prompt) for prompt in prompts]
    for name, rows in (("in a batch", together), ("in the dense oracle", dense)):
        for length, one, other in zip(PROMPT_LENGTHS, alone, rows, strict=True):
            if not same_bits(one, other):
                worst = float((one.double() - other.double()).abs().max())
                reason = f"a prompt of {length} token(s) has other logits alone than {name}, by {worst:.3g}"
                return ProbeResult(recipe, False, reason)
    return ProbeResult(recipe, True, "")


def _dense(weights: ModelWeights, recipe: Recipe, prompt: Sequence[int]) -> torch.Tensor:
    return DenseOracle(weights, recipe, 0, len(prompt) + DECODED).run(prompt, DECODED).logits


def _decode(
    device: Device, weights: ModelWeights, recipe: Recipe, prompts: Sequence[Sequence[int]], chunk: int
) -> list[torch.Tensor]:
    """Logits [DECODED, vocabulary] of each prompt, all prompts in every step, prefilled `chunk` tokens at a
    time.
    """
    needed = [-(-(len(prompt) + DECODED) // PAGE_LENGTH) for prompt in prompts]
    memory = PagedMemory(device, weights.shape, 1 + sum(needed), weights.dtype)
    decoder = PagedDecoder(weights, memory, recipe, slots=len(prompts), positions=max(needed) * PAGE_LENGTH)
    free = list(range(1, memory.pages))
    claims = []
    for request, pages in enumerate(needed):
        taken, free = free[:pages], free[pages:]
        claims.append(memory.grant(device.decode, taken, owner=request, scope=0, first_index=0).claims)
    rows: list[list[torch.Tensor]] = [[] for _ in prompts]
    done = [0] * len(prompts)
    while running := [i for i in range(len(prompts)) if len(rows[i]) < DECODED]:
        tokens = [tuple(prompts[i][done[i] : done[i] + chunk]) or None for i in running]
        segments = [Segment(i, 0, i, done[i], t, claims[i]) for i, t in zip(running, tokens, strict=True)]
        result = decoder.launch(device.decode, StepBatch(0, segments)).wait()
        for i, segment, logits in zip(running, segments, result.logits, strict=True):
            done[i] = segment.end
            if done[i] >= len(prompts[i]):
                rows[i].append(logits)
    return [torch.stack(of_one) for of_one in rows]
