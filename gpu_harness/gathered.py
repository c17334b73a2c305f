"""Attention over contexts that are gathered from the pool, by torch operations.

Exact: in blocks of fixed length that are joined in order, as `arithmetic` has them. Fast: by the library's fused
kernel over whole contexts. Either way every step reads the pool itself: nothing is kept from the step before, so what
became of a page in between is read, and shows.
"""

import torch
import torch.nn.functional as F
from attrs import frozen

from kvescrow.gpu_harness.arithmetic import ATTENTION_BLOCK, Recipe, attend_block, combine_blocks, in_buckets
from kvescrow.gpu_harness.model import ModelShape
from kvescrow.gpu_harness.pages import PAGE_LENGTH
from kvescrow.gpu_harness.plan import StepPlan, Tile


@frozen
class View:
    """What every layer's attention of a tile needs, made once for the step.

    `halves` [2 x tiles x pages]: where K of each page, and then V of each, lies in a layer seen as half pages.
    `beyond` [tiles, tokens, 1, 1]: places after a context, among those after its full blocks; None: there are none.
    `hidden`: what each query row must not see, [items, rows, ATTENTION_BLOCK], an item being (tile, block); or for
    fused attention what it sees, [tiles, 1, queries, tokens], and None: it sees all.
    `gathered` [2 x tiles x pages, PAGE_LENGTH, kv_heads, head_size]: where the K and V of one layer after the other are
    put, since memory that is new to every layer costs more time than what is written to it. `wide`: the same in fp32,
    where products are in fp32 and the pool is not.
    """

    tile: Tile
    halves: torch.Tensor
    gathered: torch.Tensor
    wide: torch.Tensor | None
    beyond: torch.Tensor | None
    hidden: torch.Tensor | None


