"""A page pool of any subject, as vectors drive it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from attrs import frozen

from kvescrow.spec.vocabulary import PageSnapshot, PageState, PoolSnapshot, PrefixScope
from tests.field_reports.laws import broken_page_laws
from tests.field_reports.replies import (
    DROPPED,
    GRANTED,
    LAUNCHED,
    MISS,
    PUBLISHED,
    RECORDED,
    RELEASED,
    SETTLED,
    Answer,
)

TENANT = "t"
"""The tenant where a report names none."""
SINK = 0
"""The page that is set aside."""
PAGE_LENGTH = 4
"""Tokens a page, where a report names no other figure."""

Tokens = Sequence[int]


def text(pages: int, *, first: int = 1) -> list[int]:
    """Return tokens that fill `pages` pages; texts with different `first` have no token in common."""
    return [first * 100_000 + position for position in range(pages * PAGE_LENGTH)]


@frozen
class Counts:
    """Pages by state, the sink excluded, and promised units. A vector names what is not zero."""

    free: int = 0
    private: int = 0
    shared: int = 0
    cached: int = 0
    draining: int = 0
    promised: int = 0


class Pages(ABC):
    """A page pool of one subject. Page 0 is the sink; a pool of n pages in a report has n more."""

    length: int
    """Tokens a page."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.scope = PrefixScope(TENANT, page_length=length)
        self._scopes: dict[str, PrefixScope] = {}

    # --- what a subject provides ------------------------------------------------------------------------------------

    @abstractmethod
    def snapshot(self) -> PoolSnapshot:
        """The whole projected state."""

    @abstractmethod
    def broken(self) -> list[str]:
        """Each invariant that the subject itself finds broken."""

    @abstractmethod
    def _admit(self, holder: str, scope: PrefixScope, units: int) -> Answer: ...
    @abstractmethod
    def _grow(self, holder: str, units: int) -> Answer: ...
    @abstractmethod
    def _close(self, holder: str) -> Answer: ...
    @abstractmethod
    def _allocate(self, holder: str, page: int) -> Answer: ...
    @abstractmethod
    def _seal(self, holder: str, page: int, tokens: tuple[int, ...], parent: int | None) -> Answer: ...
    @abstractmethod
    def _share(self, holder: str, page: int, path: tuple[int, ...], tokens: tuple[int, ...]) -> Answer: ...
    @abstractmethod
    def _drop(self, holder: str, page: int) -> Answer: ...
    @abstractmethod
    def _evict(self, page: int) -> Answer: ...
    @abstractmethod
    def _touch(self, holder: str, page: int, write: bool) -> Answer: ...
    @abstractmethod
    def _settle(self, page: int, write: bool, ok: bool, filled: bool) -> Answer: ...
    @abstractmethod
    def _park(self, page: int) -> Answer: ...
    @abstractmethod
    def _retire(self, page: int, scope: PrefixScope) -> Answer: ...

    # --- events -----------------------------------------------------------------------------------------------------

    def admit(self, holder: str, units: int, scope: PrefixScope | None = None) -> Answer:
        """Ask for a promise of `units` pages."""
        chosen = scope or self.scope
        answer = self.step(lambda: self._admit(holder, chosen, units))
        if answer == GRANTED:
            self._scopes[holder] = chosen
        return answer

    def grow(self, holder: str, units: int) -> Answer:
        """Ask for `units` more."""
        return self.step(lambda: self._grow(holder, units))

    def close(self, holder: str) -> Answer:
        """Give back the units that were not drawn."""
        return self.step(lambda: self._close(holder))

    def allocate(self, holder: str, page: int) -> Answer:
        """Draw this very page."""
        return self.step(lambda: self._allocate(holder, page))

    def publish(self, holder: str, page: int, tokens: Tokens, after: int | None = None) -> Answer:
        """Make the page matchable: it holds `tokens` after the page `after`."""
        return self.step(lambda: self._seal(holder, page, tuple(tokens), after))

    def drop(self, holder: str, page: int) -> Answer:
        """Give up the holder's claim."""
        return self.step(lambda: self._drop(holder, page))

    def evict(self, page: int) -> Answer:
        """Take back the page's content."""
        return self.step(lambda: self._evict(page))

    def write(self, holder: str, page: int) -> Answer:
        """Launch a step or copy that writes the page."""
        return self.step(lambda: self._touch(holder, page, True))

    def read(self, holder: str, page: int) -> Answer:
        """Launch a step or copy that reads the page."""
        return self.step(lambda: self._touch(holder, page, False))

    def write_ends(self, page: int, *, ok: bool = True, full: bool = True) -> Answer:
        """End such a write; `full`: the last slot of the page was written."""
        return self.step(lambda: self._settle(page, True, ok, full))

    def read_ends(self, page: int, *, ok: bool = True) -> Answer:
        """End such a read."""
        return self.step(lambda: self._settle(page, False, ok, False))

    def retire(self, scope: PrefixScope, page: int = SINK) -> Answer:
        """Take `page` of `scope` out of the index; the sink stands for the scope itself and comes first."""
        return self.step(lambda: self._retire(page, scope))

    def match(self, holder: str, tokens: Tokens) -> list[int]:
        """Walk the published pages along `tokens` and claim each, as a lookup does; return the claimed pages.

        Every page of the pool is presented at every position, so an empty list says that none of them matches.
        The walk stops at the first position where none does. More than one match is an error.
        """
        claimed: list[int] = []
        whole = len(tokens) // self.length * self.length
        for end in range(self.length, whole + 1, self.length):
            found = [page for page in range(len(self.snapshot().pages)) if self.claim(holder, page, tokens[:end])]
            assert len(found) <= 1, f"pages {found} are published at one place"
            if not found:
                break
            claimed += found
        return claimed

    def claim(self, holder: str, page: int, tokens: Tokens) -> bool:
        """Return whether the page ends the prefix `tokens` for the holder, which then holds it."""
        answer = self.answer_to_claim(holder, page, tokens)
        assert answer in (GRANTED, RECORDED, MISS)
        return answer != MISS

    def answer_to_claim(self, holder: str, page: int, tokens: Tokens) -> Answer:
        """Return the answer to a lookup whose prefix `tokens` ends at the page."""
        path, last = tuple(tokens[: -self.length]), tuple(tokens[-self.length :])
        return self.step(lambda: self._share(holder, page, path, last))

    def step(self, act: Callable[[], Answer]) -> Answer:
        """Do one event and what the pool does by itself after it, and assert what holds of every event."""
        before = self.snapshot()
        answer = act()
        assert not answer.decision.changes_nothing or before == self.snapshot(), f"{answer} changed something"
        self._park_idle()
        assert (broken_page_laws(self.snapshot()), self.broken()) == ([], [])
        return answer

    def _park_idle(self) -> None:
        """Park what drains and has nothing to wait for any more, and so on up its chain."""
        pages = self.snapshot().pages
        draining = [number for number, page in enumerate(pages) if page.state is PageState.DRAINING]
        for _ in draining:
            if SETTLED not in [self._park(page) for page in draining]:
                break

    # --- what is seen -----------------------------------------------------------------------------------------------

    def page(self, number: int) -> PageSnapshot:
        """One page."""
        return self.snapshot().pages[number]

    def state(self, *numbers: int) -> list[PageState]:
        """The states of these pages."""
        pages = self.snapshot().pages
        return [pages[number].state for number in numbers]

    def holders(self, number: int) -> set[str]:
        """Who holds the page."""
        return set(self.page(number).holders)

    def counts(self) -> Counts:
        """Pages by state and promised units."""
        snapshot = self.snapshot()
        states = [page.state for page in snapshot.pages]
        by_name = {
            name: states.count(PageState[name.upper()]) for name in ("free", "private", "shared", "cached", "draining")
        }
        return Counts(**by_name, promised=sum(snapshot.promised.values()))

    # --- givens: steps that must succeed ----------------------------------------------------------------------------

    def draw(self, holder: str, pages: int) -> list[int]:
        """Draw that many of the free pages, as promised."""
        free = [number for number, page in enumerate(self.snapshot().pages) if page.state is PageState.FREE]
        chosen = free[:pages]
        assert len(chosen) == pages, f"{pages} pages drawn, {len(free)} free"
        for page in chosen:
            assert self.allocate(holder, page) == GRANTED
        return chosen

    def holding(self, holder: str, pages: int, scope: PrefixScope | None = None) -> list[int]:
        """Admit `holder` for `pages` pages and draw all of them."""
        assert self.admit(holder, pages, scope) == GRANTED
        return self.draw(holder, pages)

    def computed(self, holder: str, page: int) -> None:
        """Let a step of the holder fill the page, and end well."""
        assert self.write(holder, page) == LAUNCHED
        assert self.write_ends(page) == SETTLED

    def published(self, holder: str, tokens: Tokens, scope: PrefixScope | None = None) -> list[int]:
        """Admit `holder`, and let it compute and publish the pages of `tokens`, which it goes on to hold."""
        pages = self.holding(holder, len(tokens) // self.length, scope)
        above: int | None = None
        for number, page in enumerate(pages):
            self.computed(holder, page)
            piece = tokens[number * self.length : (number + 1) * self.length]
            assert self.publish(holder, page, piece, above) == PUBLISHED
            above = page
        return pages

    def cached(self, tokens: Tokens, scope: PrefixScope | None = None, by: str = "earlier") -> list[int]:
        """Let a request that has ended leave the pages of `tokens` behind: published, held by nobody."""
        pages = self.published(by, tokens, scope)
        self.leaves(by, pages)
        assert self.state(*pages) == [PageState.CACHED] * len(pages)
        return pages

    def leaves(self, holder: str, pages: Sequence[int]) -> None:
        """Let the holder drop `pages`, last first, and close."""
        for page in reversed(pages):
            assert self.drop(holder, page) == DROPPED
        assert self.close(holder) == RELEASED
