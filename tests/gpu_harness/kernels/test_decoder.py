"""The whole decoder on kernels has the bits of the dense oracle (CON-1, CON-2)."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
import torch
from attrs import evolve

from kvescrow.gpu_harness.arithmetic import (
    FAST,
    FAST_KERNELS,
    KERNELS,
    OWN_PRODUCTS,
    Recipe,
    finish_layer,
    project_qkv,
    rope_table,
)
from kvescrow.gpu_harness.evidence import NOTHING
from kvescrow.gpu_harness.model import SHAPES, seeded_weights
from kvescrow.gpu_harness.oracle import DenseOracle, compare_with_oracle, plain_logits
from tests.gpu_harness.conftest import SCOPES, Rig

pytest.importorskip("triton", reason="not_run: triton is not installed (make kernels)")

if TYPE_CHECKING:
    from kvescrow.gpu_harness.device import Device

COUNT = 3


@pytest.mark.parametrize("recipe", [KERNELS, OWN_PRODUCTS], ids=lambda recipe: recipe.name)
def test_logits_are_the_oracle_s_bit_for_bit(device: Device, recipe: Recipe) -> None:
    shape = evolve(SHAPES["tiny"], layers=1, vocabulary=128)
    weights = seeded_weights(shape, 7, scopes=SCOPES, device=device.torch_device)
    rig, draw = Rig(device, weights, recipe), random.Random(1)
    draw.shuffle(rig.free)
    prompts = [[draw.randrange(128) for _ in range(length)] for length in (1, 17, 40)]
    requests = [rig.admit(n, prompt, COUNT, scope=n) for n, prompt in enumerate(prompts)]
    rig.play(requests, COUNT, 9, draw)
    for request in requests:
        oracle = DenseOracle(weights, recipe, request.scope, len(request.prompt) + COUNT)
        run = oracle.run(request.prompt, COUNT, chunk=16)
        rig.evidence += compare_with_oracle(request.number, request.tokens, torch.stack(request.logits), run)
    assert rig.evidence == NOTHING
    plain = plain_logits(weights, requests[1].prompt, requests[1].scope)[-1]
    torch.testing.assert_close(requests[1].logits[0].double(), plain, atol=1e-5, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_row_work_of_fast_steps_is_that_of_torch(dtype: torch.dtype) -> None:
    from kvescrow.gpu_harness.kernels.rows import finish_rows, project_rows

    weights = seeded_weights(SHAPES["tiny"], 7, scopes=SCOPES, dtype=dtype)
    shape, layer, products = weights.shape, weights.layers[0], FAST_KERNELS.products(weights).layers[0]
    generator = torch.Generator().manual_seed(3)
    x, attended = (torch.randn(5, 128, generator=generator).to(dtype) for _ in range(2))
    turns = rope_table(shape, 64, torch.device("cpu"))[7:12]
    scopes = torch.tensor([0, 1, 2, 0, 1])
    ours = (*project_rows(shape, layer, products, x, turns, scopes), *finish_rows(shape, layer, products, x, attended))
    theirs = (
        *project_qkv(shape, layer, products, x, turns, scopes),
        *finish_layer(shape, layer, products, x, attended),
    )
    within = {torch.float32: 1e-5, torch.bfloat16: 2.0**-5}[dtype]
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one.double(), other.double(), atol=within, rtol=within)


def test_fast_kernels_compute_the_model_too(device: Device) -> None:
    shape = evolve(SHAPES["tiny"], layers=1, vocabulary=128)
    rig = Rig(device, seeded_weights(shape, 7, scopes=SCOPES), FAST_KERNELS)
    request = rig.admit(0, [5, 6, 7] * 8, COUNT, scope=1)
    rig.play([request], COUNT, 1000, random.Random(1))
    torch.testing.assert_close(
        request.logits[0].double(), plain_logits(rig.weights, request.prompt, 1)[-1], atol=1e-5, rtol=0
    )
    assert rig.evidence == NOTHING
    assert Rig(device, rig.weights, FAST).decoder.recipe == FAST  # on the CPU, fast is the library's attention
