"""Family c, second part: pages that are matched before they are computed, or after they are gone (PAG)."""

from __future__ import annotations

import pytest

from kvescrow.spec.vocabulary import PageState, Reason
from tests.field_reports.conftest import PagesOf
from tests.field_reports.on_reference import ReferencePages
from tests.field_reports.pages import Counts, text
from tests.field_reports.replies import (
    DROPPED,
    EXTENDED,
    GRANTED,
    LAUNCHED,
    MISS,
    PUBLISHED,
    RECORDED,
    RELEASED,
    SETTLED,
    refused,
)

CACHED, FREE, PRIVATE, SHARED = PageState.CACHED, PageState.FREE, PageState.PRIVATE, PageState.SHARED


def test_b31_pages_that_no_step_filled_are_not_matched(pages_of: PagesOf) -> None:
    """huggingface/text-generation-inference#2489: a request went back to the queue with its pages registered.

    Wrong: B matches 8 tokens of memory that nothing has written.
    Right: a page is matchable only after the step that computed it; going back leaves nothing. PAG-6 PAG-2
    """
    # Given a pool of 8 pages; A was admitted for the 8 tokens of T and drew 2 pages
    pool = pages_of(8)
    tokens = text(2)
    pages = pool.holding("A", 2)
    # When they are registered under T before any step
    # Then it is refused
    assert pool.publish("A", pages[0], tokens[:4]) == refused(Reason.NOT_COMPUTED)
    # And so it is while the step that fills them runs, or when it has failed
    assert pool.write("A", pages[0]) == LAUNCHED
    assert pool.publish("A", pages[0], tokens[:4]) == refused(Reason.NOT_COMPUTED)
    assert pool.write_ends(pages[0], ok=False) == SETTLED
    assert pool.publish("A", pages[0], tokens[:4]) == refused(Reason.NOT_COMPUTED)
    # When A goes back to the queue
    pool.leaves("A", pages)
    # Then its pages are free, not cached, and B matches nothing
    assert pool.counts() == Counts(free=8)
    assert pool.admit("B", 2) == GRANTED
    assert pool.publish("B", pages[0], tokens[:4]) == refused(Reason.NOT_PRIVATE)
    assert pool.match("B", tokens) == []


def test_b32_a_half_filled_page_is_not_matched_and_a_claim_keeps_the_entry(pages_of: PagesOf) -> None:
    """ROCm/ATOM#902: hashes were registered at allocation, and a hit on a cached page wiped its entry.

    Wrong: B matches page 0 after 2 of its 4 tokens; D misses, because C's claim reset the page.
    Right: page 0 is matchable after the step that filled it; C and D share it. PAG-6 PAG-5 PAG-3
    """
    # Given A, whose first chunk of 2 tokens runs on page 0
    pool = pages_of(8)
    (page,) = pool.holding("A", 1)
    assert pool.write("A", page) == LAUNCHED
    assert pool.admit("B", 1) == GRANTED
    # When B looks its 4 tokens up
    # Then it matches nothing, during the step and after it, since the page is half filled
    assert pool.match("B", text(1)) == []
    assert pool.write_ends(page, full=False) == SETTLED
    assert pool.publish("A", page, text(1)) == refused(Reason.NOT_COMPUTED)
    assert pool.match("B", text(1)) == []
    # When the second chunk has filled it
    pool.computed("A", page)
    assert pool.publish("A", page, text(1)) == PUBLISHED
    # Then it is matchable, and stays so when A is done
    pool.leaves("A", [page])
    assert pool.state(page) == [CACHED]
    # When C claims it, and D looks it up at once
    assert [pool.admit(name, 1) for name in ("C", "D")] == [GRANTED] * 2
    assert pool.match("C", text(1)) == [page]
    assert pool.match("D", text(1)) == [page]
    # Then both share it, at the price of one page
    assert pool.holders(page) == {"C", "D"}
    assert pool.counts() == Counts(free=7, shared=1, promised=2)
    # And it is cached again after both
    assert [pool.drop(name, page) for name in ("C", "D")] == [DROPPED] * 2
    assert pool.state(page) == [CACHED]


