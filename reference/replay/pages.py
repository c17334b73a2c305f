"""The page pool as a replay's worker uses it.

A trace tells what a page holds by block ids, not by tokens. So the pool here is given one symbol a page: equal
symbols stand for equal content. That is exact, since a symbol is a number of a content seen, not a hash of it.
"""

from attrs import define

from kvescrow.reference.executions import Share, holder_name
from kvescrow.reference.pages import Acquired, PagePool, PoolCounts, Recorder
from kvescrow.reference.replay.fault import ReplayFault
from kvescrow.reference.replay.shape import SYMBOLS_PER_PAGE, Shape
from kvescrow.reference.traces import TraceRequest
from kvescrow.spec.vocabulary import Decision, Key, PrefixScope

UNKNOWN = 0
"""Symbol of a page whose content the trace does not tell; such a page is never published."""


@define(eq=False)
class _Held:
    """The pages of one execution."""

    key: Key
    generation: int
    symbols: tuple[int, ...]
    """Of the prompt pages that may be published, from the first on."""
    pages: list[int]

    @property
    def holder(self) -> str:
        """Its name in the pool."""
        return holder_name(self.key, self.generation)


class BatchPages:
    """The pages of everything in the batch. An execution is named by its key; its pages come and go with `begin` and
    `release`.
    """

    def __init__(self, shape: Shape, recorder: Recorder | None) -> None:
        """Make a pool of `shape`; `recorder` sees each of its events."""
        self._shape = shape
        # The sink is a page of the pool, and none of the usable ones.
        self.pool = PagePool(shape.pages + 1, SYMBOLS_PER_PAGE, recorder=recorder)
        self._symbols: dict[tuple[int, ...], int] = {}
        self._held: dict[Key, _Held] = {}
        self.looked_up_tokens = 0
        """Prompt tokens of the requests whose content the trace tells."""
        self.hit_tokens = 0

    def begin(self, key: Key, generation: int, request: TraceRequest, tokens: int, bound: int) -> int:
        """Promise all pages of the `bound` that `request` has reserved, take those of the `tokens` that it computes
        first, and return how many of them are reused.

        The ledger has reserved them, so the pool cannot refuse (PAG-1).
        """
        symbols = tuple(map(self._symbol, self._shape.content(request)))
        prompt_pages = self._shape.pages_of(tokens)
        all_pages = bound // self._shape.page_length
        prompt = symbols + (UNKNOWN,) * (prompt_pages - len(symbols))
        scope = PrefixScope(tenant=request.tenant, page_length=self._shape.page_length)
        acquired = self.pool.acquire(holder_name(key, generation), scope, prompt, all_pages)
        if not isinstance(acquired, Acquired):
            raise ReplayFault(f"{key}: reserved by the ledger, refused by the pool: {acquired.reason.value}")
        self._held[key] = _Held(key, generation, symbols, list(acquired.pages))
        reused = acquired.cached_tokens * self._shape.page_length
        if request.block_ids:
            self.looked_up_tokens += request.input_tokens
            self.hit_tokens += reused
        return reused

    def grow(self, key: Key, tokens: int) -> None:
        """Promise the pages of `tokens` more, which the ledger has granted."""
        reply = self.pool.grow(self._held[key].holder, tokens // self._shape.page_length)
        if reply.decision is not Decision.EXTENDED:
            raise ReplayFault(f"{key}: its growth was granted by the ledger, refused by the pool: {reply.reason.value}")

    def share(self, key: Key, position: int, length: int) -> Share:
        """Return what computing `length` tokens from `position` on does to pages; draw those that it needs."""
        held, page_length = self._held[key], self._shape.page_length
        first, end = position // page_length, self._shape.pages_of(position + length)
        while len(held.pages) < end:
            held.pages.append(self._draw(held.holder))
        return Share(
            key,
            held.generation,
            reads=tuple(held.pages[:end]),
            writes=tuple(held.pages[first:end]),
            filled=frozenset(held.pages[first : (position + length) // page_length]),
        )

    def room_in_page(self, position: int) -> int:
        """Return how many tokens from `position` on fit in its page."""
        return self._shape.page_length - position % self._shape.page_length

    def publish(self, key: Key, position: int) -> None:
        """Publish what is computed of a prompt whose first `position` tokens are (PAG-6)."""
        held = self._held[key]
        self.pool.publish(held.holder, held.symbols[: position // self._shape.page_length])

    def release(self, key: Key) -> None:
        """Give all pages up. One that a step may still touch drains until that step ends (PAG-4)."""
        held = self._held.pop(key)
        reply = self.pool.release(held.holder)
        if reply.decision is not Decision.RELEASED:
            raise ReplayFault(f"{key}: its pages were not taken back: {reply.reason.value}")

    def forget(self, key: Key, generation: int) -> None:
        """Forget an execution whose stop the ledger has confirmed."""
        reply = self.pool.forget(holder_name(key, generation))
        if reply.decision is not Decision.FORGOTTEN:
            raise ReplayFault(f"{key}: its pages were to be forgotten: {reply.reason.value}")

    def check_idle(self) -> PoolCounts:
        """Check that nobody holds anything and return the counts; what is not free is cached (PAG-2)."""
        self.pool.check()
        counts = self.pool.counts()
        if counts.promised or counts.free + counts.cached != counts.total:
            raise ReplayFault(f"the work is over, but the page pool is not at rest: {counts}")
        return counts

    def _symbol(self, content: tuple[int, ...]) -> int:
        return self._symbols.setdefault(content, UNKNOWN + 1 + len(self._symbols))

    def _draw(self, holder: str) -> int:
        reply = self.pool.allocate(holder)
        if reply.page is None:
            raise ReplayFault(f"{holder}: a promised page was refused: {reply.reason.value}")
        return reply.page
