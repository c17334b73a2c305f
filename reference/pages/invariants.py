"""Every invariant of the page and promise tables, computed anew from the records of a pool.

The pool's own counters, sets and lists are what is checked, so nothing here reads one to check another.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from attrs import frozen

from kvescrow.reference.pages.records import Holder, Page, ScopeAccount
from kvescrow.reference.pages.replies import PoolCounts
from kvescrow.spec.vocabulary import PageState as P
from kvescrow.spec.vocabulary import PrefixScope


class BrokenInvariant(Exception):
    """The pool contradicts itself; `name` is the invariant's name in the tables."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


@frozen
class PoolState:
    """All records of a pool."""

    pages: Sequence[Page]
    """The sink first."""
    holders: Mapping[str, Holder]
    accounts: Mapping[PrefixScope, ScopeAccount]
    free_list: Sequence[Page]
    cached_list: Sequence[Page]
    idle: Sequence[Page]
    counts: PoolCounts
    scope_limit: int


def check(pool: PoolState) -> None:
    """Raise BrokenInvariant for the first invariant that does not hold."""
    for name, holds in {**OF_THE_POOL, **OF_THE_LISTS}.items():
        _require(name, holds(pool))
    for page in pool.pages:
        for name, holds_of in OF_A_PAGE.items():
            _require(name, holds_of(page))
    for account in pool.accounts.values():
        for name, holds_for in OF_AN_ACCOUNT.items():
            _require(name, holds_for(pool, account))


def _require(name: str, holds: bool) -> None:
    if not holds:
        raise BrokenInvariant(name)


def _number(pool: PoolState, state: P) -> int:
    return sum(page.state is state for page in pool.pages)


def _tickets(page: Page) -> int:
    return page.readers + page.writers


def _published(pool: PoolState) -> list[Page]:
    return [page for page in pool.pages if page.chain is not None]


def _places_are_unique(pool: PoolState) -> bool:
    places = Counter((id(page.account), page.chain) for page in _published(pool))
    return all(number == 1 for number in places.values())


def _claims_agree(pool: PoolState) -> bool:
    of_pages = {(holder.name, page.number) for page in pool.pages for holder in page.holders}
    of_holders = {(holder.name, page.number) for holder in pool.holders.values() for page in holder.held}
    return of_pages == of_holders


def _children_agree(pool: PoolState) -> bool:
    followers = Counter(id(page.parent) for page in _published(pool))
    parents = [*pool.pages, *(account.root for account in pool.accounts.values())]
    return all(page.children == followers[id(page)] for page in parents)


def _busy_children_agree(pool: PoolState) -> bool:
    followers = Counter(id(page.parent) for page in _published(pool) if page.state is not P.CACHED)
    parents = [*pool.pages, *(account.root for account in pool.accounts.values())]
    return all(page.busy == followers[id(page)] for page in parents)


_COUNTED: dict[P, Callable[[PoolCounts], int]] = {
    P.FREE: lambda counts: counts.free,
    P.PRIVATE: lambda counts: counts.private,
    P.SHARED: lambda counts: counts.shared,
    P.CACHED: lambda counts: counts.cached,
    P.DRAINING: lambda counts: counts.draining,
}


def _is_counted(state: P, read: Callable[[PoolCounts], int]) -> Callable[[PoolState], bool]:
    return lambda pool: read(pool.counts) == _number(pool, state)


OF_THE_POOL: dict[str, Callable[[PoolState], bool]] = {
    **{f"{state.value.lower()}_pages_are_counted": _is_counted(state, read) for state, read in _COUNTED.items()},
    "every_page_is_in_one_account": lambda pool: (
        pool.counts.total == sum(_number(pool, state) for state in _COUNTED) == len(pool.pages) - 1
    ),
    "promised_is_the_sum": lambda pool: (
        pool.counts.promised == sum(holder.promised for holder in pool.holders.values())
    ),
    "promises_can_be_kept": lambda pool: pool.counts.promised <= _number(pool, P.FREE) + _number(pool, P.CACHED),
    "promises_are_not_negative": lambda pool: all(holder.promised >= 0 for holder in pool.holders.values()),
    "holders_are_a_set": _claims_agree,
    "holders_are_admitted": lambda pool: all(
        pool.holders.get(holder.name) is holder for page in pool.pages for holder in page.holders
    ),
    "one_page_for_each_place": _places_are_unique,
    "the_sink_stays": lambda pool: [page.number for page in pool.pages if page.state is P.SINK] == [0],
    "the_parent_counts_its_children": _children_agree,
    "the_parent_counts_its_busy_children": _busy_children_agree,
}

