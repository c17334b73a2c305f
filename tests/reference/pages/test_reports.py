"""Field reports of other systems, as scenarios on the pool; every page is accounted for after each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kvescrow.reference.pages import Acquired, PagePool, PageReply, PageUse
from kvescrow.spec.vocabulary import Decision, PageState, PrefixScope, Reason

SCOPE = PrefixScope("tenant", page_length=4)


def tokens(pages: int, *, first: int = 0) -> list[int]:
    return list(range(first, first + 4 * pages))


def compute(pool: PagePool, holder: str, prompt: list[int]) -> None:
    """Run one step that writes all private pages of the holder, and publish what it filled."""
    pages = [page for page in pool.pages_of(holder) if pool.chain(page) is None]
    full = frozenset(pool.pages_of(holder)[: len(prompt) // 4])
    use = [PageUse(holder, writes=tuple(pages), filled=full & frozenset(pages))]
    assert pool.launch(use).decision is Decision.LAUNCHED
    pool.finish(use, ok=True)
    pool.publish(holder, prompt)


def acquired(pool: PagePool, holder: str, prompt: list[int], total: int | None = None) -> Acquired:
    got = pool.acquire(holder, SCOPE, prompt, len(prompt) if total is None else total)
    assert isinstance(got, Acquired), got
    return got


def refused(pool: PagePool, holder: str, prompt: list[int], total: int) -> Reason:
    before, seq = pool.snapshot(), pool.seq
    got = pool.acquire(holder, SCOPE, prompt, total)
    assert isinstance(got, PageReply) and got.decision is Decision.REFUSED
    assert (pool.snapshot(), pool.seq) == (before, seq)
    return got.reason


def cached(pool: PagePool, prompt: list[int], holder: str = "first#1") -> tuple[int, ...]:
    """Leave the full pages of `prompt` cached, held by nobody."""
    pages = acquired(pool, holder, prompt).pages
    compute(pool, holder, prompt)
    pool.release(holder)
    return pages


@pytest.fixture
def pool() -> Iterator[PagePool]:
    pool = PagePool(6, 4)
    yield pool
    pool.check()


def test_b41_own_evictable_hits_are_not_free_space(pool: PagePool) -> None:
    cached(pool, tokens(2))
    assert (pool.counts().free, pool.counts().cached) == (3, 2)
    assert refused(pool, "a#1", [*tokens(2), 99], total=24) is Reason.NEVER_FITS


def test_b41_own_evictable_hits_are_not_free_space_beside_others() -> None:
    pool = PagePool(7, 4)
    cached(pool, tokens(2))
    acquired(pool, "d#1", [77])
    assert (pool.counts().free, pool.counts().cached) == (3, 2)
    assert refused(pool, "a#1", [*tokens(2), 99], total=24) is Reason.POOL_CAPACITY
    assert acquired(pool, "a#1", [*tokens(2), 99], total=20).cached_tokens == 8
    pool.check()


def test_b41_hits_that_others_hold_cost_nothing(pool: PagePool) -> None:
    acquired(pool, "d#1", tokens(2))
    compute(pool, "d#1", tokens(2))
    assert pool.counts().free == 3
    got = acquired(pool, "a#1", [*tokens(2), 99], total=20)
    assert (got.cached_tokens, got.promised) == (8, 2)
    assert pool.counts().free == 2


def test_b37_eviction_takes_the_leaf_and_a_lookup_stops_at_the_hole() -> None:
    pool = PagePool(4, 4)
    first, second, third = cached(pool, tokens(3))
    for page in (first, second):
        assert pool.evict(page).reason is Reason.HAS_CHILDREN
    drawn = acquired(pool, "b#1", [77])
    assert drawn.pages == (third,)
    assert pool.lookup(SCOPE, [*tokens(3), 99]) == 8
    pool.release("b#1")
    pool.evict(second)
    pool.evict(first)
    assert pool.lookup(SCOPE, [*tokens(3), 99]) == 0
    pool.check()


def test_b12_eviction_never_takes_a_held_page(pool: PagePool) -> None:
    pages = cached(pool, tokens(1))
    b = acquired(pool, "b#1", [*tokens(1), 99])
    assert b.pages[0] == pages[0]
    assert pool.evict(pages[0]).reason is Reason.IN_USE
    c = acquired(pool, "c#1", tokens(3, first=50))
    assert pages[0] not in c.pages
    assert pool.snapshot().pages[pages[0]].holders == {"b#1"}


def test_b12_a_failed_admission_keeps_no_share(pool: PagePool) -> None:
    pages = cached(pool, tokens(1))
    acquired(pool, "c#1", tokens(3, first=50))
    assert refused(pool, "d#1", [*tokens(1), 99], total=12) is Reason.POOL_CAPACITY
    assert pool.snapshot().pages[pages[0]].state is PageState.CACHED
    assert isinstance(pool.acquire("d#1", SCOPE, [*tokens(1), 99], 8), Acquired)


def test_b32_half_filled_pages_never_match_and_claims_keep_the_entry(pool: PagePool) -> None:
    (page, _) = acquired(pool, "a#1", tokens(2)).pages
    half = [PageUse("a#1", writes=(page,))]
    pool.launch(half)
    pool.finish(half, ok=True)
    assert pool.publish("a#1", tokens(2)) == 0
    assert pool.lookup(SCOPE, [*tokens(1), 99]) == 0
    rest = [PageUse("a#1", writes=(page,), filled=frozenset({page}))]
    pool.launch(rest)
    assert pool.publish("a#1", tokens(2)) == 0
    pool.finish(rest, ok=True)
    assert pool.publish("a#1", tokens(2)) == 1
    assert pool.lookup(SCOPE, [*tokens(1), 99]) == 4
    pool.release("a#1")
    for holder in ("c#1", "d#1"):
        assert acquired(pool, holder, [*tokens(1), 99]).cached_tokens == 4
    assert pool.snapshot().pages[page].holders == {"c#1", "d#1"}


def test_b34_a_full_hit_still_computes_a_page_of_its_own(pool: PagePool) -> None:
    acquired(pool, "e#1", tokens(2))
    compute(pool, "e#1", tokens(2))
    free = pool.counts().free
    a = acquired(pool, "a#1", tokens(2))
    assert a.cached_tokens == 4
    assert pool.counts().free == free - 1
    assert pool.touch("a#1", a.pages[0], True).reason is Reason.READ_ONLY
    assert pool.touch("a#1", a.pages[1], True).decision is Decision.LAUNCHED
    assert pool.seal("a#1", a.pages[1], tokens(1, first=4), a.pages[0]).reason is Reason.NOT_COMPUTED
    pool.settle(a.pages[1], True, True, True)
    assert pool.seal("a#1", a.pages[1], tokens(1, first=4), a.pages[0]).reason is Reason.DUPLICATE


def test_b104_a_page_is_published_once(pool: PagePool) -> None:
    (page,) = acquired(pool, "a#1", tokens(1)).pages
    assert pool.seal("a#1", page, tokens(1), None).reason is Reason.NOT_COMPUTED
    pool.touch("a#1", page, True)
    pool.settle(page, True, True, True)
    assert pool.seal("a#1", page, tokens(1), None).decision is Decision.PUBLISHED
    assert pool.seal("a#1", page, tokens(1), None).decision is Decision.RECORDED
    assert pool.seal("a#1", page, tokens(1, first=9), None).reason is Reason.NOT_PRIVATE
    pool.release("a#1")
    counts = pool.counts()
    assert (counts.free, counts.cached, counts.total) == (4, 1, 5)


def test_b09_a_page_listed_twice_is_returned_once(pool: PagePool) -> None:
    one, two = acquired(pool, "a#1", tokens(2)).pages
    assert pool.drop("a#1", two).decision is Decision.DROPPED
    assert pool.drop("a#1", two).reason is Reason.NOT_HOLDER
    assert pool.drop("a#1", one).decision is Decision.DROPPED
    assert pool.close("a#1").decision is Decision.RELEASED
    assert pool.counts().free == 5
    assert len(set(acquired(pool, "b#1", tokens(5, first=9)).pages)) == 5


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        (PrefixScope("org_1", salt="2345"), PrefixScope("org_12345", salt="")),
        (PrefixScope("t", media=("ab", "c")), PrefixScope("t", media=("a", "bc"))),
        (PrefixScope("t", adapter=None), PrefixScope("t", adapter="")),
        (PrefixScope("t", group=True), PrefixScope("t")),
    ],
)
def test_b28_scopes_whose_fields_join_alike_share_nothing(
    pool: PagePool, mine: PrefixScope, theirs: PrefixScope
) -> None:
    pool.acquire("a#1", mine, tokens(2), 8)
    compute(pool, "a#1", tokens(2))
    assert pool.lookup(mine, [*tokens(2), 99]) == 8
    assert pool.lookup(theirs, [*tokens(2), 99]) == 0


def test_b30_a_colliding_digest_shares_nothing() -> None:
    pool = PagePool(6, 4, digest=lambda parent, page: b"same")
    one = PrefixScope("one")
    pool.acquire("a#1", one, tokens(1), 4)
    compute(pool, "a#1", tokens(1))
    assert pool.lookup(one, [*tokens(1), 99]) == 4
    assert pool.lookup(one, [*tokens(1, first=50), 99]) == 0
    assert pool.lookup(PrefixScope("two"), [*tokens(1), 99]) == 0
    b = pool.acquire("b#1", one, [*tokens(1, first=50), 99], 5)
    assert isinstance(b, Acquired) and b.cached_tokens == 0
    assert pool.share("b#1", 1, tokens(1, first=50), None).decision is Decision.MISS
    pool.check()


def test_b30_equal_tokens_after_another_page_are_no_hit() -> None:
    """The digest tells only the last token, so a page in the middle collides with one at the start."""
    pool = PagePool(6, 4, digest=lambda parent, page: page[-4:])
    pool.acquire("a#1", SCOPE, tokens(2), 8)
    compute(pool, "a#1", tokens(2))
    _, second = pool.pages_of("a#1")
    assert pool.lookup(SCOPE, [*tokens(2), 99]) == 8
    assert pool.lookup(SCOPE, [*tokens(1, first=4), 99]) == 0
    pool.acquire("b#1", SCOPE, [99], 4)
    assert pool.share("b#1", second, tokens(1, first=4), None).decision is Decision.MISS
