"""A page pool: pages with their holders, scopes and chains, moved by the page and promise tables.

What is left out in every instance here:

- Generations of pages: a count of grants that only grows and that no row reads.
- Tokens. There are two places in a chain: 1 is the first page of a prompt and 2 the page after it. Whether tokens are
  equal is the event's choice.
- More than one reader and one writer of a page at a time: the search stops there.
"""

from collections.abc import Iterator, Mapping

from attrs import frozen

from kvescrow.checks.explore.instance import BOTH, Instance, Known, Move, Observation, Place, integers, members
from kvescrow.spec.language.expressions import FALSE, Entity, Expression, all_of, any_of
from kvescrow.spec.tables.page import PAGE
from kvescrow.spec.tables.page.view import claim, holder, page, parent, pool, scope
from kvescrow.spec.tables.promise import PROMISE
from kvescrow.spec.vocabulary import HolderState, PageState

FIRST, SECOND = 1, 2
"""Places in a chain."""
SINK, NO_ONE, NO_SCOPE, ROOT = "sink", "no one", "no scope", "root"

_UP = Entity("parent", page.fields)
"""The page before another one, as a whole record."""
_IS_CACHED: Mapping[tuple[str, str], Known] = {("parent", "cached"): _UP.state == PageState.CACHED}
_IS_ROOT: Mapping[tuple[str, str], Known] = {("parent", "cached"): False}


@frozen
class Pool:
    """How large a pool is."""

    pages: int
    """Usable pages."""
    holders: tuple[int, ...]
    """The scope of each holder, from 1."""
    scope_limit: int
    """Most published pages of a scope."""
    chained: bool = True
    """Whether prompts have a second page."""

    @property
    def scopes(self) -> tuple[int, ...]:
        """Return the scopes."""
        return tuple(sorted(set(self.holders)))


def page_pool(name: str, size: Pool, note: str) -> Instance:
    """Return the pool of `size`."""
    moves = [*_promise_moves(size), *_page_moves(size), *_retirements(size)]
    return Instance(
        name=name,
        places=tuple(_places(size)),
        moves=tuple(moves),
        observed=tuple(_observations(size)),
        note=note,
    )


def page_name(number: int) -> str:
    """Return the place of a page."""
    return f"page {number}"


def holder_name(number: int) -> str:
    """Return the place of a holder."""
    return f"holder {number}"


def scope_name(number: int) -> str:
    """Return the place of a scope; 0 stands for none."""
    return f"scope {number}" if number else NO_SCOPE


def claim_name(of_page: int, of_holder: int) -> str:
    """Return the place that says whether a holder holds a page."""
    return f"claim of {of_holder} on page {of_page}"


def _places(size: Pool) -> Iterator[Place]:
    counted = integers(0, size.pages)
    usable = {name: counted for name in ("free", "private", "shared", "cached", "draining", "promised")}
    yield Place("pool", pool, usable, {"total": size.pages}, initial={"free": size.pages})
    for number in size.scopes:
        kept = {"live": BOTH, "shared": counted, "published": counted}
        yield Place(
            scope_name(number), scope, kept, {"identity": number, "limit": size.scope_limit}, initial={"live": True}
        )
    for number, of_scope in enumerate(size.holders):
        kept = {"state": members(HolderState), "promised": counted, "pages": counted, "shares": counted}
        yield Place(holder_name(number), holder, kept, {"scope": of_scope})
        for n in range(size.pages):
            yield Place(claim_name(n, number), claim, {"holds": BOTH})
    for number in range(size.pages):
        yield Place(
            page_name(number),
            page,
            _page_fields(size),
            initial={"state": PageState.FREE},
            cut=frozenset({"readers", "writers"}),
        )
    yield Place(SINK, page, {}, {"state": PageState.SINK, **_blank()})
    yield Place(NO_ONE, holder, {}, {"state": HolderState.ABSENT})
    yield Place("no claim", claim, {}, {"holds": False})
    yield Place(NO_SCOPE, scope, {}, {"live": True})
    yield Place(ROOT, parent, {}, {"matchable": True, "cached": False})


def _blank() -> dict[str, Known]:
    return {"computed": False, "spoiled": False, "matchable": False}


def _page_fields(size: Pool) -> dict[str, tuple[object, ...]]:
    following = integers(0, 1 if size.chained else 0)
    return {
        "state": tuple(state for state in PageState if state is not PageState.SINK),
        "holders": integers(0, len(size.holders)),
        "readers": integers(0, 1),
        "writers": integers(0, 1),
        "computed": BOTH,
        "spoiled": BOTH,
        "matchable": BOTH,
        "scope": (0, *size.scopes),
        "chain": integers(0, 2 if size.chained else 1),
        **({"children": following, "busy": following} if size.chained else {}),
    }


