"""Each invariant that the pool checks can fail: one planted fault each."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kvescrow.reference.pages import BrokenInvariant, PagePool
from kvescrow.reference.pages.invariants import OF_A_PAGE, OF_AN_ACCOUNT, OF_THE_LISTS, OF_THE_POOL
from kvescrow.reference.pages.records import unlink
from kvescrow.spec.tables.page import PAGE
from kvescrow.spec.vocabulary import PrefixScope

SCOPE = PrefixScope("tenant")


def busy_pool() -> PagePool:
    """1 and 2 are cached, the second after the first; 3 is shared by two; 4 private; 5 drains; 6 and 7 free."""
    pool = PagePool(8, 1, scope_limit=3)
    pool.admit("a#1", SCOPE, 5)
    for page in range(1, 6):
        pool.allocate("a#1", page)
    for page, parent in ((1, None), (2, 1), (3, None)):
        pool.touch("a#1", page, True)
        pool.settle(page, True, True, True)
        pool.seal("a#1", page, [page], parent)
    pool.drop("a#1", 2)
    pool.drop("a#1", 1)
    pool.admit("b#1", SCOPE, 1)
    pool.share("b#1", 3, [3], None)
    pool.touch("a#1", 5, False)
    pool.drop("a#1", 5)
    pool.check()
    return pool


def set_page(page: int, **values: object) -> Callable[[PagePool], None]:
    def plant(pool: PagePool) -> None:
        for name, value in values.items():
            setattr(pool._pages[page], name, value)

    return plant


def add(name: str, amount: int) -> Callable[[PagePool], None]:
    return lambda pool: setattr(pool, name, getattr(pool, name) + amount)


def holder_promises(amount: int, total: int) -> Callable[[PagePool], None]:
    def plant(pool: PagePool) -> None:
        pool._holders["b#1"].promised = amount
        pool._promised = total

    return plant


def forget_claim(pool: PagePool) -> None:
    pool._pages[3].holders.pop()


def forget_holder(pool: PagePool) -> None:
    """The name is another admission's now, and the old one still holds a page."""
    old = pool._holders["b#1"]
    pool._holders["b#1"] = type(old)(old.name, old.account, old.promised, old.held)


def hold_for_another_scope(pool: PagePool) -> None:
    pool._holders["b#1"].account = pool._open_account(PrefixScope("other"))


def second_place(pool: PagePool) -> None:
    pool._pages[3].chain = pool._pages[1].chain


def follow_another_scope(pool: PagePool) -> None:
    root = pool._open_account(PrefixScope("other")).root
    pool._pages[2].parent, root.children, pool._pages[1].children = root, 1, 0


def follow_a_cached_page(pool: PagePool) -> None:
    """The shared page 3 follows page 1, which is cached; every count says so."""
    first, shared = pool._pages[1], pool._pages[3]
    root, shared.parent = shared.parent, first
    root.children, root.busy = root.children - 1, root.busy - 1
    first.children, first.busy = first.children + 1, first.busy + 1


def lose_tag(pool: PagePool) -> None:
    pool._pages[2].chain, pool._pages[2].parent, pool._pages[1].children = None, None, 0


def hold_twice(pool: PagePool) -> None:
    holder, page = pool._holders["b#1"], pool._pages[4]
    page.holders.add(holder)
    holder.held[page] = None


PLANTS: list[tuple[str, Callable[[PagePool], None]]] = [
    ("free_pages_are_counted", add("_free", 1)),
    ("private_pages_are_counted", add("_private", 1)),
    ("shared_pages_are_counted", add("_shared", -1)),
    ("cached_pages_are_counted", add("_cached", 1)),
    ("draining_pages_are_counted", add("_draining", -1)),
    ("every_page_is_in_one_account", add("usable", 1)),
    ("promised_is_the_sum", add("_promised", 1)),
    ("promises_can_be_kept", holder_promises(9, 9)),
    ("promises_are_not_negative", holder_promises(-1, -1)),
    ("holders_are_a_set", forget_claim),
    ("holders_are_admitted", forget_holder),
    ("one_page_for_each_place", second_place),
    ("the_sink_stays", set_page(0, number=9)),
    ("the_parent_counts_its_children", set_page(1, children=2)),
    ("the_parent_counts_its_busy_children", set_page(1, busy=1)),
    ("the_free_list_is_complete", lambda pool: unlink(pool._pages[6])),
    ("every_cached_leaf_is_listed", lambda pool: unlink(pool._pages[2])),
    ("every_idle_page_is_noted", set_page(5, readers=0)),
    ("holding_fits_the_state", hold_twice),
    ("tickets_fit_the_state", set_page(3, writers=1)),
    ("tickets_fit_the_state", set_page(1, readers=1)),
    ("tickets_fit_the_state", set_page(4, readers=-1)),
    ("matchable_pages_are_computed", set_page(3, spoiled=True)),
    ("matchable_pages_are_computed", set_page(2, computed=False)),
    ("what_follows_a_cached_page_is_cached", follow_a_cached_page),
    ("tag_and_index_agree", lambda pool: pool._accounts[SCOPE].index.pop(pool._pages[3].chain)),
    ("cached_pages_are_matchable", lose_tag),
    ("free_pages_are_blank", set_page(6, computed=True)),
    ("leaves_go_first", follow_another_scope),
    ("pages_in_use_have_a_scope", set_page(4, account=None)),
    ("holders_are_of_the_scope", hold_for_another_scope),
    ("scope_is_charged_once_a_page", lambda pool: setattr(pool._accounts[SCOPE], "shared", 2)),
    ("published_pages_are_counted", lambda pool: pool._accounts[SCOPE].index.update({b"x": pool._pages[3]})),
    ("publishing_respects_the_account", add("_scope_limit", -1)),
    ("an_account_counts_its_holders", lambda pool: setattr(pool._accounts[SCOPE], "holders", 1)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "plant"), PLANTS)
def test_a_planted_fault_is_named(name: str, plant: Callable[[PagePool], None]) -> None:
    pool = busy_pool()
    plant(pool)
    with pytest.raises(BrokenInvariant) as caught:
        pool.check()
    assert caught.value.name == name


def test_every_invariant_is_planted_and_every_law_of_the_table_is_checked() -> None:
    checked = {name for laws in (OF_THE_POOL, OF_THE_LISTS, OF_A_PAGE, OF_AN_ACCOUNT) for name in laws}
    assert checked == {name for name, _ in PLANTS}
    # The pool keeps no count of a holder's pages: it is the size of the set that `holders_are_a_set` checks.
    no_count = {"private_pages_are_the_holders", "shared_pages_are_the_holders"}
    assert {invariant.name for invariant in PAGE.invariants} - checked == no_count
