"""The reference page pool as a target."""

import hashlib

from kvescrow.checks.targets.protocols import PageFacts, PoolSetup, Tokens
from kvescrow.checks.targets.subject import Kind, Subject
from kvescrow.reference.pages import PagePool, PageReply, chain_digest
from kvescrow.spec.vocabulary import PoolSnapshot, PrefixScope


class ReferencePool:
    """The reference pool behind `PageTarget`."""

    def __init__(self, pool: PagePool) -> None:
        self.pool = pool

    def admit(self, holder: str, scope: PrefixScope, units: int) -> PageFacts:
        """Ask for a promise."""
        return _facts(self.pool.admit(holder, scope, units))

    def grow(self, holder: str, units: int) -> PageFacts:
        """Ask for more."""
        return _facts(self.pool.grow(holder, units))

    def close(self, holder: str) -> PageFacts:
        """Return what was not drawn."""
        return _facts(self.pool.close(holder))

    def forget(self, holder: str) -> PageFacts:
        """Forget a closed holder."""
        return _facts(self.pool.forget(holder))

    def allocate(self, holder: str, page: int) -> PageFacts:
        """Draw one page."""
        return _facts(self.pool.allocate(holder, page))

    def seal(self, holder: str, page: int, tokens: Tokens, parent: int | None) -> PageFacts:
        """Publish a page."""
        return _facts(self.pool.seal(holder, page, tokens, parent))

    def share(self, holder: str, page: int, tokens: Tokens, parent: int | None) -> PageFacts:
        """Claim a published page; a parent that is not published has a digest that no page has."""
        chain = None if parent is None else self.pool.chain(parent) or b"unpublished"
        return _facts(self.pool.share(holder, page, tokens, chain))

    def drop(self, holder: str, page: int) -> PageFacts:
        """Give up a claim."""
        return _facts(self.pool.drop(holder, page))

    def evict(self, page: int) -> PageFacts:
        """Take back cached content."""
        return _facts(self.pool.evict(page))

    def touch(self, holder: str, page: int, *, write: bool) -> PageFacts:
        """Launch a step on a page."""
        return _facts(self.pool.touch(holder, page, write=write))

    def settle(self, page: int, *, write: bool, ok: bool, filled: bool) -> PageFacts:
        """End such a step."""
        return _facts(self.pool.settle(page, write=write, ok=ok, filled=filled))

    def park(self, page: int) -> PageFacts:
        """Park a page that has nothing to wait for any more."""
        return _facts(self.pool.park(page))

    def retire_page(self, page: int, scope: PrefixScope) -> PageFacts:
        """Retire a scope on one page."""
        return _facts(self.pool.retire_page(scope, page))

    def snapshot(self) -> PoolSnapshot:
        """Return the whole projected state."""
        return self.pool.snapshot()


def _facts(reply: PageReply) -> PageFacts:
    return PageFacts(reply.decision, reply.reason)


def weak_digest(parent: bytes, tokens: bytes) -> bytes:
    """Return a digest that sees no more of a prefix than whether the page's first token is odd."""
    return hashlib.sha256(bytes([tokens[0] & 1])).digest()


def open_pool(setup: PoolSetup) -> ReferencePool:
    """Open the reference pool."""
    digest = weak_digest if setup.weak_digest else chain_digest
    return ReferencePool(PagePool(setup.pages, setup.page_length, setup.scope_limit, digest=digest))


def pool_subject() -> Subject:
    """Return the reference page pool."""
    return Subject(Kind.PAGES, open_pool)
