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
from kvescrow.gpu_harness.plan import StepPlan, Tile


@frozen
class View:
    """What every layer's attention of a tile needs, made once for the step.

    `halves` [2 x tiles x pages]: where K of each page, and then V of each, lies in a layer seen as half pages.
    `beyond`: places after a context, among those after its full blocks; None: there are none. `hidden`: what each query
    row must not see, or for fused attention what it sees; None: it sees all. Blocks have them as [tiles, blocks, 1,
    ATTENTION_BLOCK, 1] and [items, rows, ATTENTION_BLOCK], an item being (tile, block, KV head); fused attention has
    them as [tiles, tokens, 1, 1] and [tiles, 1, queries, tokens].
    """

    tile: Tile
    halves: torch.Tensor
    beyond: torch.Tensor | None
    hidden: torch.Tensor | None


@frozen
class GatheredAttention:
    """Attention of a step's rows, tile by tile."""

    shape: ModelShape
    recipe: Recipe

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

    # --- in blocks of fixed length ----------------------------------------------------------------------------------

    def _block_view(self, tile: Tile) -> View:
        positions = tile.positions.repeat_interleave(self.shape.group, dim=1)
        positions = F.pad(positions, (0, self._block_rows(tile) - positions.shape[1]))  # padding sees one token
        places = torch.arange(tile.blocks * ATTENTION_BLOCK, device=positions.device).view(1, -1, 1, ATTENTION_BLOCK)
        hidden = positions[:, None, :, None] < places
        items = (tile.count, tile.blocks, self.shape.kv_heads)
        beyond = places[:, tile.full_blocks :] >= tile.ends.view(-1, 1, 1, 1)
        return View(
            tile,
            _halves(tile),
            beyond.unsqueeze(-1),
            hidden[:, :, None].expand(*items, -1, -1).reshape(-1, positions.shape[1], ATTENTION_BLOCK),
        )

    def _block_rows(self, tile: Tile) -> int:
        """Query rows of an item: (token, head of the group), then padding."""
        return max(tile.size * self.shape.group, self.recipe.least_rows)

    def _in_blocks(self, q: torch.Tensor, pages: torch.Tensor, view: View) -> torch.Tensor:
        """[used rows, query width]."""
        shape, tile = self.shape, view.tile
        rows, items = self._block_rows(tile), (tile.count, tile.blocks, shape.kv_heads)
        queries = self._block_queries(q, tile, rows)
        keys, values = self._blocks(pages, view)
        assert view.hidden is not None
        top, total, output = in_buckets(
            attend_block,
            self.recipe.item_bucket,
            queries[:, None].expand(*items, -1, -1).reshape(-1, rows, shape.head_size),
            keys.view(-1, ATTENTION_BLOCK, shape.head_size),
            values.view(-1, ATTENTION_BLOCK, shape.head_size),
            view.hidden,
        )
        joined = combine_blocks(*(part.view(*items, rows, -1) for part in (top, total, output)))
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
        """fp32 K and V, each [tiles, blocks, kv_heads, ATTENTION_BLOCK, head_size], contiguous.

        V is zero beyond each context: a NaN there would pass through its weight of zero.
        """
        tile = view.tile
        gathered = _gathered(pages, view.halves)
        split = gathered.view(2, tile.count, tile.blocks, ATTENTION_BLOCK, *gathered.shape[-2:])
        keys, values = split.transpose(3, 4).float().contiguous().unbind(0)
        if view.beyond is not None:
            values[:, tile.full_blocks :].masked_fill_(view.beyond, 0.0)
        return keys, values

    # --- fused ------------------------------------------------------------------------------------------------------

    def _fused_view(self, tile: Tile) -> View:
        places = torch.arange(tile.blocks * ATTENTION_BLOCK, device=tile.ends.device)
        if tile.tokens is None:
            beyond = places[tile.full_blocks * ATTENTION_BLOCK :] >= tile.ends[:, None]
            seen = tile.positions[:, None, :, None] >= places
            return View(tile, _halves(tile), beyond[:, :, None, None], seen)
        sees_all = tile.size == 1 or _is_whole_context(tile)
        seen = tile.positions[:, None, :, None] >= places[: tile.tokens]
        return View(tile, _halves(tile), None, None if sees_all else seen)

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
        tile = view.tile
        gathered = _gathered(pages, view.halves)
        whole = gathered.view(2, tile.count, -1, *gathered.shape[-2:])
        if view.beyond is not None:
            whole[:, :, tile.full_blocks * ATTENTION_BLOCK :].masked_fill_(view.beyond, 0.0)
        return whole[:, :, : tile.tokens]


def _is_whole_context(tile: Tile) -> bool:
    """Whether the queries of each tile are all tokens of their context."""
    return tile.tokens == tile.size


def _halves(tile: Tile) -> torch.Tensor:
    keys = tile.table.flatten() * 2
    return torch.cat([keys, keys + 1])


def _gathered(pages: torch.Tensor, halves: torch.Tensor) -> torch.Tensor:
    """Half pages of one layer [pages, 2, PAGE_LENGTH, kv_heads, head_size], in the order of `halves`."""
    return pages.flatten(0, 1).index_select(0, halves)


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
