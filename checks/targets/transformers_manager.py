"""The paged cache manager of `transformers` as a `CacheManager`: an example of what a third party writes.

An adapter calls the engine's own methods and decides nothing. It declares what its engine does not claim, and lists
what its engine gets wrong, each with the least calls that show it. Then `kvescrow fuzz --target package.module:factory`
judges it; this one is registered as `transformers`.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

from kvescrow.checks.targets import protocols, subject
from kvescrow.checks.targets.transformers_cache import TransformersCache, installed
from kvescrow.spec.vocabulary import PrefixScope

_engine_of = cache(TransformersCache)
"""An engine is dear to make and is reset at each opening instead; two of one size are never open at once."""


class TransformersManager:
    """One released `PagedAttentionCache`. Raises UserError where transformers is not installed."""

    def __init__(self, setup: protocols.ManagerSetup) -> None:
        self._engine = _engine_of(setup.pages, setup.page_length)
        self._engine.cache.reset()
        (self._allocator,) = self._engine.cache.cache_allocators.values()
        self._requests: dict[str, Any] = {}
        self._launched: dict[str, tuple[int, dict[str, int]]] = {}

    def submit(self, request: str, prompt: Sequence[int], scope: PrefixScope) -> protocols.Granted:
        """Announce a request; the engine is not told of scopes."""
        self._requests[request] = self._engine.request(request, prompt)
        return protocols.Granted(self._engine.match(self._requests[request]))

    def reserve(self, request: str, tokens: int) -> protocols.Granted | protocols.Denied:
        """Make room for the next `tokens` positions."""
        granted = self._engine.cache.can_store_request_tokens(self._requests[request], tokens)
        return protocols.Granted() if granted else protocols.Denied()

    def launch(self, request: str, tokens: int) -> None:
        """Count the pages that the step will complete, as the scheduler does."""
        self._launched[request] = tokens, self._engine.launch(self._requests[request], tokens)

    def complete(self, request: str, sampled: Sequence[int]) -> None:
        """Publish the pages that the step completed."""
        self._requests[request].generated_tokens.extend(sampled)
        self._engine.complete(self._requests[request], *self._launched.pop(request))

    def release(self, request: str) -> None:
        """Free the request's pages."""
        self._engine.release(self._requests[request])

    def pages_of(self, request: str) -> tuple[int, ...]:
        """Return the request's block table."""
        return tuple(self._allocator.block_table.get(request, ()))

    def evict(self) -> None:
        """Give back every cached page."""
        self._engine.cache.evict_cached_blocks()

    def pool(self) -> protocols.ManagerPool:
        """Return where every page is by the engine's own records."""
        pool, ledger, width = self._engine.cache.pool, self._allocator.ledger, self._allocator.blocks_per_sector
        free = {sector * width + place for sector in pool.free_sectors for place in range(width)}
        free |= {page for pages in pool._free_blocks[self._allocator.index].trees.values() for page in pages}
        every = range(pool.num_reserved_sectors * width, (pool.num_reserved_sectors + pool.num_sectors) * width)
        cached = frozenset(ledger.cached_blocks)
        # The engine counts from the second holder on; a page that is neither free nor cached has one.
        holders = {page: ledger.shared_ref_counts.get(page, 1) for page in every if page not in free | cached}
        return protocols.ManagerPool(len(every), frozenset(free), cached, holders)

    def close(self) -> None:
        """Hold nothing open."""


def transformers_subject() -> subject.Subject:
    """Return the manager with what it declares and what is known of it."""
    return subject.Subject(subject.Kind.MANAGER, TransformersManager, DECLARED, DEVIATIONS, installed())


DECLARED = subject.Capabilities(
    release=subject.Release.ORDERED,  # Pages are free at once: every batch runs on one stream.
    scope_fields=frozenset({"tenant"}),  # One cache serves one model, and has no adapters or salts.
    stable_tables=False,  # Equal pages are merged when a step ends.
    reserves_output=False,
    chooses_digest=False,
)
_RUN = (("submit", "r0", (1, 2, 3, 4, 5), PrefixScope("a")), ("reserve", "r0", 5), ("launch", "r0", 5))
_DONE = (*_RUN, ("complete", "r0", (6,)))
_OTHER_TENANT = ("submit", "r1", (1, 2, 3, 4, 5), PrefixScope("b"))
_CANCELLED = (*_RUN, ("release", "r0"), ("complete", "r0", ()))
_SEEN = "seen in transformers 5.24.0"
_LOST = f"a second request under a live id replaces its page table, and the pages in it are lost; {_SEEN}"
_SHARED = f"the digest of a page covers its tokens alone, so one tenant's request hits another's pages; {_SEEN}"
_RAISES = f"the end of the step looks for the page table that the cancel removed: KeyError; {_SEEN}"
DEVIATIONS = (
    subject.ListedDeviation("duplicate id", "duplicate", _LOST, (*_DONE, _RUN[0])),
    subject.ListedDeviation("tenants share", "scope.tenant", _SHARED, (*_DONE, _OTHER_TENANT)),
    subject.ListedDeviation("cancel in flight", "cancel", _RAISES, _CANCELLED),
)
