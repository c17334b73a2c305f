"""Short runs of page events that belong together, as a worker sends them: each event is compared like any other.

Single events seldom line up by chance into two published pages, one after the other, that are given up in order.
"""

from collections.abc import Callable, Generator, Iterator, Sequence

from kvescrow.checks.fuzz.calls import Call
from kvescrow.spec.vocabulary import HolderState, PageState, PrefixScope
from kvescrow.spec.world.pages import PageWorld, Tokens

Story = Callable[[PageWorld, str, PrefixScope, tuple[Tokens, ...]], Iterator[Call]]
"""(world, holder, scope, contents of pages) -> calls; each is made before the next is asked for."""


def compute(world: PageWorld, holder: str, scope: PrefixScope, contents: tuple[Tokens, ...]) -> Iterator[Call]:
    """Admit, then draw, compute and publish a chain of pages."""
    yield from _admit(world, holder, scope, len(contents))
    parent: int | None = None
    for tokens in contents:
        page = yield from _draw_and_write(world, holder)
        if page is None:
            return
        yield Call("seal", (holder, page, tokens, parent))
        parent = page


def look_up(world: PageWorld, holder: str, scope: PrefixScope, contents: tuple[Tokens, ...]) -> Iterator[Call]:
    """Admit, then share what is published of a prefix, from its front."""
    yield from _admit(world, holder, scope, len(contents))
    parent: int | None = None
    for tokens in contents:
        found = [n for n, held in enumerate(world.tokens) if held == tokens and world.parents[n] == parent]
        if not found:
            return
        yield Call("share", (holder, found[0], tokens, parent))
        parent = found[0]


def look_up_from_the_end(
    world: PageWorld, holder: str, scope: PrefixScope, contents: tuple[Tokens, ...]
) -> Iterator[Call]:
    """Admit, then claim published pages from the end of a chain, as no lookup may."""
    yield from _admit(world, holder, scope, len(contents))
    published = [number for number, record in enumerate(world.pages) if record["matchable"]]
    for page in sorted(published, key=lambda page: -_depth(world, page)):
        yield Call("share", (holder, page, world.tokens[page], world.parents[page]))


def leave_from_the_end(world: PageWorld, holder: str, scope: PrefixScope, contents: object) -> Iterator[Call]:
    """Give up the last pages first, as a cache wants it, then close; then try to evict the first before the last."""
    pages = sorted(_held(world, holder), key=lambda page: -_depth(world, page))
    for page in pages:
        yield Call("drop", (holder, page))
    yield Call("close", (holder,))
    for page in pages[-1:]:
        yield Call("evict", (page,))


def publish_after_the_parent_left(
    world: PageWorld, holder: str, scope: PrefixScope, contents: tuple[Tokens, ...]
) -> Iterator[Call]:
    """Compute two pages, and publish the second one after the first was given up."""
    yield from _admit(world, holder, scope, 2)
    first = yield from _draw_and_write(world, holder)
    second = yield from _draw_and_write(world, holder)
    if first is not None and second is not None:
        yield Call("seal", (holder, first, contents[0], None))
        yield Call("drop", (holder, first))
        yield Call("seal", (holder, second, contents[-1], first))


def leave_from_the_front(world: PageWorld, holder: str, scope: PrefixScope, contents: object) -> Iterator[Call]:
    """Give up the first page first, under a step in flight; it waits for that step, then for the pages after it."""
    pages = sorted(_held(world, holder), key=lambda page: _depth(world, page))
    for page in pages[:1]:
        yield Call("touch", (holder, page), (("write", False),))
        yield Call("drop", (holder, page))
        yield Call("park", (page,))
        yield Call("settle", (page,), (("write", False), ("ok", True), ("filled", False)))
        yield Call("park", (page,))
    for page in pages[1:]:
        yield Call("drop", (holder, page))
    for page in reversed(pages):
        yield Call("park", (page,))


def retire(world: PageWorld, holder: str, scope: PrefixScope, contents: object) -> Iterator[Call]:
    """Close the scope, try to retire the first page of a chain, then retire and park all, the last in it first."""
    pages = [number for number, record in enumerate(world.pages) if record["scope"] == scope]
    pages.sort(key=lambda page: -_depth(world, page))
    yield Call("retire_page", (0, scope))
    for page in (*pages[-1:], *pages):
        yield Call("retire_page", (page, scope))
        yield Call("park", (page,))


STORIES: tuple[Story, ...] = (
    compute,
    leave_from_the_end,
    look_up,
    leave_from_the_front,
    publish_after_the_parent_left,
    leave_from_the_end,
    look_up_from_the_end,
    retire,
)


def pick_holder(world: PageWorld, story: Story, holders: Sequence[str]) -> str:
    """Return a holder for `story`: one with pages where they are to be given up, else one that is not admitted."""
    if story in _LEAVING:
        return max(holders, key=lambda holder: min(2, len(_held(world, holder))))
    live = {name for name, record in world.holders.items() if record["state"] is HolderState.ADMITTED}
    return next((holder for holder in holders if holder not in live), holders[0])


_LEAVING = (leave_from_the_end, leave_from_the_front)


def _admit(world: PageWorld, holder: str, scope: PrefixScope, units: int) -> Iterator[Call]:
    """Admit the holder, after its earlier end was forgotten."""
    if holder in world.holders:
        yield Call("forget", (holder,))
    yield Call("admit", (holder, scope, units))


def _draw_and_write(world: PageWorld, holder: str) -> Generator[Call, None, int | None]:
    """Draw a page, if need be after an eviction, and compute all of it. Return None where there is none."""
    page = _first(world, PageState.FREE)
    if page is None:
        page = next(
            (n for n, r in enumerate(world.pages) if r["state"] is PageState.CACHED and not r["children"]), None
        )
        if page is None:
            return None
        yield Call("evict", (page,))
    yield Call("allocate", (holder, page))
    yield Call("touch", (holder, page), (("write", True),))
    yield Call("settle", (page,), (("write", True), ("ok", True), ("filled", True)))
    return page


def _first(world: PageWorld, state: PageState) -> int | None:
    return next((number for number, record in enumerate(world.pages) if record["state"] is state), None)


def _held(world: PageWorld, holder: str) -> list[int]:
    return [number for number, holders in enumerate(world.holders_of) if holder in holders]


def _depth(world: PageWorld, page: int) -> int:
    depth, parent = 0, world.parents[page]
    while parent is not None:
        depth, parent = depth + 1, world.parents[parent]
    return depth