def _others(size: Pool, number: int) -> list[int]:
    return [n for n in range(size.pages) if n != number]


def _page(number: int) -> Entity:
    return Entity(page_name(number), page.fields)


@frozen(eq=False)
class _View:
    """A binding of the page table, and when it is the one."""

    binds: Mapping[str, str]
    given: Mapping[tuple[str, str], Known]
    where: Expression
    label: str


def _views(size: Pool, number: int, by: int | None) -> Iterator[_View]:
    """Yield the bindings of a page and a holder: the page's own scope, and the page before it in its chain."""
    who = {"holder": holder_name(by), "claim": claim_name(number, by)} if by is not None else _NOBODY
    of = f"page {number}" + (f" by holder {by}" if by is not None else "")
    for of_scope in (0, *size.scopes):
        binds = {"page": page_name(number), **who, "scope": scope_name(of_scope), "pool": "pool"}
        in_scope = page.scope == of_scope
        yield _View({**binds, "parent": ROOT}, {}, in_scope & (page.chain != SECOND), of)
        if of_scope and size.chained:
            for up in _others(size, number):
                before = all_of(page.chain == SECOND, _UP.chain == FIRST, _UP.scope == of_scope)
                yield _View({**binds, "parent": page_name(up)}, _IS_CACHED, in_scope & before, of)


_NOBODY = {"holder": NO_ONE, "claim": "no claim"}


def _move(view: _View, event: str, label: str, **parameters: Known) -> Move:
    name = f"{event}{label} {view.label}"
    return Move(name, PAGE, event, view.binds, parameters, view.given, view.where)


def _promise_moves(size: Pool) -> Iterator[Move]:
    given: dict[tuple[str, str], Known] = {("pool", "usable"): size.pages}
    for number in range(len(size.holders)):
        binds, of = {"holder": holder_name(number), "pool": "pool"}, f"of holder {number}"
        for units in range(1, size.pages + 1):
            yield Move(f"admit {units} {of}", PROMISE, "admit", binds, {"units": units}, given)
        yield Move(f"grow 1 {of}", PROMISE, "grow", binds, {"units": 1}, given)
        yield Move(f"close {of}", PROMISE, "close", binds, {}, given)
        yield Move(f"forget {of}", PROMISE, "forget", binds, {}, given)


def _page_moves(size: Pool) -> Iterator[Move]:
    for number in range(size.pages):
        for by, of_scope in enumerate(size.holders):
            yield from _seals(size, number, by, of_scope)
            yield _allocation(number, by, of_scope)
            for view in _views(size, number, by):
                yield _move(view, "drop", "")
                for write in (False, True):
                    yield _move(view, "touch", " to write" if write else " to read", write=write)
                for chain in (FIRST, SECOND) if size.chained else (FIRST,):
                    yield _move(view, "share", f" place {chain} of", chain=chain, tokens_equal=True)
                yield _move(view, "share", " a collision on", chain=FIRST, tokens_equal=False)
        for view in _views(size, number, None):
            yield _move(view, "evict", "")
            yield _move(view, "park", "")
            yield _move(view, "settle", " read of", write=False, ok=True, filled=False)
            for ok, filled, label in ((False, False, " failed"), (True, False, " partial"), (True, True, " full")):
                yield _move(view, "settle", f"{label} write of", write=True, ok=ok, filled=filled)


def _allocation(number: int, by: int, of_scope: int) -> Move:
    binds = {
        "page": page_name(number),
        "holder": holder_name(by),
        "claim": claim_name(number, by),
        "scope": scope_name(of_scope),
        "pool": "pool",
        "parent": ROOT,
    }
    return Move(f"allocate page {number} by holder {by}", PAGE, "allocate", binds)


