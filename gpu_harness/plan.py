"""What one step does, first as the host says it (`StepBatch`), then as index tensors (`StepPlan`).

The plan is a snapshot: nothing that the host does after the launch can change what the step reads.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
from attrs import field, frozen

from kvescrow.gpu_harness.arithmetic import ATTENTION_BLOCK, Recipe
from kvescrow.gpu_harness.pages import PAGE_LENGTH, SINK, PageClaim

PAGES_PER_BLOCK = ATTENTION_BLOCK // PAGE_LENGTH


class BadBatch(ValueError):
    """A step descriptor that contradicts itself: a fault of the caller, not evidence about memory."""


@frozen
class Segment:
    """Consecutive tokens of one request in one step: a prefill chunk, or a decode row (one token).

    `request` is the owner stamp that its private pages must carry. `tokens` are the ids at positions
    `start`, `start + 1`, ...; None means one token, the last one sampled for `slot`, which the host may not
    know yet. `claims` is the block table: the pages in logical order, covering at least positions 0 .. end.
    `slot` is where the sampled token is kept.
    """

    request: int
    scope: int
    slot: int
    start: int
    tokens: tuple[int, ...] | None
    claims: tuple[PageClaim, ...]

    @property
    def length(self) -> int:
        """Tokens that this segment computes."""
        return 1 if self.tokens is None else len(self.tokens)

    @property
    def end(self) -> int:
        """One past the last position."""
        return self.start + self.length

    @property
    def used_claims(self) -> tuple[PageClaim, ...]:
        """The claims that the step touches: those up to the last position."""
        return self.claims[: -(-self.end // PAGE_LENGTH)]

    @property
    def first_written(self) -> int:
        """Logical index of the first page that this segment writes."""
        return self.start // PAGE_LENGTH


def _as_tuple(segments: Iterable[Segment]) -> tuple[Segment, ...]:
    return tuple(segments)


@frozen
class StepBatch:
    """One step: prefill chunks and decode rows together. `scratch` is where padding rows write; None: the pool's own
    scratch page.
    """

    ticket: int
    segments: tuple[Segment, ...] = field(converter=_as_tuple)
    scratch: int | None = None

    @property
    def pages(self) -> tuple[int, ...]:
        """Every page that the step may touch, each once: what its ticket lists (PAG-4)."""
        return tuple(dict.fromkeys(claim.page for segment in self.segments for claim in segment.used_claims))


@frozen
class Tile:
    """Queries that are attended in one call: `count` tiles of `size` tokens, each tile from one request.

    `rows` [used]: batch rows of the real queries; `places` [used]: their places in the flattened tiles;
    `positions` [count, size]; `table` [count, pages], padded with the sink; `ends` [count]: tokens in the
    context. Of `blocks` attention blocks, the first `full_blocks` lie wholly inside every tile's context.
    `first_row`: the batch row of the first query, where rows follow each other and no place is empty. `tokens`: tokens
    of each context, where all have as many. Both only say what need not be looked up.
    """

    count: int
    size: int
    blocks: int
    full_blocks: int
    rows: torch.Tensor
    places: torch.Tensor
    positions: torch.Tensor
    table: torch.Tensor
    ends: torch.Tensor
    first_row: int | None = None
    tokens: int | None = None


@frozen
class PagedTiles:
    """Tiles as kernels over the block table read them: `size` queries at most, each tile from one request.

    [tiles]: the batch row of the first query, the number of queries (0: padding), the position of the first, and the
    listing of the first page of their segment. `write_listings` [rows]: the listing of the page that the row writes, -1
    for a padding row.
    """

    size: int
    first_rows: torch.Tensor
    lengths: torch.Tensor
    starts: torch.Tensor
    listings: torch.Tensor
    write_listings: torch.Tensor


@frozen
class Listing:
    """Every (segment, page) pair that the step touches, with what must be found there; each tensor
    [listings, ...].
    """

    pages: torch.Tensor
    expected: torch.Tensor
    """[listings, 4]: generation, owner, scope, index."""
    written: torch.Tensor
    """Whether the step writes the page."""
    filled: torch.Tensor
    """Token slots of the page that hold the request's tokens before the step; the others must hold poison."""


