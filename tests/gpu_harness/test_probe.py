"""The probe says exact only where it is, and why not otherwise (CON-2, CON-3)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
import torch
from attrs import evolve

from kvescrow.gpu_harness import gathered, probe
from kvescrow.gpu_harness.arithmetic import FIXED_SIZE, KERNELS, OWN_PRODUCTS, Recipe, combine_blocks
from kvescrow.gpu_harness.model import SHAPES, seeded_weights
from kvescrow.gpu_harness.probe import ProbeResult, exact_recipe, probe_exactness
from kvescrow.gpu_harness.streams import StreamFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvescrow.gpu_harness.device import Device
    from kvescrow.gpu_harness.model import ModelWeights


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_fixed_sizes_are_exact_on_every_device(
    device: Device, weights_of: Callable[[torch.dtype], ModelWeights], dtype: torch.dtype
) -> None:
    result = probe_exactness(device, weights_of(dtype), FIXED_SIZE)
    assert result.exact, result.reason


def test_arithmetic_that_depends_on_the_batch_is_found(
    device: Device, weights_of: Callable[[torch.dtype], ModelWeights], monkeypatch: pytest.MonkeyPatch
) -> None:
    def skewed(top: torch.Tensor, total: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
        return combine_blocks(top, total, output) * (1 + 1e-6 * top.shape[0])

    monkeypatch.setattr(gathered, "combine_blocks", skewed)
    result = exact_recipe(device, weights_of(torch.float32))
    assert not result.exact
    assert "has other logits alone than in a batch, by" in result.reason


def test_an_oracle_that_sums_otherwise_is_found(
    device: Device, weights_of: Callable[[torch.dtype], ModelWeights], monkeypatch: pytest.MonkeyPatch
) -> None:
    def backwards(top: torch.Tensor, total: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
        return combine_blocks(top.flip(1), total.flip(1), output.flip(1)) * (1 + 1e-6)

    monkeypatch.setattr(gathered, "combine_blocks", backwards)
    result = exact_recipe(device, weights_of(torch.float32))
    assert not result.exact
    assert "has other logits alone than in the dense oracle, by" in result.reason


def test_kernels_that_cannot_be_launched_are_passed_over_with_the_reason(
    device: Device, weights_of: Callable[[torch.dtype], ModelWeights], monkeypatch: pytest.MonkeyPatch
) -> None:
    def probed(_: Device, __: ModelWeights, recipe: Recipe) -> ProbeResult:
        if recipe.kernels:
            raise StreamFailed("launching raised CompilationError")
        return ProbeResult(recipe, True, "")

    on_cuda = cast("Device", SimpleNamespace(is_cuda=True))
    monkeypatch.setattr(probe, "probe_exactness", probed)
    monkeypatch.setattr(probe, "absent", lambda *_: "")
    result = exact_recipe(on_cuda, weights_of(torch.float32))
    assert (result.recipe, result.exact) == (FIXED_SIZE, True)
    assert result.passed_over == tuple(
        f"{recipe.name}: launching raised CompilationError" for recipe in (KERNELS, OWN_PRODUCTS)
    )
    monkeypatch.setattr(probe, "absent", lambda *_: "triton is not installed")
    assert exact_recipe(on_cuda, weights_of(torch.float32)).passed_over == (f"{KERNELS.name}: triton is not installed",)


def test_odd_widths_are_refused_by_name(device: Device) -> None:
    shape = evolve(SHAPES["tiny"], feed_forward=200)
    result = exact_recipe(device, seeded_weights(shape, 1, device=device.torch_device))
    assert not result.exact
    assert result.reason.endswith("feed_forward = 200")