@frozen
class GatheredAttention:
    """Attention of a step's rows, tile by tile."""

    shape: ModelShape
    recipe: Recipe
    dtype: torch.dtype
    """Of the pool."""

    def views(self, plan: StepPlan) -> tuple[View, ...]:
        """The views of a step's tiles."""
        make = self._fused_view if self.recipe.fused else self._block_view
        return tuple(make(tile) for tile in plan.tiles)

    def attended(self, q: torch.Tensor, pages: torch.Tensor, views: tuple[View, ...]) -> torch.Tensor:
        """Attention of q [rows, heads, head_size] over one layer `pages` of the pool: [rows, query width]."""
        attend = self._fused if self.recipe.fused else self._in_blocks
        parts = [(view.tile, attend(q, pages, view)) for view in views]
        tile, part = parts[0]
        if len(parts) == 1 and tile.first_row == 0:
            missing = len(q) - len(part)
            return F.pad(part, (0, 0, 0, missing)) if missing else part
        whole = q.new_zeros(len(q), self.shape.query_width)
        for tile, part in parts:
            whole[_batch_rows(tile)] = part
        return whole

    def _room(self, tile: Tile) -> tuple[torch.Tensor, torch.Tensor]:
        """Which halves of pages are to be gathered, and where they are put."""
        keys = tile.table.flatten() * 2
        size = (2 * len(keys), PAGE_LENGTH, self.shape.kv_heads, self.shape.head_size)
        return torch.cat([keys, keys + 1]), torch.empty(size, dtype=self.dtype, device=keys.device)

    # --- in blocks of fixed length ----------------------------------------------------------------------------------

    def _block_view(self, tile: Tile) -> View:
        positions = tile.positions.repeat_interleave(self.shape.group, dim=1)
        positions = F.pad(positions, (0, self._block_rows(tile) - positions.shape[1]))  # padding sees one token
        places = torch.arange(tile.blocks * ATTENTION_BLOCK, device=positions.device)
        hidden = positions[:, None, :, None] < places.view(1, -1, 1, ATTENTION_BLOCK)
        halves, gathered = self._room(tile)
        wide = None if self.dtype == torch.float32 else torch.empty_like(gathered, dtype=torch.float32)
        return View(tile, halves, gathered, wide, _beyond(tile, places), hidden.flatten(0, 1))

    def _block_rows(self, tile: Tile) -> int:
        """Query rows of an item: (token, head of the group), then padding."""
        return max(tile.size * self.shape.group, self.recipe.least_rows)

    def _in_blocks(self, q: torch.Tensor, pages: torch.Tensor, view: View) -> torch.Tensor:
        """[used rows, query width]."""
        shape, tile = self.shape, view.tile
        queries = self._block_queries(q, tile, self._block_rows(tile))
        items = tile.count * tile.blocks
        keys, values = self._blocks(pages, view)
        assert view.hidden is not None
        parts = in_buckets(
            attend_block,
            self.recipe.item_bucket,
            queries[:, None].expand(-1, tile.blocks, -1, -1, -1).reshape(items, *queries.shape[1:]),
            keys,
            values,
            view.hidden,
        )
        joined = combine_blocks(*(part.view(tile.count, tile.blocks, *part.shape[1:]) for part in parts))
        real = joined[:, :, : tile.size * shape.group]
        split = real.reshape(tile.count, shape.kv_heads, tile.size, shape.group, shape.head_size)
        flat = split.transpose(1, 2).reshape(-1, shape.query_width).to(q.dtype)
        return flat if tile.first_row is not None else flat.index_select(0, tile.places)

    def _block_queries(self, q: torch.Tensor, tile: Tile, rows: int) -> torch.Tensor:
        """Scaled fp32 queries [tiles, kv_heads, rows, head_size]."""
        shape = self.shape
        flat = _tile_queries(q, tile).float() * shape.head_size**-0.5
        split = flat.view(tile.count, tile.size, shape.kv_heads, shape.group, shape.head_size).transpose(1, 2)
        queries = split.reshape(tile.count, shape.kv_heads, -1, shape.head_size)
        missing = rows - queries.shape[2]
        return F.pad(queries, (0, 0, 0, missing)) if missing else queries

    def _blocks(self, pages: torch.Tensor, view: View) -> tuple[torch.Tensor, torch.Tensor]:
        """fp32 K and V, each [items, ATTENTION_BLOCK, kv_heads, head_size].

        V is zero beyond each context: a NaN there would pass through its weight of zero.
        """
        contexts = _gathered(pages, view)
        _clear_beyond(contexts[1:], view)
        if view.wide is not None:
            contexts = view.wide.copy_(view.gathered)
        keys, values = contexts.view(2, -1, ATTENTION_BLOCK, *pages.shape[-2:]).unbind(0)
        return keys, values

    # --- fused ------------------------------------------------------------------------------------------------------

    def _fused_view(self, tile: Tile) -> View:
        places = torch.arange(tile.blocks * ATTENTION_BLOCK, device=tile.ends.device)
        halves, gathered = self._room(tile)
        if tile.tokens is None:
            seen = tile.positions[:, None, :, None] >= places
            return View(tile, halves, gathered, None, _beyond(tile, places), seen)
        sees_all = tile.size == 1 or _is_whole_context(tile)
        seen = tile.positions[:, None, :, None] >= places[: tile.tokens]
        return View(tile, halves, gathered, None, None, None if sees_all else seen)

    def _fused(self, q: torch.Tensor, pages: torch.Tensor, view: View) -> torch.Tensor:
        """[used rows, query width], computed in the model's own type."""
        shape, tile = self.shape, view.tile
        keys, values = self._contexts(pages, view).transpose(2, 3).unbind(0)
        queries = _tile_queries(q, tile)
        if tile.size == 1:  # the heads of a group are the queries of their KV head
            split = queries.view(tile.count, shape.kv_heads, shape.group, shape.head_size)
        else:
            split = queries.view(tile.count, tile.size, shape.heads, shape.head_size).transpose(1, 2)
        output = F.scaled_dot_product_attention(
            split,
            keys,
            values,
            attn_mask=view.hidden,
            is_causal=tile.size > 1 and _is_whole_context(tile),
            enable_gqa=tile.size > 1,
        )
        whole = output if tile.size == 1 else output.transpose(1, 2)
        flat = whole.reshape(-1, shape.query_width)
        return flat if tile.first_row is not None else flat.index_select(0, tile.places)

    def _contexts(self, pages: torch.Tensor, view: View) -> torch.Tensor:
        """K and V [2, tiles, tokens, kv_heads, head_size], cut off where all contexts end, else zero beyond each.

        Scores of what lies beyond are masked, but a NaN there would pass through the mask, which is added.
        """
        contexts = _gathered(pages, view)
        _clear_beyond(contexts, view)
        return contexts[:, :, : view.tile.tokens]


def _is_whole_context(tile: Tile) -> bool:
    """Whether the queries of each tile are all tokens of their context."""
    return tile.tokens == tile.size


def _beyond(tile: Tile, places: torch.Tensor) -> torch.Tensor:
    beyond = places[tile.full_blocks * ATTENTION_BLOCK :] >= tile.ends[:, None]
    return beyond[:, :, None, None]


def _gathered(pages: torch.Tensor, view: View) -> torch.Tensor:
    """K and V [2, tiles, tokens, kv_heads, head_size] of a tile's pages in one layer, whole blocks of them."""
    torch.index_select(pages.flatten(0, 1), 0, view.halves, out=view.gathered)
    return view.gathered.view(2, view.tile.count, -1, *pages.shape[-2:])


def _clear_beyond(contexts: torch.Tensor, view: View) -> None:
    """Write zeros behind each context."""
    if view.beyond is not None:
        contexts[:, :, view.tile.full_blocks * ATTENTION_BLOCK :].masked_fill_(view.beyond, 0.0)


def _batch_rows(tile: Tile) -> slice | torch.Tensor:
    """Where in the batch the tile's queries stand."""
    if tile.first_row is None:
        return tile.rows
    return slice(tile.first_row, tile.first_row + tile.count * tile.size)


def _tile_queries(q: torch.Tensor, tile: Tile) -> torch.Tensor:
    """The queries of a tile's places [tiles x size, heads, head_size], zero in empty places."""
    if tile.first_row is not None:
        return q[_batch_rows(tile)]
    flat = q.new_zeros(tile.count * tile.size, *q.shape[1:])
    flat[tile.places] = q.index_select(0, tile.rows)
    return flat
