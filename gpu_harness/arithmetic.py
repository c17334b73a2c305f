"""The decoder's arithmetic, arranged so that a row's bits do not depend on what else is in the batch.

A library picks its kernel by the sizes of a product, and another kernel has another order of summation. So
every product here is done at sizes that do not vary with the batch in a way that matters on the device: a
`Recipe` says which. Rows are padded, attention is split into blocks of fixed length that are combined in
order, operands are contiguous, and no fused multiply-add is used on a path whose vector tail would round
differently.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from attrs import evolve, frozen

from kvescrow.gpu_harness.model import LayerWeights, ModelShape, ModelWeights
from kvescrow.gpu_harness.products import LayerProducts, ModelProducts, Product
from kvescrow.spec.vocabulary import UserError

ATTENTION_BLOCK = 64
"""Tokens per attention block: the split of the sum over the context, fixed for every row and every length."""


@frozen
class Recipe:
    """Sizes at which products are done.

    `least_rows`: products have at least this many rows; below it MKL uses kernels with other bits.
    `row_bucket`, `query_tile`, `item_bucket`: if set, row work is done in buckets of exactly so many rows,
    queries of one request are attended in tiles of exactly so many tokens, attention blocks in buckets of
    exactly so many items; if None, any size above `least_rows` has the same bits on this
    device.
    """

    name: str
    least_rows: int
    row_bucket: int | None = None
    query_tile: int | None = None
    item_bucket: int | None = None
    fused: bool = False
    """Whether attention is the library's fused kernel over whole contexts: fast, and its bits depend on the batch."""
    kernels: bool = False
    """Whether attention, writes and checks of pages are the kernels over the block table (`gpu_harness.kernels`)."""
    own_products: bool = False
    """Whether products are the kernel of fixed tiles instead of the library's (`gpu_harness.kernels.products`)."""
    replayed: bool = False
    """Whether steps of decode rows alone have one of few sizes, each captured once (`gpu_harness.replays`)."""

    def products(self, weights: ModelWeights) -> ModelProducts:
        """The products of a model under this recipe."""
        return weights.plain if self.own_products else weights.laid_out

    def padded_rows(self, rows: int) -> int:
        """Rows after padding."""
        if self.row_bucket is None:
            return max(rows, self.least_rows)
        return -(-rows // self.row_bucket) * self.row_bucket


ANY_SIZE = Recipe("any size from 4 rows", least_rows=4)
FAST = Recipe("fast", least_rows=4, fused=True)
FIXED_SIZE = Recipe("fixed buckets of 64 rows", least_rows=16, row_bucket=64, query_tile=8, item_bucket=128)
KERNELS = Recipe(
    "kernels over the block table, fixed buckets of 64 rows",
    least_rows=16,
    row_bucket=64,
    query_tile=4,
    kernels=True,
    replayed=True,
)
OWN_PRODUCTS = evolve(KERNELS, name="kernels over the block table, products of fixed tiles", own_products=True)
FAST_KERNELS = Recipe("fast kernels over the block table", least_rows=1, query_tile=16, kernels=True, replayed=True)
"""What FAST is on cuda: longer tiles than KERNELS has, since nothing needs their bits to be those of a decode row."""


def in_buckets(
    work: Callable[..., tuple[torch.Tensor, ...]], bucket: int | None, *inputs: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Apply row-wise `work` to buckets of rows and join its results; one call if `bucket` is None.

    The last bucket is padded with zeros and its padding is cut off again.
    """
    rows = inputs[0].shape[0]
    if bucket is None or rows == bucket:
        return work(*inputs)
    missing = -rows % bucket
    padded = [torch.cat([x, x.new_zeros(missing, *x.shape[1:])]) if missing else x for x in inputs]
    parts = [work(*part) for part in zip(*(torch.split(x, bucket) for x in padded), strict=True)]
    return tuple(torch.cat(column)[:rows] for column in zip(*parts, strict=True))


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """x / rms(x) * weight over the last axis, computed in fp32."""
    wide = x.float()
    scale = (wide * wide).mean(-1, keepdim=True).add_(eps).rsqrt_()
    return (wide * scale).to(x.dtype).mul_(weight)


def rope_table(shape: ModelShape, positions: int, device: torch.device) -> torch.Tensor:
    """What `rotate` takes for each position, [positions, 2, head_size] fp32: (cos, cos) and (-sin, sin), from fp64 so
    that every reader rounds the same number. Raises UserError for positions beyond what the scaling can take.
    """
    most = None if shape.rope_scaling is None else shape.rope_scaling.most_positions
    if most is not None and positions > most:
        raise UserError(
            f"rope type 'dynamic': {positions} positions are more than the {most} that the model was trained for, and "
            "beyond those a shared page would depend on who reads it; give fewer, or weights with another scaling"
        )
    frequencies = torch.tensor(shape.rope_frequencies, dtype=torch.float64)
    angles = torch.arange(positions, dtype=torch.float64)[:, None] * frequencies
    cos, sin = angles.cos() * shape.rope_amplitude, angles.sin() * shape.rope_amplitude
    return torch.stack([torch.cat([cos, cos], -1), torch.cat([-sin, sin], -1)], dim=1).float().to(device)


def rotate(x: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
    """Rotary positions for x [rows, heads, head_size] in pairs (i, i + head_size / 2); `turns` as
    `rope_table`.
    """
    wide = x.float()
    first, second = wide.chunk(2, dim=-1)
    turned = (wide * turns[:, :1]).add_(torch.cat([second, first], dim=-1).mul_(turns[:, 1:]))
    return turned.to(x.dtype)


def _adapter_part(x: torch.Tensor, scopes: torch.Tensor, inwards: torch.Tensor, outwards: torch.Tensor) -> torch.Tensor:
    """What the adapters of the rows' scopes add to a projection of x."""
    inward, outward = (adapters.index_select(0, scopes) for adapters in (inwards, outwards))
    strength = (x.float() * inward.float()).sum(-1, keepdim=True)
    return (strength * outward.float()).to(x.dtype)


def adapt(
    shape: ModelShape, layer: LayerWeights, projected: torch.Tensor, normed: torch.Tensor, scopes: torch.Tensor
) -> torch.Tensor:
    """Add in place what the scopes' adapters make of `normed` to the keys and values in `projected`, [rows, query width
    and two KV widths].
    """
    if len(layer.key_adapter_in) > 1:  # scope 0 alone is the base model
        key, value = projected[:, shape.query_width :].chunk(2, dim=-1)
        key += _adapter_part(normed, scopes, layer.key_adapter_in, layer.key_adapter_out)
        value += _adapter_part(normed, scopes, layer.value_adapter_in, layer.value_adapter_out)
    return projected


def project_qkv(
    shape: ModelShape,
    layer: LayerWeights,
    products: LayerProducts,
    x: torch.Tensor,
    turns: torch.Tensor,
    scopes: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Rotated q [rows, heads, head_size], rotated k and plain v [rows, kv_heads, head_size] of x [rows,
    hidden].
    """
    normed = rms_norm(x, layer.input_norm, shape.norm_eps)
    projected = adapt(shape, layer, products.query_key_value(normed), normed, scopes)
    heads = projected.view(len(x), -1, shape.head_size)
    rotated = rotate(heads[:, : shape.heads + shape.kv_heads], turns)
    return rotated[:, : shape.heads], rotated[:, shape.heads :], heads[:, shape.heads + shape.kv_heads :]


def finish_layer(
    shape: ModelShape, layer: LayerWeights, products: LayerProducts, x: torch.Tensor, attended: torch.Tensor
) -> tuple[torch.Tensor]:
    """The residual stream after output projection and SwiGLU; x and attended are [rows, hidden], [rows,
    query width].
    """
    x = products.output(attended).add_(x)
    gate, up = products.gate_up(rms_norm(x, layer.feed_norm, shape.norm_eps)).chunk(2, dim=-1)
    return (products.down(F.silu(gate).mul_(up)).add_(x),)


def logits_of(weights: ModelWeights, head: Product, x: torch.Tensor) -> tuple[torch.Tensor]:
    """Logits [rows, vocabulary] of the residual stream [rows, hidden]."""
    return (head(rms_norm(x, weights.norm, weights.shape.norm_eps)),)


def attend_block(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, hidden: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """One block of attention for each item: row maximum, sum of exponentials, unnormalised output, each [items,
    kv_heads, rows, ...].

    q [items, kv_heads, rows, head_size] scaled fp32; k, v [items, ATTENTION_BLOCK, kv_heads, head_size] fp32 as they
    were gathered, since a product takes rows that lie apart for what a copy would cost, and gives the same bits; v zero
    wherever nothing was written (a NaN there would pass through the product with a zero weight); hidden [items, rows,
    ATTENTION_BLOCK] bool: tokens that the row does not attend to.
    """
    items, heads, rows, head_size = q.shape
    scores = q.new_empty(heads, items, rows, ATTENTION_BLOCK)
    for head in range(heads):
        torch.bmm(q[:, head], k[:, :, head].transpose(1, 2), out=scores[head])
    top = scores.masked_fill_(hidden, -torch.inf).amax(-1, keepdim=True)
    exponentials = scores.sub_(top.masked_fill(top == -torch.inf, 0.0)).exp_()
    output = q.new_empty(heads, items, rows, head_size)
    for head in range(heads):
        torch.bmm(exponentials[head], v[:, :, head], out=output[head])
    return top.transpose(0, 1), exponentials.sum(-1, keepdim=True).transpose(0, 1), output.transpose(0, 1)


def combine_blocks(top: torch.Tensor, total: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    """Join the blocks (axis 1, in order) of `attend_block`. Blocks without a visible token add exact zeros."""
    weights = torch.exp(top - top.amax(1, keepdim=True))
    total, output = total * weights, output * weights
    sum_total, sum_output = torch.zeros_like(total[:, 0]), torch.zeros_like(output[:, 0])
    for block in range(top.shape[1]):
        sum_total += total[:, block]
        sum_output += output[:, block]
    return sum_output / sum_total
