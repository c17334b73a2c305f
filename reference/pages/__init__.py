"""The KV page pool: promises, pages, prefix index (PAG, SCO)."""

from kvescrow.reference.pages.batches import PageUse
from kvescrow.reference.pages.chain import Digest, PackedTokens, chain_digest, pack, root_digest
from kvescrow.reference.pages.invariants import BrokenInvariant
from kvescrow.reference.pages.pool import PagePool
from kvescrow.reference.pages.replies import Acquired, PageEvent, PageReply, PoolCounts, Recorder

__all__ = [
    "Acquired",
    "BrokenInvariant",
    "Digest",
    "PackedTokens",
    "PageEvent",
    "PagePool",
    "PageReply",
    "PageUse",
    "PoolCounts",
    "Recorder",
    "chain_digest",
    "pack",
    "root_digest",
]
