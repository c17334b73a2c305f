"""Steps of few fixed sizes, each captured once on cuda and then replayed.

Decode steps differ in their numbers, not in their work: padded to the next size in a short list they are the same
kernels on the same addresses, and a graph of them costs the host one launch. A captured step reads its descriptor when
it runs, so the descriptor is copied into place by the stream itself, from a slot of the ring that nothing writes before
the step is over. Padding rows write to a scratch page. They repeat the last real row's places wherever a result is
kept, so that they change nothing.

On the CPU a step of a fixed size runs from the same descriptor in the same place; only the capture is left out.
"""

import gc
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from attrs import define, evolve, frozen

from kvescrow.gpu_harness.arithmetic import ATTENTION_BLOCK, Recipe
from kvescrow.gpu_harness.descriptor import Packed, unpack
from kvescrow.gpu_harness.device import Device
from kvescrow.gpu_harness.model import ModelWeights
from kvescrow.gpu_harness.pages import PAGE_LENGTH, SINK
from kvescrow.gpu_harness.plan import PAGES_PER_BLOCK, Listing, PagedTiles, StepBatch, StepPlan, Tile

Outputs = tuple[torch.Tensor, ...]


@frozen
class Bucket:
    """A size of steps: so many decode rows, whose tokens are (`is_fed`) or are not kept on the device."""

    segments: int
    is_fed: bool


def bucket_of(batch: StepBatch) -> Bucket | None:
    """The least size that holds `batch`, a power of two; None where a segment is a chunk of a prompt."""
    if any(segment.length > 1 for segment in batch.segments):
        return None
    fed = any(segment.tokens is None for segment in batch.segments)
    return Bucket(1 << (len(batch.segments) - 1).bit_length(), fed)


def padded(plan: StepPlan, bucket: Bucket, recipe: Recipe, positions: int, scratch: int) -> StepPlan:
    """`plan` in the size of `bucket`, for contexts of at most `positions` tokens. Padding rows write to `scratch`."""
    rows, listings = recipe.padded_rows(bucket.segments), bucket.segments * -(-positions // PAGE_LENGTH)
    blocks = -(-positions // ATTENTION_BLOCK)
    return evolve(
        plan,
        rows=rows,
        tokens=_filled(plan.tokens, rows, 0),
        fed_rows=_repeated(plan.fed_rows, bucket.segments),
        fed_slots=_repeated(plan.fed_slots, bucket.segments),
        positions=_filled(plan.positions, rows, 0),
        scopes=_filled(plan.scopes, rows, 0),
        write_pages=_filled(plan.write_pages, rows, scratch),
        write_slots=_filled(plan.write_slots, rows, 0),
        tiles=tuple(_padded_tile(tile, bucket.segments, blocks) for tile in plan.tiles),
        paged=None if plan.paged is None else _padded_tiles(plan.paged, bucket.segments, rows),
        last_rows=_repeated(plan.last_rows, bucket.segments),
        slots=_repeated(plan.slots, bucket.segments),
        listing=_padded_listing(plan.listing, listings),
    )


def _padded_tile(tile: Tile, count: int, blocks: int) -> Tile:
    table = _filled(tile.table.T, blocks * PAGES_PER_BLOCK, SINK).T
    return Tile(
        count=count,
        size=tile.size,
        blocks=blocks,
        full_blocks=0,
        rows=_repeated(tile.rows, count),
        places=_repeated(tile.places, count),
        positions=_repeated(tile.positions, count),
        table=_repeated(table, count),
        ends=_repeated(tile.ends, count),
    )


def _padded_tiles(tiles: PagedTiles, count: int, rows: int) -> PagedTiles:
    return PagedTiles(
        size=tiles.size,
        first_rows=_filled(tiles.first_rows, count, 0),
        lengths=_filled(tiles.lengths, count, 0),
        starts=_filled(tiles.starts, count, 0),
        listings=_filled(tiles.listings, count, 0),
        write_listings=_filled(tiles.write_listings, rows, -1),
    )


def _padded_listing(listing: Listing, count: int) -> Listing:
    return Listing(
        pages=_repeated(listing.pages, count),
        expected=_repeated(listing.expected, count),
        written=_repeated(listing.written, count),
        filled=_repeated(listing.filled, count),
    )


def _repeated(values: torch.Tensor, count: int) -> torch.Tensor:
    """`values` with its last row repeated up to `count` rows; nothing where there is none."""
    missing = count - len(values)
    return torch.cat([values, values[-1:].expand(missing, *values.shape[1:])]) if missing and len(values) else values


def _filled(values: torch.Tensor, count: int, value: int) -> torch.Tensor:
    """`values` with rows of `value` up to `count` rows."""
    missing = count - len(values)
    return torch.cat([values, values.new_full((missing, *values.shape[1:]), value)]) if missing else values


@define(eq=False)
class _Kept:
    """One size on one stream: where its descriptors are put, and what was captured, after it ran once."""

    weights: ModelWeights
    words: torch.Tensor
    tree: object
    graph: Any = None
    outputs: Outputs = ()


class Replays:
    """The sizes that ran so far. Weights that are exchanged make every size a new one."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._kept: dict[tuple[str, Bucket], _Kept] = {}

    def run(
        self,
        stream: str,
        bucket: Bucket,
        weights: ModelWeights,
        packed: Packed,
        words: torch.Tensor,
        step: Callable[[StepPlan], Outputs],
    ) -> Outputs:
        """In launched work: `step` on the plan in `words`, which holds until the next step of this size on `stream`.

        The first step of a size runs as it is, which also builds its kernels; the second is captured and replayed.
        """
        kept = self._kept.get((stream, bucket))
        if kept is None or kept.weights is not weights:
            self._kept[stream, bucket] = _Kept(weights, words.clone(), packed.tree)
            return step(unpack(packed, words))
        kept.words.copy_(words)
        if not self._device.is_cuda:
            return step(unpack(Packed(kept.words, kept.tree), kept.words))
        if kept.graph is None:
            kept.graph, kept.outputs = _captured(lambda: step(unpack(Packed(kept.words, kept.tree), kept.words)))
        kept.graph.replay()
        return kept.outputs


def _captured(work: Callable[[], Outputs]) -> tuple[Any, Outputs]:
    """A graph of what `work` launches on the current stream, and where its results will be.

    `torch.cuda.graph` would first wait for the whole device, other streams included; nothing here needs that, and a
    stream that is held back would be waited for. Nothing is collected meanwhile: memory of the host that is given back
    while a stream is captured is marked by an event on it, which would be captured too.
    """
    graph: Any = torch.cuda.CUDAGraph()
    collects = gc.isenabled()
    gc.disable()
    try:
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            outputs = work()
        except BaseException:
            with suppress(RuntimeError):  # the capture is void, and why is what is raised
                graph.capture_end()
            raise
        graph.capture_end()
    finally:
        if collects:
            gc.enable()
    return graph, outputs
