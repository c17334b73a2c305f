"""Row work of fast steps in one kernel each: norms, rotary positions, gates.

A decode step of one request is a hundred small operations a layer in torch, each of which takes longer to start than to
run. Exact steps do without these kernels: their oracle has the same operations of torch.
"""

import torch
import triton
import triton.language as tl

from kvescrow.gpu_harness.arithmetic import adapt
from kvescrow.gpu_harness.model import LayerWeights, ModelShape
from kvescrow.gpu_harness.products import LayerProducts

GATE_LANES = 1024
"""Columns of one program."""


@triton.jit
def normalise_rows(
    x: tl.tensor, weight: tl.tensor, result: tl.tensor, eps: tl.tensor, WIDTH: tl.constexpr, LANES: tl.constexpr
) -> None:
    """x / rms(x) * weight for one row of [rows, WIDTH], in fp32. Grid (rows,)."""
    start = tl.program_id(0).to(tl.int64) * WIDTH
    lane = tl.arange(0, LANES)
    is_lane = lane < WIDTH
    values = tl.load(x + start + lane, mask=is_lane, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(values * values, 0) / WIDTH + eps)
    # Rounded before the weight as in torch, and multiplied in fp32: of two factors in bfloat16 the same product.
    scaled = (values * scale).to(result.dtype.element_ty).to(tl.float32)
    weighted = scaled * tl.load(weight + lane, mask=is_lane, other=0.0).to(tl.float32)
    tl.store(result + start + lane, weighted.to(result.dtype.element_ty), mask=is_lane)


@triton.jit
def turn_rows(
    projected: tl.tensor,
    turns: tl.tensor,
    query: tl.tensor,
    key: tl.tensor,
    value: tl.tensor,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HEAD: tl.constexpr,
) -> None:
    """Take one head of one row apart from its projection, and turn it to its position unless it is a value.

    Grid (rows, HEADS + 2 KV_HEADS). projected [rows, HEADS + 2 KV_HEADS, HEAD]; turns [rows, 2, HEAD] fp32 as
    `arithmetic.rope_table` has them.
    """
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    lane = tl.arange(0, HEAD)
    source = projected + (row * (HEADS + 2 * KV_HEADS) + head) * HEAD
    own = tl.load(source + lane)
    other = tl.load(source + (lane + HEAD // 2) % HEAD).to(tl.float32)
    cos = tl.load(turns + row * 2 * HEAD + lane)
    sin = tl.load(turns + row * 2 * HEAD + HEAD + lane)
    turned = (own.to(tl.float32) * cos + other * sin).to(own.dtype)
    if head < HEADS:
        tl.store(query + (row * HEADS + head) * HEAD + lane, turned)
    elif head < HEADS + KV_HEADS:
        tl.store(key + (row * KV_HEADS + head - HEADS) * HEAD + lane, turned)
    else:
        tl.store(value + (row * KV_HEADS + head - HEADS - KV_HEADS) * HEAD + lane, own)


@triton.jit
def gate_rows(gate_up: tl.tensor, result: tl.tensor, WIDTH: tl.constexpr, LANES: tl.constexpr) -> None:
    """silu(gate) * up of LANES columns of one row. Grid (rows, WIDTH / LANES). gate_up [rows, 2 WIDTH]."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * LANES + tl.arange(0, LANES)
    is_column = column < WIDTH
    gate = tl.load(gate_up + row * 2 * WIDTH + column, mask=is_column, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * 2 * WIDTH + WIDTH + column, mask=is_column, other=0.0).to(tl.float32)
    tl.store(result + row * WIDTH + column, (gate * tl.sigmoid(gate) * up).to(result.dtype.element_ty), mask=is_column)


def normalised(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """As `arithmetic.rms_norm`, for x [rows, hidden]."""
    result, width = torch.empty_like(x), x.shape[1]
    normalise_rows[(len(x),)](x, weight, result, eps, WIDTH=width, LANES=triton.next_power_of_2(width))
    return result


def project_rows(
    shape: ModelShape,
    layer: LayerWeights,
    products: LayerProducts,
    x: torch.Tensor,
    turns: torch.Tensor,
    scopes: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """As `arithmetic.project_qkv`."""
    normed = normalised(x, layer.input_norm, shape.norm_eps)
    projected = adapt(shape, layer, products.query_key_value(normed), normed, scopes)
    query, key, value = (
        x.new_empty(len(x), heads, shape.head_size) for heads in (shape.heads, shape.kv_heads, shape.kv_heads)
    )
    sizes = {"HEADS": shape.heads, "KV_HEADS": shape.kv_heads, "HEAD": shape.head_size}
    grid = (len(x), shape.heads + 2 * shape.kv_heads)
    turn_rows[grid](projected, turns, query, key, value, num_warps=1, **sizes)
    return query, key, value


def finish_rows(
    shape: ModelShape, layer: LayerWeights, products: LayerProducts, x: torch.Tensor, attended: torch.Tensor
) -> tuple[torch.Tensor]:
    """As `arithmetic.finish_layer`."""
    x = products.output(attended).add_(x)
    gate_up = products.gate_up(normalised(x, layer.feed_norm, shape.norm_eps))
    inner = x.new_empty(len(x), shape.feed_forward)
    grid = (len(x), triton.cdiv(shape.feed_forward, GATE_LANES))
    gate_rows[grid](gate_up, inner, WIDTH=shape.feed_forward, LANES=GATE_LANES)
    return (products.down(inner).add_(x),)
