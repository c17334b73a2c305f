"""The lines of a page pool, replayed in a page world."""

from collections.abc import Hashable, Iterator
from typing import NamedTuple, cast

from kvescrow.checks.monitor.answer import UNCHANGED, Answer
from kvescrow.checks.monitor.lines import Entry, PageConfig, boolean, integer, mapping, scope_of, text, tokens_of
from kvescrow.checks.monitor.order import Order
from kvescrow.checks.monitor.places import place_after
from kvescrow.spec.language.expressions import reads
from kvescrow.spec.language.interpreter import Record, View
from kvescrow.spec.tables.page import PAGE
from kvescrow.spec.tables.page import view as entities
from kvescrow.spec.tables.promise import PROMISE
from kvescrow.spec.vocabulary import Decision, HolderState, PageState, PrefixScope, UserError
from kvescrow.spec.world.ledger import Watch
from kvescrow.spec.world.outcome import MutableRecord, Outcome, blank, violated
from kvescrow.spec.world.pages import PageWorld

_PARAMETERS: dict[str, tuple[frozenset[str], ...]] = {
    "admit": (frozenset({"units", "scope"}),),
    "grow": (frozenset({"units"}),),
    "close": (frozenset(),),
    "forget": (frozenset(),),
    "allocate": (frozenset(),),
    "seal": (frozenset({"tokens", "parent"}),),
    "share": (frozenset({"tokens", "parent"}), frozenset({"chain", "tokens_equal"})),
    "drop": (frozenset(),),
    "evict": (frozenset(),),
    "touch": (frozenset({"write"}),),
    "settle": (frozenset({"write", "ok", "filled"}),),
    "park": (frozenset(),),
    "retire_scope": (frozenset({"scope"}),),
}
"""The names that an event's parameters may have, in each form that a line may take."""
_WITHOUT_HOLDER = frozenset({"evict", "settle", "park", "retire_scope"})
_STATES = {
    PageState.FREE: "free",
    PageState.PRIVATE: "private",
    PageState.SHARED: "shared",
    PageState.CACHED: "cached",
    PageState.DRAINING: "draining",
}
_OF_THE_PAGE_ALONE = tuple(
    invariant for invariant in PAGE.invariants if all(entity == "page" for entity, _ in reads(invariant.holds))
)
_OF_PARENTS = tuple(
    assumption for assumption in PAGE.assumptions if any(entity == "parent" for entity, _ in reads(assumption.holds))
)
"""What the page table takes for granted of the page before, which a pool must see to."""
_NO_HOLDER = blank(entities.holder, state=HolderState.ABSENT)
_NO_OTHER = blank(entities.other)
_LIVE_SCOPE = blank(entities.scope, live=True)


class _Share(NamedTuple):
    """What one page contributes to the counts."""

    state: PageState
    scope: Hashable
    chain: Hashable
    matchable: bool
    parent: int | None
    """The page before it, where it is matchable; None where it is the first, or is not."""

    @property
    def busy(self) -> bool:
        """Whether the page before it could not be evicted for it."""
        return self.matchable and self.state is not PageState.CACHED