@frozen
class StepPlan:
    """Index tensors of a step. `rows` counts padding; row tensors are [rows]."""

    rows: int
    ticket: torch.Tensor
    """[1]: the ticket, which the step gives back."""
    tokens: torch.Tensor
    fed_rows: torch.Tensor
    """Rows whose token is read from `fed_slots` on the device."""
    fed_slots: torch.Tensor
    positions: torch.Tensor
    scopes: torch.Tensor
    write_pages: torch.Tensor
    write_slots: torch.Tensor
    tiles: tuple[Tile, ...]
    """Empty with kernels over the block table, which read `paged` instead."""
    paged: PagedTiles | None
    last_rows: torch.Tensor
    """[segments]: the row of each segment's last token."""
    slots: torch.Tensor
    listing: Listing


def plan_step(batch: StepBatch, recipe: Recipe, upload: Callable[[torch.Tensor], torch.Tensor]) -> StepPlan:
    """The plan of a `batch` that `check_batch` accepts, its tensors moved by `upload`. Its scratch page is named."""
    assert batch.scratch is not None
    segments = batch.segments
    used = sum(segment.length for segment in segments)
    rows = recipe.padded_rows(used)
    padding = rows - used
    firsts, first = [], 0
    for segment in segments:
        firsts.append(first)
        first += segment.length

    def ints(values: Sequence[int] | Sequence[Sequence[int]]) -> torch.Tensor:
        return upload(torch.tensor(values, dtype=torch.int64))

    positions = [p for s in segments for p in range(s.start, s.end)]
    pages = [s.claims[p // PAGE_LENGTH].page for s in segments for p in range(s.start, s.end)]
    fed = [(row, s.slot) for row, s in zip(firsts, segments, strict=True) if s.tokens is None]
    return StepPlan(
        rows=rows,
        ticket=ints([batch.ticket]),
        tokens=ints([t for s in segments for t in (s.tokens or (0,))] + [0] * padding),
        fed_rows=ints([row for row, _ in fed]),
        fed_slots=ints([slot for _, slot in fed]),
        positions=ints(positions + [0] * padding),
        scopes=ints([s.scope for s in segments for _ in range(s.length)] + [0] * padding),
        write_pages=ints(pages + [batch.scratch] * padding),
        write_slots=ints([p % PAGE_LENGTH for p in positions] + [0] * padding),
        tiles=()
        if recipe.kernels
        else tuple(_tile(group, recipe, ints) for group in _groups(segments, firsts, recipe)),
        paged=_paged(segments, firsts, padding, recipe, ints) if recipe.kernels else None,
        last_rows=ints([row + s.length - 1 for row, s in zip(firsts, segments, strict=True)]),
        slots=ints([s.slot for s in segments]),
        listing=_listing(segments, upload),
    )


def check_batch(batch: StepBatch, slots: int) -> None:
    """Refuse a descriptor that contradicts itself; `slots` is the number of request slots. Raises BadBatch."""
    if not batch.segments:
        raise BadBatch(f"ticket {batch.ticket}: a step needs at least one segment")
    for s in batch.segments:
        if s.length < 1 or s.start < 0 or not 0 <= s.slot < slots:
            raise BadBatch(f"ticket {batch.ticket}, request {s.request}: no tokens, negative start, or no such slot")
        if len(s.claims) * PAGE_LENGTH < s.end:
            raise BadBatch(f"ticket {batch.ticket}, request {s.request}: {len(s.claims)} page(s) end before {s.end}")
    if len({s.slot for s in batch.segments}) < len(batch.segments):
        raise BadBatch(f"ticket {batch.ticket}: a slot is in two segments")


@frozen
class _Piece:
    """Part of a segment that becomes one tile: batch row of its first query, and how many queries."""

    segment: Segment
    row: int
    start: int
    length: int


def _groups(segments: Sequence[Segment], firsts: Sequence[int], recipe: Recipe) -> Iterator[list[_Piece]]:
    """Pieces that share a call: with fixed tiles all of them, else all decode rows together and each chunk
    by itself. Kernels have tiles of their own.
    """
    if recipe.kernels:
        return
    whole = [_Piece(s, row, s.start, s.length) for s, row in zip(segments, firsts, strict=True)]
    if recipe.query_tile is None:
        if single := [piece for piece in whole if piece.length == 1]:
            yield single
        yield from ([piece] for piece in whole if piece.length > 1)
        return
    yield [piece for each in whole for piece in _pieces(each, recipe.query_tile)]


def _pieces(whole: _Piece, size: int) -> list[_Piece]:
    """`whole` in pieces of `size` queries, the last one shorter."""
    return [
        _Piece(whole.segment, whole.row + i, whole.start + i, min(size, whole.length - i))
        for i in range(0, whole.length, size)
    ]


def _tile(pieces: list[_Piece], recipe: Recipe, ints: Callable[..., torch.Tensor]) -> Tile:
    size = recipe.query_tile or pieces[0].length
    blocks = max(-(-(p.start + p.length) // ATTENTION_BLOCK) for p in pieces)
    tables = [[claim.page for claim in p.segment.used_claims][: blocks * PAGES_PER_BLOCK] for p in pieces]
    rows = [p.row + i for p in pieces for i in range(p.length)]
    is_in_order = len(rows) == len(pieces) * size and rows[-1] - rows[0] == len(rows) - 1
    ends = {p.start + p.length for p in pieces}
    return Tile(
        count=len(pieces),
        size=size,
        blocks=blocks,
        full_blocks=min(ends) // ATTENTION_BLOCK,
        rows=ints(rows),
        places=ints([n * size + i for n, p in enumerate(pieces) for i in range(p.length)]),
        positions=ints([[p.start + i if i < p.length else 0 for i in range(size)] for p in pieces]),
        table=ints([table + [SINK] * (blocks * PAGES_PER_BLOCK - len(table)) for table in tables]),
        ends=ints([p.start + p.length for p in pieces]),
        first_row=rows[0] if is_in_order else None,
        tokens=ends.pop() if len(ends) == 1 else None,
    )


def _paged(
    segments: Sequence[Segment],
    firsts: Sequence[int],
    padding: int,
    recipe: Recipe,
    ints: Callable[..., torch.Tensor],
) -> PagedTiles:
    first, listings = 0, []
    for segment in segments:
        listings.append(first)
        first += len(segment.used_claims)
    first_listing = dict(zip(firsts, listings, strict=True))
    size = recipe.query_tile or 1
    tiles = [
        (piece.row, piece.length, piece.start, first_listing[row])
        for row, segment in zip(firsts, segments, strict=True)
        for piece in _pieces(_Piece(segment, row, segment.start, segment.length), size)
    ]
    rows, lengths, starts, first_listings = zip(*tiles, strict=True)
    written = [at + p // PAGE_LENGTH for at, s in zip(listings, segments, strict=True) for p in range(s.start, s.end)]
    return PagedTiles(
        size, ints(rows), ints(lengths), ints(starts), ints(first_listings), ints(written + [-1] * padding)
    )


def _listing(segments: Sequence[Segment], upload: Callable[[torch.Tensor], torch.Tensor]) -> Listing:
    """By whole columns, since a step can list thousands of pages and its host must be quicker than its device."""
    each = [segment.used_claims for segment in segments]
    claims = [claim for used in each for claim in used]
    counts = torch.tensor([len(used) for used in each])
    # For each listing its segment's request, scope, start, first written page, and first listing.
    of_segments = torch.tensor([[s.request, s.scope, s.start, s.first_written] for s in segments])
    of_segments = torch.cat([of_segments, (counts.cumsum(0) - counts)[:, None]], dim=1)
    owner, scope, start, first_written, first = of_segments.repeat_interleave(counts, 0).T
    index = torch.arange(len(claims)) - first
    generation = torch.tensor([claim.generation for claim in claims])
    return Listing(
        pages=upload(torch.tensor([claim.page for claim in claims])),
        expected=upload(torch.stack([generation, owner, scope, index], dim=1)),
        written=upload(index >= first_written),
        filled=upload((start - index * PAGE_LENGTH).clamp(0, PAGE_LENGTH)),
    )