def test_b33_a_hit_is_pinned_at_the_lookup(pages_of: PagesOf) -> None:
    """LMCache/LMCache#1835: lookup and load were two steps, and a load shorter than announced was not told.

    Wrong: A treats 8 tokens as present, and computes from token 8 on over 4 that are gone.
    Right: the match is pinned, so its pages cannot go. PAG-9 PAG-8
    """
    # Given a pool of 6 pages, of which 2 are cached; A's prompt of 16 tokens begins with them
    pool = pages_of(6)
    cached = pool.cached(text(2))
    assert pool.admit("A", 4) == GRANTED
    # When A's lookup matches 8 tokens
    assert pool.match("A", text(4)) == cached
    # Then it is charged for 2 more pages, and the matched ones cannot be evicted
    assert pool.counts() == Counts(free=4, shared=2, promised=2)
    assert [pool.evict(page) for page in reversed(cached)] == [refused(Reason.IN_USE)] * 2
    # And the load reads both
    assert [pool.read("A", page) for page in cached] == [LAUNCHED] * 2
    assert len(pool.draw("A", 2)) == 2


def test_b33_a_hit_that_was_not_pinned_is_checked_again(pages_of: PagesOf) -> None:
    """LMCache/LMCache#1835, the other way: the pages went between the lookup and the use. PAG-9 GRO-2

    Right: the use finds 4 of 8 tokens, and A extends by a page before its step.
    """
    # Given 6 pages; E holds the 2 that begin A's prompt of 16 tokens, so that A is promised the 2 others only
    pool = pages_of(6)
    known = pool.cached(text(2))
    assert pool.admit("E", 2) == GRANTED
    assert pool.match("E", text(2)) == known
    assert pool.admit("A", 2) == GRANTED
    # When E lets go of the second, and it is evicted
    assert pool.drop("E", known[1]) == DROPPED
    assert pool.evict(known[1]) == RELEASED
    # Then A matches 4 tokens only
    assert pool.match("A", text(4)) == known[:1]
    assert pool.answer_to_claim("A", known[1], text(2)) == MISS
    # And its promise is a page too small, so nothing is launched on a third
    assert len(pool.draw("A", 2)) == 2
    spare = pool.snapshot().pages.index(next(page for page in pool.snapshot().pages if page.state is FREE))
    assert pool.allocate("A", spare) == refused(Reason.NO_PROMISE)
    assert pool.write("A", spare) == refused(Reason.NOT_HOLDER)
    # When it extends by one
    assert pool.grow("A", 1) == EXTENDED
    # Then it has all 4
    assert pool.allocate("A", spare) == GRANTED
    assert pool.counts() == Counts(free=2, private=3, shared=1)


def test_b34_a_full_hit_computes_its_last_token_in_a_page_of_its_own(pages_of: PagesOf) -> None:
    """vllm-project/vllm#11186, vllm-project/vllm#17999: a fully cached prompt left nothing to compute.

    Wrong: no step is possible, or A writes token 7 in a page that E reads.
    Right: shared pages are never written; the last page is computed again in a fresh one, which admission counts.
    PAG-7 PAG-5 PAG-8
    """
    # Given a prompt of 8 tokens whose 2 pages E shares, and one other page
    pool = pages_of(3)
    pages = pool.published("E", text(2))
    # When A is admitted for the one new page that it needs
    assert pool.admit("A", 1) == GRANTED
    assert pool.match("A", text(1)) == pages[:1]
    # Then nothing is left for others
    assert pool.admit("B", 1) == refused(Reason.POOL_CAPACITY)
    # And A writes into no shared page, its own match included
    assert pool.write("A", pages[0]) == refused(Reason.READ_ONLY)
    assert pool.write("A", pages[1]) == refused(Reason.NOT_HOLDER)
    # When it computes token 7 in a page of its own
    (own,) = pool.draw("A", 1)
    assert [pool.read("A", pages[0]), pool.write("A", own)] == [LAUNCHED] * 2
    assert [pool.read_ends(pages[0]), pool.write_ends(own)] == [SETTLED] * 2
    # Then the chain of keys is whole: E's page stays the published one, A's stays private
    assert pool.publish("A", own, text(2)[4:], pages[0]) == refused(Reason.DUPLICATE)
    assert pool.state(*pages, own) == [SHARED, SHARED, PRIVATE]