class PageSide:
    """One page pool's world, and running counts beside it, so that its counters are checked whenever they may move."""

    def __init__(self, config: PageConfig, watch: Watch | None = None) -> None:
        self._config = config
        self._world = PageWorld(config.pages, config.scope_limit, place_after, watch)
        self._order = Order()
        self._counts = _Counts()
        self._recount()

    def __len__(self) -> int:
        return len(self._world.pages) + len(self._world.holders)

    def answer(self, table: str, entry: Entry, decision: Decision) -> Answer:
        """Return what the tables answer to `entry`, which says `decision`. Raises `UserError` where it is malformed."""
        event, parameters = cast(str, entry["event"]), mapping(entry, "parameters")
        if parameters.keys() not in _PARAMETERS[event]:
            wanted = " or ".join(", ".join(sorted(form)) or "none" for form in _PARAMETERS[event])
            raise UserError(f"parameters are {', '.join(parameters) or 'none'}; `{event}` has {wanted}")
        if (entry["holder"] is None) != (event in _WITHOUT_HOLDER):
            raise UserError(f"holder of `{event}` must be {'null' if event in _WITHOUT_HOLDER else 'a text'}")
        holder = "" if event in _WITHOUT_HOLDER else text(entry, "holder")
        seq = integer(entry, "seq", least=0)
        self._order.expect(seq)
        if table == "promise":
            answer = self._promise(event, holder, parameters)
        elif entry["page"] is None and event == "allocate":
            answer = self._allocate_any(holder)
        else:
            answer = self._page(event, holder, self._number(entry, "page"), parameters)
        if answer.decision is decision:
            self._order.follow(seq, changed=decision not in UNCHANGED)
        else:
            self._order.take(seq)
        return answer

    def _number(self, entry: Entry, name: str) -> int:
        number = integer(entry, name, least=0)
        if number >= self._config.pages:
            raise UserError(f"{name} is {number}; the pool has pages 0 to {self._config.pages - 1}")
        return number

    # --- promises ---------------------------------------------------------------------------------------------------

    def _promise(self, event: str, holder: str, parameters: Entry) -> Answer:
        match event:
            case "admit":
                outcome = self._world.admit(holder, scope_of(parameters), integer(parameters, "units"))
            case "grow":
                outcome = self._world.grow(holder, integer(parameters, "units"))
            case "close":
                outcome = self._world.close(holder)
            case _:
                outcome = self._world.forget(holder)
        record = self._world.holders.get(holder, _NO_HOLDER)
        facts = {"state": cast(HolderState, record["state"]).value}
        if outcome.decision in UNCHANGED:
            return Answer.of(outcome, facts)
        self._counts.promise(holder, cast(int, record["promised"]))
        return Answer.of(outcome, facts, self._broken_promise(holder, record))

    # --- pages ------------------------------------------------------------------------------------------------------

    def _allocate_any(self, holder: str) -> Answer:
        """Answer a draw that names no page, since none was found: it is judged by a free page that is not there."""
        aside = PageWorld(2)
        if holder in self._world.holders:
            aside.holders[holder] = dict(self._world.holders[holder])
        return Answer.of(aside.allocate(holder, 1), {})

    def _page(self, event: str, holder: str, page: int, parameters: Entry) -> Answer:
        before, held = self._share(page), holder in self._world.holders_of[page]
        outcome = self._fire(event, holder, page, parameters)
        record = self._world.pages[page]
        facts = {"state": cast(PageState, record["state"]).value, "generation": record["generation"]}
        if outcome.decision in UNCHANGED:
            return Answer.of(outcome, facts)
        after, holds = self._share(page), holder in self._world.holders_of[page]
        if (after, holds) == (before, held):
            # A step in flight or its end, by far the most frequent events: no account is touched.
            laws = violated(PAGE, {"page": record}, _OF_THE_PAGE_ALONE)
            return Answer.of(outcome, facts, [f"{name} of page {page}" for name in laws])
        self._counts.page(page, before, after)
        self._counts.claim(holder, before.state if held else None, after.state if holds else None)
        if holder:
            self._counts.promise(holder, cast(int, self._world.holders.get(holder, _NO_HOLDER)["promised"]))
        return Answer.of(outcome, facts, self._broken_page(page, holder, before.parent))

    def _fire(self, event: str, holder: str, page: int, parameters: Entry) -> Outcome:
        world = self._world
        match event:
            case "allocate":
                return world.allocate(holder, page)
            case "seal":
                return world.seal(holder, page, *self._prefix(parameters))
            case "share" if "chain" in parameters:
                return world.share(holder, page, *self._prefix_of_chain(holder, page, parameters))
            case "share":
                return world.share(holder, page, *self._prefix(parameters))
            case "drop":
                return world.drop(holder, page)
            case "evict":
                return world.evict(page)
            case "touch":
                return world.touch(holder, page, write=boolean(parameters, "write"))
            case "settle":
                write, ok, filled = (boolean(parameters, name) for name in ("write", "ok", "filled"))
                return world.settle(page, write=write, ok=ok, filled=filled)
            case "park":
                return world.park(page)
            case _:
                return world.retire_page(page, scope_of(parameters))

    def _prefix(self, parameters: Entry) -> tuple[tuple[int, ...], int | None]:
        tokens = tokens_of(parameters, self._config.page_length)
        return tokens, None if parameters["parent"] is None else self._number(parameters, "parent")

    def _prefix_of_chain(self, holder: str, page: int, parameters: Entry) -> tuple[tuple[int, ...], int | None]:
        """Return tokens and parent of the place that a lookup's chain names; no tokens where nothing is there."""
        try:
            chain = bytes.fromhex(text(parameters, "chain"))
        except ValueError as error:
            raise UserError(f"chain is {parameters['chain']!r}, not a digest in hexadecimal") from error
        scope = self._world.holders.get(holder, _NO_HOLDER)["scope"]
        found = self._world.index.get((scope, chain))
        if found == page and not boolean(parameters, "tokens_equal"):
            raise UserError(f"tokens_equal is false, but page {page} has this chain, and so these tokens")
        boolean(parameters, "tokens_equal")
        return ((), None) if found is None else (self._world.tokens[found], self._world.parents[found])

    def _share(self, page: int) -> _Share:
        record = self._world.pages[page]
        return _Share(
            cast(PageState, record["state"]),
            record["scope"],
            record["chain"],
            cast(bool, record["matchable"]),
            self._world.parents[page],
        )

    # --- invariants -------------------------------------------------------------------------------------------------

    def broken(self) -> Iterator[str]:
        """Yield every invariant that does not hold now, all counts made anew."""
        self._recount()
        for holder, record in self._world.holders.items():
            yield from self._broken_promise(holder, record)
        for page, holders in enumerate(self._world.holders_of):
            for holder in sorted(holders) or [""]:
                yield from self._broken_page(page, holder)

    def _recount(self) -> None:
        self._counts = _Counts()
        for page, holders in enumerate(self._world.holders_of):
            share = self._share(page)
            self._counts.page(page, None, share)
            for holder in holders:
                self._counts.claim(holder, None, share.state)
        for holder, record in self._world.holders.items():
            self._counts.promise(holder, cast(int, record["promised"]))

    def _broken_promise(self, holder: str, record: MutableRecord) -> list[str]:
        pool = {"usable": self._world.pool["total"], **self._world.pool}
        rest = {"promised": self._counts.promised - cast(int, record["promised"])}
        view: View = {"holder": record, "pool": pool, "rest": rest}
        return [f"{name} of holder {holder}" for name in violated(PROMISE, view)]

    def _broken_page(self, page: int, holder: str, left: int | None = None) -> list[str]:
        view = self._view(page, holder, left)
        laws = violated(PAGE, view) + violated(PAGE, view, _OF_PARENTS)
        return [f"{name} of page {page}, holder {holder}" for name in laws]

    def _view(self, page: int, holder: str, left: int | None) -> View:
        """Return what the table sees of the page; `left`: what was before it, where it is matchable no more."""
        record, counts = self._world.pages[page], self._counts
        share, holders = self._share(page), self._world.holders_of[page]
        acting, holds = self._world.holders.get(holder, _NO_HOLDER), holder in holders
        scope = self._world.scopes[share.scope] if isinstance(share.scope, PrefixScope) else _LIVE_SCOPE
        up = share.parent if share.matchable else left
        rest: Record = {
            "holders": len(holders) - holds,
            **{name: counts.states.get(state, 0) - (share.state is state) for state, name in _STATES.items()},
            "promised": counts.promised - cast(int, acting["promised"]),
            "holder_pages": counts.private.get(holder, 0) - (holds and share.state is PageState.PRIVATE),
            "holder_shares": counts.shared.get(holder, 0) - (holds and share.state is PageState.SHARED),
            "scope_shared": counts.scope_shared.get(share.scope, 0) - (share.state is PageState.SHARED),
            "scope_published": counts.published.get(share.scope, 0) - share.matchable,
            "siblings": counts.children.get(up, 0) - share.matchable,
            "busy_siblings": counts.busy.get(up, 0) - share.busy,
        }
        twin = counts.places.get((share.scope, share.chain), page) if share.matchable else page
        return {
            "page": record,
            "claim": {"holds": holds},
            "holder": acting,
            "scope": scope,
            "parent": self._parent(up),
            "pool": self._world.pool,
            "index": {"occupied": False},
            "other": _NO_OTHER if twin == page else self._world.pages[twin],
            "rest": rest,
        }

    def _parent(self, page: int | None) -> Record:
        if page is None:
            # Nothing is kept of the root, which is never evicted.
            children, busy = self._counts.children.get(None, 0), self._counts.busy.get(None, 0)
            return {"matchable": True, "cached": False, "children": children, "busy": busy}
        record = self._world.pages[page]
        return {**record, "cached": record["state"] is PageState.CACHED}


