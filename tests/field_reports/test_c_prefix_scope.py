"""Family c, first part: pages that are reused by a request of another scope (SCO)."""

from __future__ import annotations

from attrs import evolve

from kvescrow.spec.vocabulary import PageState, PrefixScope, Reason
from tests.field_reports.conftest import PagesOf
from tests.field_reports.pages import PAGE_LENGTH, SINK, Counts, Pages, text
from tests.field_reports.replies import (
    DROPPED,
    EXTENDED,
    GRANTED,
    MISS,
    NOTED,
    PUBLISHED,
    RECORDED,
    RELEASED,
    refused,
)

T = text(2)
"""A prompt of 8 tokens, 2 pages."""
BASE = PrefixScope("org_1", page_length=PAGE_LENGTH)


def matched(pool: Pages, holder: str, scope: PrefixScope, tokens: list[int]) -> list[int]:
    """Admit `holder` in `scope` for `tokens`, and return the pages that its lookup claims."""
    assert pool.admit(holder, len(tokens) // PAGE_LENGTH, scope) == GRANTED
    return pool.match(holder, tokens)


def test_b25_adapters_share_no_pages(pages_of: PagesOf) -> None:
    """vllm-project/vllm#3264: the page key was built from tokens only, so two adapters shared pages.

    Wrong: B with adapter y, and C with none, match 8 tokens that adapter x computed.
    Right: both match nothing; "no adapter" is a scope of its own. SCO-1 SCO-4
    """
    # Given A, with adapter x, published the 2 pages of T
    pool = pages_of(8)
    with_x = evolve(BASE, adapter="x")
    pages = pool.published("A", T, with_x)
    # When B looks T up with adapter y, and C without one
    # Then both match nothing
    assert matched(pool, "B", evolve(BASE, adapter="y"), T) == []
    assert matched(pool, "C", BASE, T) == []
    # And x itself matches both pages
    assert matched(pool, "D", with_x, T) == pages


def test_b26_a_reloaded_adapter_is_another_scope(pages_of: PagesOf) -> None:
    """vllm-project/vllm#42125, vllm-project/vllm#30931, vllm-project/vllm#42495: an adapter reloaded under its name.

    Wrong: B matches what version 1 computed; a page that A2 finishes under version 1 is matchable for version 2.
    Right: the load generation is part of the scope; A2's page is not published at all. SCO-1 SCO-5
    """
    # Given A and A2 run with version 1 of adapter t, and A published the 2 pages of T
    pool = pages_of(8)
    first = evolve(BASE, adapter="t", adapter_generation=1)
    second = evolve(first, adapter_generation=2)
    pages = pool.published("A", T, first)
    (late,) = pool.holding("A2", 1, first)
    # When version 2 is loaded in its place: version 1 is retired, leaves first
    assert pool.retire(first, pages[1]) == refused(Reason.LIVE)
    assert pool.retire(first) == NOTED
    # Then a late request of version 1 matches nothing, even while its pages are in the index
    assert matched(pool, "B1", first, T) == []
    assert [pool.retire(first, page) for page in reversed(pages)] == [NOTED] * 2
    # And afterwards, neither does B of version 2
    assert matched(pool, "B", second, T) == []
    assert pool.match("B1", T) == []
    # When A2, which still runs on version 1, fills its page and publishes it
    pool.computed("A2", late)
    # Then it is refused, and nobody matches it
    assert pool.publish("A2", late, text(1, first=2)) == refused(Reason.RETIRED_SCOPE)
    assert pool.match("B", text(1, first=2)) == []
    assert pool.match("B1", text(1, first=2)) == []
    # And A and A2 keep their pages until they are done; then these are free at once
    assert pool.holders(pages[0]) == {"A"}
    pool.leaves("A", pages)
    pool.leaves("A2", [late])
    assert pool.counts() == Counts(free=8, promised=4)


def test_b28_scope_fields_are_compared_one_by_one(pages_of: PagesOf) -> None:
    """tinfoilsh/confidential-model-router#386, sgl-project/sglang#25351: fields joined without lengths.

    Wrong: tenant "org_1" with secret "2345" and tenant "org_12345" with none give the same bytes, and B matches 8.
    Right: the fields are compared one by one; B matches nothing. SCO-1 SCO-2
    """
    # Given A of tenant org_1, with the salt 2345, published T
    pool = pages_of(10)
    pages = pool.published("A", T, evolve(BASE, tenant="org_1", salt="2345"))
    # When B of tenant org_12345, without salt, looks T up
    # Then it matches nothing, and so does every other way to cut the same letters
    assert matched(pool, "B", evolve(BASE, tenant="org_12345", salt=""), T) == []
    assert matched(pool, "C", evolve(BASE, tenant="org_123", salt="45"), T) == []
    assert matched(pool, "D", evolve(BASE, tenant="org_1", model="2345"), T) == []
    # And A's own scope matches
    assert matched(pool, "E", evolve(BASE, tenant="org_1", salt="2345"), T) == pages


def test_b29_another_image_behind_the_same_tokens_is_another_scope(pages_of: PagesOf) -> None:
    """sgl-project/sglang-omni#260 (LMCache/LMCache#690, ROCm/ATOM#1358): every image had one placeholder token.

    Wrong: B, with the same text and another image, matches 12 tokens, and is answered from A's image.
    Right: the digest of the media is part of the scope: B matches nothing that depends on it, C matches all. SCO-1
    """
    # Given A, with image d1, published the 3 pages of its prompt
    pool = pages_of(12)
    prompt = text(3)
    pages = pool.published("A", prompt, evolve(BASE, media=("d1",)))
    # When B looks the same tokens up with image d2, D without one, E with both, and C with d1
    # Then only C matches, and it matches all 3
    assert matched(pool, "B", evolve(BASE, media=("d2",)), prompt) == []
    assert matched(pool, "D", BASE, prompt) == []
    assert matched(pool, "E", evolve(BASE, media=("d1", "d2")), prompt) == []
    assert pool.counts() == Counts(free=9, shared=3, promised=9)
    for name in ("B", "D", "E"):
        assert pool.close(name) == RELEASED
    assert matched(pool, "C", evolve(BASE, media=("d1",)), prompt) == pages


def test_b30_equal_hashes_are_not_equal_pages(pages_of: PagesOf) -> None:
    """vllm-project/vllm#12621, vllm-project/vllm#15297, openvinotoolkit/openvino.genai#3722: a hash was the identity.

    Wrong: with a colliding hash, B's other tokens and C's other scope hit A's page.
    Right: a hit needs equal scope, equal place and equal tokens; a collision is a miss. SCO-2 SCO-1 SCO-4
    """
    # Given a chain digest that collides always, and A, which published p1
    pool = pages_of(8, weak=True)
    (p1,) = pool.published("A", text(1), BASE)
    # When B looks other tokens up in the same scope, and C the same tokens in another
    # Then both match nothing
    assert matched(pool, "B", BASE, text(1, first=2)) == []
    assert matched(pool, "C", evolve(BASE, salt="s2"), text(1)) == []
    # And the same tokens at another place match nothing either
    assert matched(pool, "D", BASE, [*text(1, first=2), *text(1)]) == []
    assert pool.holders(p1) == {"A"}
    # And B cannot publish its own page over A's
    (own,) = pool.draw("B", 1)
    pool.computed("B", own)
    assert pool.publish("B", own, text(1, first=2)) == refused(Reason.DUPLICATE)
    # But equal tokens in A's scope match
    assert matched(pool, "E", BASE, text(1)) == [p1]


def test_b35_new_weights_reuse_nothing_of_the_old(pages_of: PagesOf) -> None:
    """InternLM/lmdeploy#4917, NVIDIA-NeMo/RL#4018, PrimeIntellect-ai/prime-rl#2266: KV outlived a weight update.

    Wrong: B matches 8 tokens of epoch 1; a page that E fills across the update is matchable in epoch 2.
    Right: the epoch is part of the scope; what E fills is published in no epoch. SCO-5 SCO-1
    """
    # Given epoch 1: A published T, E shares it and goes on to a third page
    pool = pages_of(8)
    epoch_1, epoch_2 = evolve(BASE, weight_epoch=1), evolve(BASE, weight_epoch=2)
    pages = pool.published("A", T, epoch_1)
    assert pool.admit("E", 1, epoch_1) == GRANTED
    assert pool.match("E", T) == pages
    (third,) = pool.draw("E", 1)
    # When the weights are replaced
    assert pool.retire(epoch_1) == NOTED
    # Then its pages leave the index, leaves first
    assert pool.retire(epoch_1, pages[0]) == refused(Reason.HAS_CHILDREN)
    assert [pool.retire(epoch_1, page) for page in reversed(pages)] == [NOTED] * 2
    assert pool.retire(epoch_1) == RECORDED
    # And B matches nothing in epoch 2
    assert matched(pool, "B", epoch_2, T) == []
    # When E fills its third page and publishes it
    pool.computed("E", third)
    # Then it is refused, and matched by no epoch
    assert pool.publish("E", third, text(1, first=3), pages[1]) == refused(Reason.RETIRED_SCOPE)
    assert matched(pool, "C", epoch_2, [*T, *text(1, first=3)]) == []
    # And nothing of epoch 1 stays behind when A and E are done
    pool.leaves("A", pages)
    pool.leaves("E", [*pages, third])
    assert pool.counts() == Counts(free=8, promised=5)


def test_b36_no_sleep_while_a_reset_has_failed(pages_of: PagesOf) -> None:
    """vllm-project/vllm#54581, vllm-project/vllm#17103, vllm-project/vllm#22726: sleep went on after a failed reset.

    Wrong: contents are dropped, the prefix index stays, and after the wake-up B matches zeros.
    Right: the reset is not over while a page is held; contents go together with their index entries. PAG-8 SCO-5
    """
    # Given a pool of 4 pages: A runs on p1, and p2 is cached under T
    pool = pages_of(4)
    (p1,) = pool.published("A", text(1, first=2))
    (p2,) = pool.cached(text(1))
    # When everything is to be reset
    assert pool.retire(pool.scope) == NOTED
    assert pool.retire(pool.scope, p2) == RELEASED
    assert pool.evict(p1) == refused(Reason.IN_USE)
    # Then it is not over: p1 is in use, so nobody may sleep, and A keeps it whole
    assert pool.counts() == Counts(free=3, shared=1)
    assert pool.holders(p1) == {"A"}
    # And from here on no lookup matches anything of before
    assert pool.retire(pool.scope, p1) == NOTED
    assert matched(pool, "B", pool.scope, text(1)) == []
    assert pool.match("B", text(1, first=2)) == []
    # When A ends
    pool.leaves("A", [p1])
    # Then everything is free and sleep is safe
    assert pool.state(p1, p2) == [PageState.FREE] * 2
    assert pool.counts() == Counts(free=4, promised=1)
    # And after the wake-up B matches nothing, in the new epoch as in the old
    assert pool.match("B", text(1)) == []
    assert matched(pool, "C", evolve(pool.scope, weight_epoch=1), text(1)) == []


def test_b38_every_tier_has_the_same_scope_record(pages_of: PagesOf) -> None:
    """sgl-project/sglang#37160, vllm-project/vllm#51640, llm-d/llm-d-router#1494: the salt was lost to tier 2.

    Wrong: isolated in GPU memory, t2 is given 8 tokens of t1's KV by the second tier.
    Right: one scope record for every tier and every copy; B matches nothing on both. SCO-6 SCO-4
    """
    # Given two tiers; A of tenant t1 with salt s1 published the 2 pages of T on both
    of_a = evolve(BASE, tenant="t1", salt="s1")
    of_b = evolve(BASE, tenant="t2", salt="s2")
    tiers = [pages_of(6), pages_of(6)]
    for tier in tiers:
        pages = tier.published("A", T, of_a)
        # When B of t2 with salt s2 looks the same T up, with any part of A's record in place of its own
        # Then it matches nothing
        assert matched(tier, "B", of_b, T) == []
        assert matched(tier, "C", evolve(of_b, salt="s1"), T) == []
        # And each of A's pages, asked for by number, gives the answer that a page without content gives
        assert [tier.answer_to_claim("B", page, T[: 4 * depth]) for depth, page in enumerate(pages, 1)] == [MISS] * 2
        assert tier.answer_to_claim("B", SINK, T[:4]) == MISS
        assert [tier.holders(page) for page in pages] == [{"A"}] * 2


def test_b26_b35_a_page_published_before_the_change_stays_in_its_scope(pages_of: PagesOf) -> None:
    """vllm-project/vllm#42125, InternLM/lmdeploy#4917, the other way: epochs side by side, nothing retired.

    Right: each request matches its own epoch; a page goes to the scope in which it was computed. SCO-5 SCO-1
    """
    # Given epoch 1 is still served while epoch 2 is, and E runs in epoch 1
    pool = pages_of(8)
    epoch_1, epoch_2 = evolve(BASE, weight_epoch=1), evolve(BASE, weight_epoch=2)
    old = pool.published("E", T, epoch_1)
    new = pool.published("F", T, epoch_2)
    # When E fills a third page after the update and publishes it
    assert pool.grow("E", 1) == EXTENDED
    (third,) = pool.draw("E", 1)
    pool.computed("E", third)
    assert pool.publish("E", third, text(1, first=3), old[1]) == PUBLISHED
    # Then epoch 1 alone matches it
    longer = [*T, *text(1, first=3)]
    assert matched(pool, "G", evolve(epoch_1), longer) == [*old, third]
    assert pool.drop("G", third) == DROPPED
    for page in reversed(old):
        assert pool.drop("G", page) == DROPPED
    assert pool.close("G") == RELEASED
    assert matched(pool, "H", epoch_2, longer) == new