def test_b34_the_reference_matches_less_than_the_prompt() -> None:
    """vllm-project/vllm#11186, vllm-project/vllm#17999, in one call: match at most prompt - 1, in whole pages. PAG-7"""
    # Given a prompt of 8 tokens whose 2 pages are cached
    pool = ReferencePages(4, 4, weak=False)
    pages = pool.cached(text(2))
    # When A acquires it with 1 token of output
    # Then 4 tokens are cached; the second page is fresh, a third is promised
    assert pool.pool.lookup(pool.scope, text(2)) == 4
    acquired = pool.pool.acquire("A", pool.scope, text(2), 9)
    assert pool.pool.pages_of("A")[0] == pages[0]
    assert pool.pool.pages_of("A")[1] not in pages
    assert (getattr(acquired, "cached_tokens", None), getattr(acquired, "promised", None)) == (4, 1)
    assert pool.counts() == Counts(free=1, private=1, shared=1, cached=1, promised=1)
    # And a prompt of 9 tokens matches both pages
    assert pool.pool.lookup(pool.scope, text(3)[:9]) == 8


def test_b37_leaves_are_evicted_first_and_a_match_stops_at_the_first_hole(pages_of: PagesOf) -> None:
    """NVIDIA/Megatron-LM#5822, llm-d/llm-d-inference-sim#704, llm-d/llm-d-inference-sim#705: a parent went first.

    Wrong: page 1 goes; 2 and 3 stay and can never match; a lookup that skips the hole tells of 2 pages.
    Right: page 3 goes first; no page is cached without the one before it; a match stops at the hole. PAG-8
    """
    # Given a pool of 3 pages, all cached: the chain 1-2-3, of equal age
    pool = pages_of(3)
    first, second, third = pool.cached(text(3))
    # When a page is needed
    # Then only the leaf can go
    assert [pool.evict(page) for page in (first, second)] == [refused(Reason.HAS_CHILDREN)] * 2
    assert pool.evict(third) == RELEASED
    # And B gets it
    assert pool.holding("B", 1) == [third]
    # And C matches the 2 pages before it
    assert pool.admit("C", 2) == GRANTED
    assert pool.match("C", text(3)) == [first, second]
    pool.leaves("C", [first, second])
    # And a page after a hole cannot be published
    pool.computed("B", third)
    assert pool.evict(second) == RELEASED
    assert pool.publish("B", third, text(3)[8:], second) == refused(Reason.PARENT_UNPUBLISHED)
    # When page 1 is gone too
    assert pool.evict(first) == RELEASED
    # Then D matches nothing
    assert pool.admit("D", 2) == GRANTED
    assert pool.match("D", text(3)) == []


def test_b37_the_reference_evicts_the_leaf_of_equally_old_pages() -> None:
    """NVIDIA/Megatron-LM#5822, where the pool chooses: the leaf goes, however the list is ordered. PAG-8"""
    # Given the chain 1-2-3, cached, and no free page
    pool = ReferencePages(3, 4, weak=False)
    first, second, third = pool.cached(text(3))
    # When B draws one page after the other
    # Then it gets 3, 2 and 1, in that order
    assert pool.admit("B", 3) == GRANTED
    assert [pool.pool.allocate("B").page for _ in range(3)] == [third, second, first]
    assert pool.counts() == Counts(private=3)


