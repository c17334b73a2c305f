"""Products of activations with a model's weights, which on a CPU are laid out once as its fastest kernel reads them.

`torch.nn.functional.linear` in float32 goes to MKL, which lays the weights out anew for every product; for a few rows
that takes longer than the product. oneDNN takes weights that were laid out before. Measured on one core of a Zen 4
server, the 30 layers of a 135M model in float32: 8 rows in 32 ms for 53, 32 rows in 73 for 104, 512 rows in 1.00 s for
1.10. A row's bits are the same in any product of two rows or more, which the probe verifies where exactness is
promised; they are not those of MKL. The price is a second copy of the weights in memory.

On cuda the weights of products that share their input are put below each other, so that they are one product: the keys'
and values' alone are too small to keep a device's memory busy. They too are in memory twice then.
"""

from typing import TYPE_CHECKING, cast

import torch
from attrs import frozen

if TYPE_CHECKING:
    from kvescrow.gpu_harness.model import ModelWeights

LAID_OUT_FOR = 8
"""Rows that a layout is chosen for. One for a single row is no faster, and gives single rows other bits."""


@frozen
class Product:
    """x [rows, in] times weights [out, in] transposed, side by side: [rows, sum of out]."""

    weights: tuple[torch.Tensor, ...]
    laid_out: torch.Tensor | None
    """All weights below each other in the layout of oneDNN; None: products are those of the library for each."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply; x has the type of the weights."""
        if self.laid_out is not None:
            product = torch.ops.mkldnn._linear_pointwise(x, self.laid_out, None, "none", [], "")
            return cast(torch.Tensor, product)
        parts = [torch.nn.functional.linear(x, weight) for weight in self.weights]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)


@frozen
class LayerProducts:
    """The four products of a layer."""

    query_key_value: Product
    output: Product
    gate_up: Product
    down: Product


@frozen
class ModelProducts:
    """The products of all layers, and the one that gives logits."""

    layers: tuple[LayerProducts, ...]
    head: Product


def model_products(weights: "ModelWeights", *, laid_out: bool) -> ModelProducts:
    """The products of a model; `laid_out`: by oneDNN where it can, and on cuda side by side, which copies weights."""
    lays = laid_out and _can_lay_out(weights.embedding)
    joins = laid_out and weights.embedding.is_cuda

    def product(*parts: torch.Tensor) -> Product:
        if joins and len(parts) > 1:
            return Product((torch.cat(parts),), None)
        return Product(parts, _laid_out(torch.cat(parts)) if lays else None)

    layers = tuple(
        LayerProducts(
            query_key_value=product(layer.query, layer.key, layer.value),
            output=product(layer.output),
            gate_up=product(layer.gate, layer.up),
            down=product(layer.down),
        )
        for layer in weights.layers
    )
    return ModelProducts(layers, product(weights.head))


def _can_lay_out(weight: torch.Tensor) -> bool:
    """Whether this torch has oneDNN, and that products in the weight's type on the weight's device."""
    if weight.device.type != "cpu" or not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    if weight.dtype is torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return weight.dtype is torch.float32


@torch.inference_mode()
def _laid_out(weight: torch.Tensor) -> torch.Tensor:
    return cast(torch.Tensor, torch.ops.mkldnn._reorder_linear_weight(weight, LAID_OUT_FOR))
