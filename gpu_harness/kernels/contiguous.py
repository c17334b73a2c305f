"""Attention of the independent decode: one request, a contiguous cache, no pages, tables, stamps or scratch memory.

It shares with the paged kernel only the sizes that decide the order of a sum, and is otherwise another program: what
it computes with the same bits was read from the right places.
"""

import torch
import triton
import triton.language as tl

from kvescrow.gpu_harness.kernels.attention import BLOCK, SPLIT, exponent_scale, query_rows


@triton.jit(do_not_specialize=["begin", "count"])
def attend_contiguous(
    query: tl.tensor,
    cache: tl.tensor,
    result: tl.tensor,
    begin: tl.tensor,
    count: tl.tensor,
    capacity: tl.tensor,
    scale: tl.tensor,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD: tl.constexpr,
    ROWS: tl.constexpr,
    TILE: tl.constexpr,
    SPLIT: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """`count` queries at positions begin, begin + 1, ... of one request, TILE at a time.

    Grid (tiles, kv_heads). query, result [heads, count, HEAD]; cache [2, kv_heads, capacity, HEAD] of one layer.
    """
    first = tl.program_id(0) * TILE
    kv_head = tl.program_id(1)
    row = tl.arange(0, ROWS)
    column = tl.arange(0, HEAD)
    number = first + row // GROUP
    position = begin + number
    is_real = (row // GROUP < TILE) & (number < count)
    last = begin + tl.minimum(first + TILE, count)
    where = ((kv_head * GROUP + row % GROUP) * count + number)[:, None] * HEAD + column[None, :]
    q = tl.load(query + where, mask=is_real[:, None], other=0.0)
    keys = cache + kv_head.to(tl.int64) * capacity * HEAD
    values = keys + capacity * HEAD * KV_HEADS
    whole_top = tl.full([ROWS], float("-inf"), tl.float32)
    whole_total = tl.zeros([ROWS], tl.float32)
    whole_output = tl.zeros([ROWS, HEAD], tl.float32)
    origin = 0
    while origin < last:
        top = tl.full([ROWS], float("-inf"), tl.float32)
        total = tl.zeros([ROWS], tl.float32)
        output = tl.zeros([ROWS, HEAD], tl.float32)
        for offset in range(0, SPLIT, BLOCK):
            at = origin + offset + tl.arange(0, BLOCK)
            k = tl.load(keys + at[None, :] * HEAD + column[:, None], mask=(at < last)[None, :], other=0.0)
            v = tl.load(values + at[:, None] * HEAD + column[None, :], mask=(at < last)[:, None], other=0.0)
            product = tl.dot(q, k, input_precision="ieee")
            product = tl.where((at[None, :] <= position[:, None]) & (at < last)[None, :], product, float("-inf"))
            new = tl.maximum(top, tl.max(product, 1))
            level = tl.where(new == float("-inf"), 0.0, new)
            weight = tl.exp2((product - level[:, None]) * scale)
            carry = tl.exp2((top - level) * scale)
            total = tl.fma(total, carry, tl.sum(weight, 1))
            output = tl.dot(weight.to(v.dtype), v, acc=output * carry[:, None], input_precision="ieee")
            top = new
        new = tl.maximum(whole_top, top)
        level = tl.where(new == float("-inf"), 0.0, new)
        carry, part = tl.exp2((whole_top - level) * scale), tl.exp2((top - level) * scale)
        whole_total = tl.fma(whole_total, carry, total * part)
        whole_output = tl.fma(whole_output, tl.broadcast_to(carry[:, None], output.shape), output * part[:, None])
        whole_top = new
        origin += SPLIT
    divided = (whole_output / whole_total[:, None]).to(result.dtype.element_ty)
    tl.store(result + where, divided, mask=is_real[:, None])


def attend_one_request(query: torch.Tensor, cache: torch.Tensor, begin: int, tile: int) -> torch.Tensor:
    """Attended queries [heads, count, head_size] of `query`, the same, over `cache` [2, kv_heads, capacity, head_size].

    The first query is at position `begin`; `tile` queries are computed at a time.
    """
    heads, count, head = query.shape
    _, kv_heads, capacity, _ = cache.shape
    group = heads // kv_heads
    query, result = query.contiguous(), torch.empty(heads, count, head, dtype=query.dtype, device=query.device)
    attend_contiguous[(triton.cdiv(count, tile), kv_heads)](
        query,
        cache,
        result,
        begin,
        count,
        capacity,
        exponent_scale(head),
        KV_HEADS=kv_heads,
        GROUP=group,
        HEAD=head,
        ROWS=query_rows(group, tile),
        TILE=tile,
        SPLIT=SPLIT,
        BLOCK=BLOCK,
    )
    return result