def test_b39_eviction_clears_index_and_tag_together(pages_of: PagesOf) -> None:
    """ovg-project/kvcached#362 (same class: kekzl/imp#1301): an evicted page kept its tag.

    Wrong: a path that walks tags publishes p1 again under K, and C hits B's content.
    Right: eviction clears both; a page without tag can be published under its new content alone. PAG-8 SCO-2
    """
    # Given a pool of 2 pages; p1 is cached under K; C is admitted in the same scope
    pool = pages_of(2)
    (p1,) = pool.cached(text(1))
    assert pool.admit("C", 1) == GRANTED
    # When p1 is evicted
    assert pool.evict(p1) == RELEASED
    # Then it carries no tag
    assert pool.page(p1).tokens == ()
    assert pool.page(p1).scope is None
    # When B gets p1, and before B has computed it something publishes it under K again
    assert pool.admit("B", 1) == GRANTED
    assert pool.allocate("B", p1) == GRANTED
    assert pool.publish("B", p1, text(1)) == refused(Reason.NOT_COMPUTED)
    assert pool.publish("C", p1, text(1)) == refused(Reason.NOT_HOLDER)
    # And B writes other content and publishes it
    pool.computed("B", p1)
    assert pool.publish("B", p1, text(1, first=2)) == PUBLISHED
    # Then it cannot be published under K as well
    assert pool.publish("B", p1, text(1)) == refused(Reason.NOT_PRIVATE)
    # And C matches nothing under K, and B's page under its own tokens
    assert pool.match("C", text(1)) == []
    assert pool.match("C", text(1, first=2)) == [p1]
    # And the place K is not taken: another page can have it
    (other,) = pool.draw("C", 1)
    pool.computed("C", other)
    assert pool.publish("C", other, text(1)) == PUBLISHED


@pytest.mark.parametrize("early", [True, False], ids=["published-early", "published-at-the-end"])
def test_b104_a_page_is_published_once_and_counted_once(pages_of: PagesOf, early: bool) -> None:
    """sgl-project/sglang#35270, sgl-project/sglang#35470: provisional tokens were published, and then the final ones.

    Wrong: the page counts as evictable twice, 5 of 4, and is freed twice later.
    Right: only final tokens are published; a page has one entry; the states add up to the pool. PAG-6 PAG-8 PAG-2
    """
    # Given a pool of 4 pages; A's last page p3 holds provisional tokens v1
    pool = pages_of(4)
    v1, v2 = text(1, first=2), text(1, first=3)
    first, second, last = pool.holding("A", 3)
    assert pool.write("A", last) == LAUNCHED
    # When v1 is published before its step has filled the page
    # Then it is refused
    if early:
        assert pool.publish("A", last, v1) == refused(Reason.NOT_COMPUTED)
    assert pool.write_ends(last, full=False) == SETTLED
    if early:
        assert pool.publish("A", last, v1) == refused(Reason.NOT_COMPUTED)
    # When it is rewritten with v2, which are final, and published
    pool.computed("A", last)
    assert pool.publish("A", last, v2) == PUBLISHED
    # Then a second publication is none, and one of other tokens is refused, and so is a rewrite
    assert pool.publish("A", last, v2) == RECORDED
    assert pool.publish("A", last, v1) == refused(Reason.NOT_PRIVATE)
    assert pool.write("A", last) == refused(Reason.READ_ONLY)
    # When A is done
    pool.leaves("A", [first, second, last])
    # Then 3 are free and one is cached, which is 4
    assert pool.counts() == Counts(free=3, cached=1)
    # And it is matched under v2 alone
    assert pool.admit("B", 1) == GRANTED
    assert pool.match("B", v1) == []
    assert pool.match("B", v2) == [last]
    pool.leaves("B", [last])
    # And it is evicted once
    assert pool.evict(last) == RELEASED
    assert pool.evict(last) == refused(Reason.NOT_CACHED)
    assert pool.state(last) == [FREE]
    assert pool.counts() == Counts(free=4)