OF_THE_LISTS: dict[str, Callable[[PoolState], bool]] = {
    "the_free_list_is_complete": lambda pool: (
        sorted(page.number for page in pool.free_list) == [page.number for page in pool.pages if page.state is P.FREE]
    ),
    "every_cached_leaf_is_listed": lambda pool: (
        all(page.state is P.CACHED for page in pool.cached_list)
        and len({page.number for page in pool.cached_list}) == len(pool.cached_list)
        and {page.number for page in pool.pages if page.state is P.CACHED and not page.children}
        <= {page.number for page in pool.cached_list}
    ),
    "every_idle_page_is_noted": lambda pool: (
        {page.number for page in pool.pages if page.state is P.DRAINING and not _tickets(page) and not page.busy}
        <= {page.number for page in pool.idle}
    ),
}


def _holding_fits(page: Page) -> bool:
    holders = len(page.holders)
    return holders == 1 if page.state is P.PRIVATE else (holders >= 1) == (page.state is P.SHARED)


def _tickets_fit(page: Page) -> bool:
    if page.readers < 0 or page.writers < 0:
        return False
    if page.state in {P.SINK, P.FREE, P.CACHED}:
        return _tickets(page) == 0
    return page.state is not P.SHARED or page.writers == 0


def _parent_is_published(page: Page) -> bool:
    if page.chain is None:
        return page.parent is None
    return page.parent is not None and page.parent.chain is not None and page.parent.account is page.account


OF_A_PAGE: dict[str, Callable[[Page], bool]] = {
    "holding_fits_the_state": _holding_fits,
    "tickets_fit_the_state": _tickets_fit,
    "matchable_pages_are_computed": lambda page: (
        page.chain is None
        or (page.state in {P.SHARED, P.CACHED, P.DRAINING} and page.computed and not page.spoiled and page.writers == 0)
    ),
    "what_follows_a_cached_page_is_cached": lambda page: (
        0 <= page.busy <= page.children and (page.state is not P.CACHED or page.busy == 0)
    ),
    "cached_pages_are_matchable": lambda page: page.state is not P.CACHED or page.chain is not None,
    "tag_and_index_agree": lambda page: (
        (page.chain is not None and page.account is not None and page.account.index.get(page.chain) is page)
        or (page.chain is None and not page.tokens and page.children == 0)
    ),
    "free_pages_are_blank": lambda page: page.state not in {P.SINK, P.FREE} or not (page.computed or page.spoiled),
    "leaves_go_first": _parent_is_published,
    "pages_in_use_have_a_scope": lambda page: (page.account is None) == (page.state in {P.SINK, P.FREE}),
    "holders_are_of_the_scope": lambda page: all(holder.account is page.account for holder in page.holders),
}

OF_AN_ACCOUNT: dict[str, Callable[[PoolState, ScopeAccount], bool]] = {
    "scope_is_charged_once_a_page": lambda pool, account: (
        account.shared == sum(page.state is P.SHARED and page.account is account for page in pool.pages)
    ),
    "published_pages_are_counted": lambda pool, account: (
        len(account.index) == sum(page.chain is not None and page.account is account for page in pool.pages)
    ),
    "publishing_respects_the_account": lambda pool, account: len(account.index) <= pool.scope_limit,
    "an_account_counts_its_holders": lambda pool, account: (
        account.holders == sum(holder.account is account for holder in pool.holders.values())
    ),
}
