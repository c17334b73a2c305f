"""Attention of decode rows and prefill chunks over the block table, by one kernel.

The context of a tile of queries is cut into splits of SPLIT tokens, one program each; a split is read in blocks of
BLOCK tokens, and the splits are joined in order by a second kernel. SPLIT is a number of tokens, not a number of
parts: with a number of parts the place of a token in the sum would move as its context grows. What a query may not
see adds exact zeros, so its neighbours in the tile change nothing. Products that are added are added by an explicit
fused operation: left to a compiler, two kernels could round one sum in two ways.
"""

import math

import torch
import triton
import triton.language as tl

from kvescrow.gpu_harness.inspection import Counters
from kvescrow.gpu_harness.kernels.stamps import DESCRIPTOR_ARGUMENTS, count_wrong_stamps
from kvescrow.gpu_harness.pages import PAGE_LENGTH
from kvescrow.gpu_harness.plan import Listing, PagedTiles

SPLIT = 256
"""Tokens a program reads: short enough that one long context keeps many programs busy."""
BLOCK = 64
"""Tokens of one product: four pages."""
LEAST_ROWS = 16
"""The least rows of a product of matrices on tensor cores."""


@triton.jit(do_not_specialize=["splits"], do_not_specialize_on_alignment=DESCRIPTOR_ARGUMENTS)
def attend_splits(
    query: tl.tensor,
    pages: tl.tensor,
    stamps: tl.tensor,
    block_table: tl.tensor,
    expected: tl.tensor,
    first_rows: tl.tensor,
    lengths: tl.tensor,
    starts: tl.tensor,
    listings: tl.tensor,
    tops: tl.tensor,
    totals: tl.tensor,
    outputs: tl.tensor,
    evidence: tl.tensor,
    found: tl.tensor,
    scale: tl.tensor,
    splits: tl.tensor,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD: tl.constexpr,
    ROWS: tl.constexpr,
    SPLIT: tl.constexpr,
    BLOCK: tl.constexpr,
    PAGE: tl.constexpr,
    IS_WATCHED: tl.constexpr,
) -> None:
    """One split of one tile of queries for one KV head: row maxima, sums of powers, outputs not yet divided.

    Grid (tiles, kv_heads, splits). query [rows, heads, HEAD]; pages is one layer of the pool [pages, 2, PAGE, kv_heads,
    HEAD]; block_table [listings]: pages of all segments one after the other; tiles have their first row, their number
    of queries (0: padding), the position of the first and the listing of their segment's first page. tops, totals
    [tiles, kv_heads, splits, ROWS] and outputs [..., ROWS, HEAD] fp32. Row r is query r // GROUP, head r % GROUP.
    `scale` turns scores into exponents of two.
    """
    tile, head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    length = tl.load(lengths + tile)
    start = tl.load(starts + tile)
    end = tl.where(length > 0, start + length, 0)
    first = split * SPLIT
    if first < end:
        listing = tl.load(listings + tile)
        rows, lane = tl.arange(0, ROWS), tl.arange(0, HEAD)
        token = rows // GROUP
        place = ((tl.load(first_rows + tile) + token) * KV_HEADS + head) * GROUP + rows % GROUP
        q = tl.load(query + place[:, None] * HEAD + lane[None, :], mask=(token < length)[:, None], other=0.0)
        top = tl.full([ROWS], float("-inf"), tl.float32)
        total = tl.zeros([ROWS], tl.float32)
        output = tl.zeros([ROWS, HEAD], tl.float32)
        for begin in range(0, SPLIT, BLOCK):
            key = first + begin + tl.arange(0, BLOCK)
            is_there = key < end
            page = tl.load(block_table + listing + key // PAGE, mask=is_there, other=0)
            slot = page * (2 * PAGE * KV_HEADS * HEAD) + (key % PAGE) * (KV_HEADS * HEAD) + head * HEAD
            k = tl.load(pages + slot[None, :] + lane[:, None], mask=is_there[None, :], other=0.0)
            beside = pages + PAGE * KV_HEADS * HEAD
            v = tl.load(beside + slot[:, None] + lane[None, :], mask=is_there[:, None], other=0.0)
            is_seen = is_there[None, :] & (key[None, :] <= start + token[:, None])
            scores = tl.where(is_seen, tl.dot(q, k, input_precision="ieee"), float("-inf"))
            higher = tl.maximum(top, tl.max(scores, 1))
            level = tl.where(higher == float("-inf"), 0.0, higher)
            shares = tl.exp2((scores - level[:, None]) * scale)
            kept = tl.exp2((top - level) * scale)
            total = tl.fma(total, kept, tl.sum(shares, 1))
            output = tl.dot(shares.to(v.dtype), v, acc=output * kept[:, None], input_precision="ieee")
            top = higher
        base = ((tile * KV_HEADS + head) * splits + split) * ROWS + rows
        tl.store(tops + base, top)
        tl.store(totals + base, total)
        tl.store(outputs + base[:, None] * HEAD + lane[None, :], output)
        if IS_WATCHED:
            # After the reads: a page that was scrubbed before they ended has its new stamp by now.
            tl.debug_barrier()
            index = split * (SPLIT // PAGE) + tl.arange(0, SPLIT // PAGE)
            is_listed = index * PAGE < end
            page = tl.load(block_table + listing + index, mask=is_listed, other=0)
            count_wrong_stamps(stamps, expected, evidence, found, page, listing + index, is_listed, index < 0)


@triton.jit(do_not_specialize=["splits"], do_not_specialize_on_alignment=DESCRIPTOR_ARGUMENTS)
def join_splits(
    tops: tl.tensor,
    totals: tl.tensor,
    outputs: tl.tensor,
    attended: tl.tensor,
    first_rows: tl.tensor,
    lengths: tl.tensor,
    starts: tl.tensor,
    scale: tl.tensor,
    splits: tl.tensor,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD: tl.constexpr,
    ROWS: tl.constexpr,
    SPLIT: tl.constexpr,
) -> None:
    """Join the splits of a tile for one KV head in order, and divide: attended [rows, heads, HEAD].

    Grid (tiles, kv_heads).
    """
    tile, head = tl.program_id(0), tl.program_id(1)
    length = tl.load(lengths + tile)
    if length > 0:
        end = tl.load(starts + tile) + length
        rows, lane = tl.arange(0, ROWS), tl.arange(0, HEAD)
        top = tl.full([ROWS], float("-inf"), tl.float32)
        total = tl.zeros([ROWS], tl.float32)
        output = tl.zeros([ROWS, HEAD], tl.float32)
        split = 0
        while split * SPLIT < end:
            base = ((tile * KV_HEADS + head) * splits + split) * ROWS + rows
            other = tl.load(tops + base)
            higher = tl.maximum(top, other)
            level = tl.where(higher == float("-inf"), 0.0, higher)
            kept, added = tl.exp2((top - level) * scale), tl.exp2((other - level) * scale)
            total = tl.fma(total, kept, tl.load(totals + base) * added)
            partial = tl.load(outputs + base[:, None] * HEAD + lane[None, :])
            output = tl.fma(output, tl.broadcast_to(kept[:, None], output.shape), partial * added[:, None])
            top = higher
            split += 1
        token = rows // GROUP
        place = ((tl.load(first_rows + tile) + token) * KV_HEADS + head) * GROUP + rows % GROUP
        result = (output / total[:, None]).to(attended.dtype.element_ty)
        tl.store(attended + place[:, None] * HEAD + lane[None, :], result, mask=(token < length)[:, None])


def query_rows(group: int, size: int) -> int:
    """Rows of a product for tiles of `size` queries of `group` heads each."""
    return max(LEAST_ROWS, 1 << (group * size - 1).bit_length())


def exponent_scale(head_size: int) -> float:
    """What turns a product of a query and a key into the exponent of two of its share."""
    return math.log2(math.e) / math.sqrt(head_size)


def attend(
    query: torch.Tensor,
    pages: torch.Tensor,
    stamps: torch.Tensor,
    tiles: PagedTiles,
    listing: Listing,
    positions: int,
    counters: Counters | None,
) -> torch.Tensor:
    """Attended rows of `query` [rows, heads, head_size], the same; rows of no tile are zero.

    `pages` is one layer of the pool; `positions` bounds the contexts. What is wrong with the pages that are read is
    counted in `counters`; None: nothing is looked at.
    """
    attended = torch.zeros_like(query)
    kv_heads, head = pages.shape[-2:]
    group = query.shape[1] // kv_heads
    rows, splits, count = query_rows(group, tiles.size), -(-positions // SPLIT), len(tiles.lengths)
    tops, totals = (
        torch.empty(count, kv_heads, splits, rows, dtype=torch.float32, device=query.device) for _ in range(2)
    )
    outputs = torch.empty(count, kv_heads, splits, rows, head, dtype=torch.float32, device=query.device)
    sizes = {"KV_HEADS": kv_heads, "GROUP": group, "HEAD": head, "ROWS": rows, "SPLIT": SPLIT}
    places = (tiles.first_rows, tiles.lengths, tiles.starts)
    scale = exponent_scale(head)
    evidence, found = (counters.counts, counters.found) if counters else (stamps, stamps)
    attend_splits[(count, kv_heads, splits)](
        query,
        pages,
        stamps,
        listing.pages,
        listing.expected,
        *places,
        tiles.listings,
        tops,
        totals,
        outputs,
        evidence,
        found,
        scale,
        splits,
        BLOCK=BLOCK,
        PAGE=PAGE_LENGTH,
        IS_WATCHED=counters is not None,
        **sizes,
    )
    join_splits[(count, kv_heads)](tops, totals, outputs, attended, *places, scale, splits, **sizes)
    return attended
