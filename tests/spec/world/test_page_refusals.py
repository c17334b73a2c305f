"""Which reason a page's event is refused for where several apply, and the answers that are hard to come by."""

from __future__ import annotations

from kvescrow.spec.vocabulary import Decision, PageState, PrefixScope, Reason
from kvescrow.spec.world.pages import PageWorld
from tests.field_reports.replies import (
    DROPPED,
    GRANTED,
    LAUNCHED,
    MISS,
    NOTED,
    PUBLISHED,
    RECORDED,
    SETTLED,
    Answer,
    refused,
)
from tests.spec.world.conftest import PageWorldOf, answer

SCOPE = PrefixScope("tenant")
H, G = "h", "g"
FIRST, SECOND = (1, 2), (3, 4)


def computed(world: PageWorld, page: int, holder: str = H) -> None:
    """Draw `page` and fill it."""
    assert answer(world.allocate(holder, page)) == GRANTED
    assert answer(world.touch(holder, page, write=True)) == LAUNCHED
    assert answer(world.settle(page, write=True, ok=True, filled=True)) == SETTLED


def sealed(world: PageWorld, page: int, tokens: tuple[int, ...], parent: int | None, holder: str = H) -> None:
    """Draw `page`, fill it and publish it."""
    computed(world, page, holder)
    assert answer(world.seal(holder, page, tokens, parent)) == PUBLISHED


def admitted(world: PageWorld, *holders: str, units: int = 2) -> PageWorld:
    """Promise each holder some pages of one scope."""
    for holder in holders:
        assert answer(world.admit(holder, SCOPE, units)) == GRANTED
    return world


def test_a_stranger_is_told_so_also_under_the_published_chain(page_world_of: PageWorldOf) -> None:
    """PAG-3: what is recorded is told to its holders alone."""
    world = admitted(page_world_of(5, None), H, G)
    sealed(world, 1, FIRST, None)
    assert answer(world.seal(G, 1, FIRST, None)) == refused(Reason.NOT_HOLDER)
    assert answer(world.seal(H, 1, FIRST, None)) == RECORDED


def test_computing_comes_before_the_page_before_it(page_world_of: PageWorldOf) -> None:
    """PAG-6 PAG-8: an unfinished page is refused as such; then the page before must be published, and held."""
    world = admitted(page_world_of(5, None), H, units=3)
    assert answer(world.allocate(H, 1)) == GRANTED
    computed(world, 2)
    assert answer(world.seal(H, 1, SECOND, 2)) == refused(Reason.NOT_COMPUTED)
    assert answer(world.seal(H, 2, SECOND, 1)) == refused(Reason.PARENT_UNPUBLISHED)


def test_no_page_follows_one_that_may_be_evicted(page_world_of: PageWorldOf) -> None:
    """PAG-8 PAG-1: its holder has dropped the page before; that is told before a duplicate is."""
    world = admitted(page_world_of(6, None), H, G)
    sealed(world, 1, FIRST, None)
    sealed(world, 2, SECOND, 1)
    computed(world, 3, G)
    assert answer(world.drop(H, 2)) == DROPPED
    assert answer(world.drop(H, 1)) == DROPPED
    assert world.pages[1]["state"] is PageState.CACHED
    assert answer(world.seal(G, 3, SECOND, 1)) == refused(Reason.PARENT_NOT_HELD)
    assert answer(world.share(G, 1, FIRST, None)) == GRANTED
    assert answer(world.seal(G, 3, SECOND, 1)) == refused(Reason.DUPLICATE)


def test_a_chain_is_claimed_from_its_front(page_world_of: PageWorldOf) -> None:
    """PAG-9 PAG-1: a unit first, then the page before, then the page."""
    world = admitted(page_world_of(4, None), H)
    sealed(world, 1, FIRST, None)
    sealed(world, 2, SECOND, 1)
    assert answer(world.drop(H, 2)) == DROPPED
    assert answer(world.drop(H, 1)) == DROPPED
    admitted(world, G, units=0)
    assert answer(world.share(G, 2, SECOND, 1)) == refused(Reason.NO_PROMISE)
    assert answer(world.grow(G, 2)).decision is Decision.EXTENDED
    assert answer(world.share(G, 2, SECOND, 1)) == refused(Reason.PARENT_NOT_HELD)
    assert answer(world.share(G, 2, FIRST, 1)) == MISS
    assert answer(world.share(G, 1, FIRST, None)) == GRANTED
    assert answer(world.share(G, 2, SECOND, 1)) == GRANTED


def test_a_scope_publishes_no_more_than_its_account_holds(page_world_of: PageWorldOf) -> None:
    """SCO-3: the next page stays private, with its own reason."""
    world = admitted(page_world_of(5, 1), H)
    sealed(world, 1, FIRST, None)
    computed(world, 2)
    assert answer(world.seal(H, 2, SECOND, 1)) == refused(Reason.SCOPE_CAPACITY)
    assert world.pages[2]["state"] is PageState.PRIVATE


def test_a_draining_page_waits_for_its_step_and_then_for_what_follows_it(page_world_of: PageWorldOf) -> None:
    """PAG-4 PAG-8: each cause is told, the step first."""
    world = admitted(page_world_of(5, None), H, G)
    sealed(world, 1, FIRST, None)
    sealed(world, 2, SECOND, 1)
    assert answer(world.share(G, 1, FIRST, None)) == GRANTED
    assert answer(world.share(G, 2, SECOND, 1)) == GRANTED
    assert answer(world.touch(H, 1, write=False)) == LAUNCHED
    for holder in (H, G):
        assert answer(world.drop(holder, 1)) == DROPPED
    assert answer(world.park(1)) == refused(Reason.IN_FLIGHT)
    assert answer(world.settle(1, write=False, ok=True, filled=False)) == SETTLED
    assert answer(world.park(1)) == refused(Reason.IN_USE)
    for holder in (H, G):
        assert answer(world.drop(holder, 2)) == DROPPED
    assert answer(world.park(1)) == SETTLED
    assert world.pages[1]["state"] is PageState.CACHED


def test_a_page_that_was_unpublished_while_it_waited_is_free(page_world_of: PageWorldOf) -> None:
    """SCO-5 PAG-4: nothing follows it any more, and nobody may match it again."""
    world = admitted(page_world_of(5, None), H, G)
    sealed(world, 1, FIRST, None)
    sealed(world, 2, SECOND, 1)
    assert answer(world.drop(H, 1)) == DROPPED
    assert world.pages[1]["state"] is PageState.DRAINING
    for page in (0, 2, 1):
        assert answer(world.retire_page(page, SCOPE)) == NOTED
    assert answer(world.park(1)) == Answer(Decision.SETTLED)
    assert world.pages[1]["state"] is PageState.FREE