def _seals(size: Pool, number: int, by: int, of_scope: int) -> Iterator[Move]:
    """Yield the ways to seal a page: as the first of a prompt, or after any other page that is first or unpublished."""
    who = {"page": page_name(number), "holder": holder_name(by), "claim": claim_name(number, by)}
    others = {page_name(n): page_name(n) for n in _others(size, number)}
    for own in (0, *size.scopes):
        binds = {**who, "scope": scope_name(own), "pool": "pool", **others}
        of, in_scope = f"page {number} by holder {by}", page.scope == own
        first = {("index", "occupied"): _occupied(size, number, of_scope, FIRST), **_IS_ROOT}
        root = {**binds, "parent": ROOT}
        yield Move(f"seal {of}", PAGE, "seal", root, {"chain": FIRST}, first, in_scope)
        if not size.chained:
            continue
        second = {("index", "occupied"): _occupied(size, number, of_scope, SECOND), **_IS_CACHED}
        for up in _others(size, number):
            fit = any_of(all_of(_UP.chain == FIRST, _UP.scope == of_scope), _UP.chain == 0)
            after = {**binds, "parent": page_name(up)}
            yield Move(f"seal after page {up} {of}", PAGE, "seal", after, {"chain": SECOND}, second, in_scope & fit)


def _occupied(size: Pool, number: int, of_scope: int, chain: int) -> Expression:
    there = [_page(n) for n in _others(size, number)]
    return any_of(*(all_of(p.matchable, p.scope == of_scope, p.chain == chain) for p in there)) if there else FALSE


def _retirements(size: Pool) -> Iterator[Move]:
    for of_scope in size.scopes:
        binds = {"page": SINK, **_NOBODY, "scope": scope_name(of_scope), "pool": "pool", "parent": ROOT}
        yield Move(f"retire scope {of_scope}", PAGE, "retire_scope", binds)
    for number in range(size.pages):
        for view in _views(size, number, None):
            yield _move(view, "retire_scope", " on")
    for event, parameters in _ON_SINK.items():
        binds = {"page": SINK, **_NOBODY, "scope": NO_SCOPE, "pool": "pool", "parent": ROOT}
        given: dict[tuple[str, str], Known] = {("index", "occupied"): False}
        yield Move(f"{event} the sink", PAGE, event, binds, parameters, given)


_ON_SINK: Mapping[str, Mapping[str, Known]] = {
    "allocate": {},
    "seal": {"chain": FIRST},
    "share": {"chain": FIRST, "tokens_equal": True},
    "drop": {},
    "evict": {},
    "touch": {"write": True},
    "settle": {"write": True, "ok": True, "filled": True},
    "park": {},
}


def _observations(size: Pool) -> Iterator[Observation]:
    unheld = {("index", "occupied"): False}
    pages = [page_name(n) for n in range(size.pages)]
    for number in range(size.pages):
        for by in range(len(size.holders)):
            for of_scope in size.scopes:
                binds = {
                    "page": page_name(number),
                    "claim": claim_name(number, by),
                    "holder": holder_name(by),
                    "scope": scope_name(of_scope),
                    "pool": "pool",
                    "parent": ROOT,
                }
                others = tuple(name for name in pages if name != page_name(number))
                yield Observation(PAGE, binds, unheld, others)
    sink = {"page": SINK, **_NOBODY, "scope": scope_name(1), "pool": "pool", "parent": ROOT}
    yield Observation(PAGE, sink, unheld, tuple(pages))
    for by in range(len(size.holders)):
        binds = {"holder": holder_name(by), "pool": "pool"}
        yield Observation(PROMISE, binds, {("pool", "usable"): size.pages})


def pages_of_two_scopes() -> Instance:
    """Two pages, and a holder in each of two scopes. Prompts have one page.

    Each scope may publish one page.
    """
    size = Pool(pages=2, holders=(1, 2), scope_limit=1, chained=False)
    return page_pool("pages-scopes", size, pages_of_two_scopes.__doc__ or "")


def pages_in_chains_of_two_scopes() -> Instance:
    """Two pages, and a holder in each of two scopes, which may publish both. A prompt has one page or two."""
    size = Pool(pages=2, holders=(1, 2), scope_limit=2)
    return page_pool("pages-both", size, pages_in_chains_of_two_scopes.__doc__ or "")


def pages_in_chains() -> Instance:
    """Two pages and two holders of one scope. A prompt has one page or two."""
    size = Pool(pages=2, holders=(1, 1), scope_limit=2)
    return page_pool("pages-chains", size, pages_in_chains.__doc__ or "")


def pages_of_a_full_scope() -> Instance:
    """Two pages and one holder, whose scope may publish one page; a prompt has two."""
    size = Pool(pages=2, holders=(1,), scope_limit=1)
    return page_pool("pages-limit", size, pages_of_a_full_scope.__doc__ or "")


def three_pages() -> Instance:
    """Three pages and two holders of one scope. A prompt has one page or two; the scope may publish all three."""
    size = Pool(pages=3, holders=(1, 1), scope_limit=3)
    return page_pool("pages-three", size, three_pages.__doc__ or "")
