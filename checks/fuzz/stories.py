"""Short runs of page events that belong together, as a worker sends them: each event is compared like any other.

Single events seldom line up by chance into two published pages, one after the other, that are given up in order.
"""

from collections.abc import Callable, Iterator

from kvescrow.checks.fuzz.calls import Call
from kvescrow.spec.vocabulary import PageState, PrefixScope
from kvescrow.spec.world.pages import PageWorld, Tokens

Story = Callable[[PageWorld, str, PrefixScope, tuple[Tokens, ...]], Iterator[Call]]
"""(world, holder, scope, contents of pages) -> calls; each is made before the next is asked for."""


def compute(world: PageWorld, holder: str, scope: PrefixScope, contents: tuple[Tokens, ...]) -> Iterator[Call]:
    """Admit, then draw, compute and publish a chain of pages."""
    yield Call("admit", (holder, scope, len(contents)))
    parent: int | None = None
    for tokens in contents:
        page = _first(world, PageState.FREE)
        if page is None:
            return
        yield Call("allocate", (holder, page))
        yield Call("touch", (holder, page), (("write", True),))
        yield Call("settle", (page,), (("write", True), ("ok", True), ("filled", True)))
        yield Call("seal", (holder, page, tokens, parent))
        parent = page


def look_up(world: PageWorld, holder: str, scope: PrefixScope, contents: tuple[Tokens, ...]) -> Iterator[Call]:
    """Admit, then share what is published of a prefix, from its front."""
    yield Call("admit", (holder, scope, len(contents)))
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
    yield Call("admit", (holder, scope, len(contents)))
    published = [number for number, record in enumerate(world.pages) if record["matchable"]]
    for page in sorted(published, key=lambda page: -_depth(world, page)):
        yield Call("share", (holder, page, world.tokens[page], world.parents[page]))


def leave_from_the_end(world: PageWorld, holder: str, scope: PrefixScope, contents: object) -> Iterator[Call]:
    """Give up the last pages first, as a cache wants it, then close."""
    for page in sorted(_held(world, holder), key=lambda page: -_depth(world, page)):
        yield Call("drop", (holder, page))
    yield Call("close", (holder,))


def leave_from_the_front(world: PageWorld, holder: str, scope: PrefixScope, contents: object) -> Iterator[Call]:
    """Give up the first pages first, with a step in flight on the first; then park what waited."""
    pages = sorted(_held(world, holder), key=lambda page: _depth(world, page))
    if pages:
        yield Call("touch", (holder, pages[0]), (("write", False),))
    for page in pages:
        yield Call("drop", (holder, page))
    for page in pages[:1]:
        yield Call("settle", (page,), (("write", False), ("ok", True), ("filled", False)))
    for page in reversed(pages):
        yield Call("park", (page,))


def retire(world: PageWorld, holder: str, scope: PrefixScope, contents: object) -> Iterator[Call]:
    """Close the scope, then retire and park its pages, the last in a chain first."""
    pages = [number for number, record in enumerate(world.pages) if record["scope"] == scope]
    yield Call("retire_page", (0, scope))
    for page in sorted(pages, key=lambda page: -_depth(world, page)):
        yield Call("retire_page", (page, scope))
        yield Call("park", (page,))


STORIES: tuple[Story, ...] = (
    compute,
    leave_from_the_end,
    look_up,
    leave_from_the_front,
    compute,
    leave_from_the_end,
    look_up_from_the_end,
    retire,
)


def _first(world: PageWorld, state: PageState) -> int | None:
    return next((number for number, record in enumerate(world.pages) if record["state"] is state), None)


def _held(world: PageWorld, holder: str) -> list[int]:
    return [number for number, holders in enumerate(world.holders_of) if holder in holders]


def _depth(world: PageWorld, page: int) -> int:
    depth, parent = 0, world.parents[page]
    while parent is not None:
        depth, parent = depth + 1, world.parents[parent]
    return depth