class _Counts:
    """Pages by state, by holder, by scope and by the page before, promises and places, kept by what changed."""

    def __init__(self) -> None:
        self.states: dict[PageState, int] = {}
        self.private: dict[str, int] = {}
        self.shared: dict[str, int] = {}
        self.scope_shared: dict[Hashable, int] = {}
        self.published: dict[Hashable, int] = {}
        self.children: dict[int | None, int] = {}
        self.busy: dict[int | None, int] = {}
        self.places: dict[tuple[Hashable, Hashable], int] = {}
        self.promised = 0
        self._promises: dict[str, int] = {}

    def promise(self, holder: str, units: int) -> None:
        """Note that `holder` may still draw `units`."""
        self.promised += units - self._promises.get(holder, 0)
        if units:
            self._promises[holder] = units
        else:
            self._promises.pop(holder, None)

    def claim(self, holder: str, before: PageState | None, after: PageState | None) -> None:
        """Note that a page of `holder` went from one state to another; None: it did or does not hold it."""
        for state, count in ((PageState.PRIVATE, self.private), (PageState.SHARED, self.shared)):
            change = (after is state) - (before is state)
            if change:
                count[holder] = count.get(holder, 0) + change

    def page(self, page: int, before: _Share | None, after: _Share) -> None:
        """Note what a page was and is."""
        for share, sign in ((before, -1), (after, 1)):
            if share is None:
                continue
            self.states[share.state] = self.states.get(share.state, 0) + sign
            if share.state is PageState.SHARED:
                self.scope_shared[share.scope] = self.scope_shared.get(share.scope, 0) + sign
            if share.matchable:
                self.published[share.scope] = self.published.get(share.scope, 0) + sign
                self.children[share.parent] = self.children.get(share.parent, 0) + sign
            if share.busy:
                self.busy[share.parent] = self.busy.get(share.parent, 0) + sign
        if before is not None and before.matchable and self.places.get((before.scope, before.chain)) == page:
            del self.places[before.scope, before.chain]
        if after.matchable:
            self.places.setdefault((after.scope, after.chain), page)
