"""A whole page pool, moved by the promise and page tables."""

from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import cast

from kvescrow.spec.language.compiler import compiled
from kvescrow.spec.language.interpreter import Record, View
from kvescrow.spec.language.table import Table
from kvescrow.spec.tables.page import PAGE
from kvescrow.spec.tables.page import view as entities
from kvescrow.spec.tables.promise import PROMISE
from kvescrow.spec.tables.promise import holder as promise_holder
from kvescrow.spec.tables.registry import TABLE_BY_NAME
from kvescrow.spec.vocabulary import HolderState, PageSnapshot, PageState, PoolSnapshot, PrefixScope
from kvescrow.spec.world.ledger import Watch
from kvescrow.spec.world.outcome import MutableRecord, Outcome, apply_row, blank, violated

SINK = 0
"""The number of the page that is set aside."""
ROOT_CHAIN = "root"
"""The chain before the first page."""

Tokens = tuple[int, ...]
Digest = Callable[[Hashable, PrefixScope, Tokens], Hashable]

PROMISE_EVENTS = frozenset(event.name for event in PROMISE.events)
_COUNTED = {
    PageState.FREE: "free",
    PageState.PRIVATE: "private",
    PageState.SHARED: "shared",
    PageState.CACHED: "cached",
    PageState.DRAINING: "draining",
}


_OF_PARENTS = tuple(assumption for assumption in PAGE.assumptions if "parent" in assumption.name)
"""What the page table takes for granted of the page before; a world must see to it."""


def _broken(view: View) -> list[str]:
    of_parents = violated(PAGE, view, _OF_PARENTS) if view["page"]["matchable"] else []
    return violated(PAGE, view) + of_parents


def exact_chain(parent: Hashable, scope: PrefixScope, tokens: Tokens) -> Hashable:
    """Return a chain that collides with no other: the whole prefix itself."""
    return (parent, scope, tokens)


class PageWorld:
    """The oracle of a page pool: every answer is a row's."""

    def __init__(
        self,
        pages: int,
        scope_limit: int | None = None,
        digest: Digest = exact_chain,
        watch: Watch | None = None,
        tables: Mapping[str, Table] = TABLE_BY_NAME,
    ) -> None:
        """Start with page 0 as the sink and all other pages free.

        `scope_limit` bounds the published pages of each scope, the whole pool where it is None. `digest` names a
        chain; a weak one makes collisions. `watch` sees every view before a row of `tables` fires.
        """
        self._watch = watch
        self._digest = digest
        self._page = compiled(tables["page"])
        self._promise = compiled(tables["promise"])
        usable = pages - 1
        self.scope_limit = usable if scope_limit is None else scope_limit
        self.pool = blank(entities.pool, total=usable, free=usable)
        self.pages = [
            blank(entities.page, state=PageState.FREE if number else PageState.SINK) for number in range(pages)
        ]
        self.holders_of: list[set[str]] = [set() for _ in range(pages)]
        self.tokens: list[Tokens] = [()] * pages
        self.parents: list[int | None] = [None] * pages
        self.holders: dict[str, MutableRecord] = {}
        self.scopes: dict[PrefixScope, MutableRecord] = {}
        self.index: dict[tuple[Hashable, Hashable], int] = {}
        self._root: MutableRecord = {"matchable": True, "children": 0, "busy": 0}

    # --- promises ---------------------------------------------------------------------------------------------------

    def admit(self, holder: str, scope: PrefixScope, units: int) -> Outcome:
        """Ask for a promise of `units` pages for `holder`, which works in `scope`."""
        return self._apply_promise("admit", holder, {"units": units}, scope)

    def grow(self, holder: str, units: int) -> Outcome:
        """Ask for `units` more."""
        return self._apply_promise("grow", holder, {"units": units}, None)

    def close(self, holder: str) -> Outcome:
        """Return the units that were not drawn."""
        return self._apply_promise("close", holder, {}, None)

    def forget(self, holder: str) -> Outcome:
        """Forget that a closed holder was here, so that its name may be used anew."""
        return self._apply_promise("forget", holder, {}, None)

    def _apply_promise(self, event: str, holder: str, parameters: Record, scope: PrefixScope | None) -> Outcome:
        known = self.holders.get(holder)
        record = known if known is not None else blank(entities.holder, state=HolderState.ABSENT)
        seen = {name: record[name] for name in promise_holder.fields}
        totals = {name: self.pool[name] for name in ("free", "cached", "promised")}
        pool: MutableRecord = {"usable": self.pool["total"], **totals}
        outcome = apply_row(self._promise, {"holder": seen, "pool": pool}, event, parameters, self._watch)
        if seen["state"] is HolderState.ABSENT:
            self.holders.pop(holder, None)
        else:
            if known is None:
                record["scope"] = scope
                self.holders[holder] = record
            record.update(seen)
            self.pool["promised"] = pool["promised"]
        return outcome

    # --- pages ------------------------------------------------------------------------------------------------------

    def allocate(self, holder: str, page: int) -> Outcome:
        """Draw the free page `page` for `holder`."""
        outcome = self._apply_page("allocate", page, holder, {})
        if self._took(outcome):
            self.holders_of[page] = {holder}
        return outcome

    def seal(self, holder: str, page: int, tokens: Tokens, parent: int | None) -> Outcome:
        """Publish `page`, which holds `tokens` after the chain that ends with page `parent`."""
        scope = self._scope_of(holder)
        # What follows an unpublished page has no place, so its chain is nobody else's, whatever the digest.
        reachable = parent is None or self._is_published(parent, scope)
        chain = self._digest(self._chain(parent), scope, tokens) if reachable else ("unreachable", parent, tokens)
        occupied = (scope, chain) in self.index
        outcome = self._apply_page("seal", page, holder, {"chain": chain}, parent=parent, occupied=occupied)
        if self._took(outcome):
            self.index[scope, chain] = page
            self.tokens[page] = tokens
            self.parents[page] = parent
        return outcome

    def share(self, holder: str, page: int, tokens: Tokens, parent: int | None) -> Outcome:
        """Claim `page` for `holder`, whose prompt goes on with `tokens` after the page `parent`."""
        equal = self.tokens[page] == tokens and self.parents[page] == parent
        chain = self._digest(self._chain(parent), self._scope_of(holder), tokens)
        outcome = self._apply_page("share", page, holder, {"chain": chain, "tokens_equal": equal})
        if self._took(outcome):
            self.holders_of[page].add(holder)
        return outcome

    def drop(self, holder: str, page: int) -> Outcome:
        """Give up the claim of `holder` on `page`."""
        outcome = self._apply_page("drop", page, holder, {})
        if self._took(outcome):
            self.holders_of[page].discard(holder)
        return outcome

    def evict(self, page: int) -> Outcome:
        """Take back the content of `page`."""
        return self._apply_page("evict", page, None, {})

    def touch(self, holder: str, page: int, *, write: bool) -> Outcome:
        """Launch a step of `holder` that reads or writes `page`."""
        return self._apply_page("touch", page, holder, {"write": write})

    def settle(self, page: int, *, write: bool, ok: bool, filled: bool) -> Outcome:
        """End such a step."""
        return self._apply_page("settle", page, None, {"write": write, "ok": ok, "filled": filled})

    def park(self, page: int) -> Outcome:
        """Look whether the draining `page` has still to wait."""
        return self._apply_page("park", page, None, {})

    def retire_scope(self, scope: PrefixScope) -> list[Outcome]:
        """Close `scope`, then unpublish its pages, leaves first; what has nothing to wait for any more is free."""
        outcomes = [self.retire_page(SINK, scope)]
        pages = [number for number, record in enumerate(self.pages) if record["scope"] == scope]
        for number in sorted(pages, key=lambda page: (-self._depth(page), page)):
            outcomes.append(self.retire_page(number, scope))
            if self.is_idle(number):
                outcomes.append(self.park(number))
        return outcomes

    def retire_page(self, page: int, scope: PrefixScope) -> Outcome:
        """Apply the retirement of `scope` to one page; the sink stands for the scope itself.

        A page of another scope is judged by its own, which is what the table sees; a free page has none.
        """
        own = self.pages[page]["scope"]
        return self._apply_page("retire_scope", page, None, {}, scope=None if isinstance(own, PrefixScope) else scope)

    def is_idle(self, page: int) -> bool:
        """Return whether `page` drains although nothing touches it and nothing that follows it is in use."""
        record = self.pages[page]
        waits = record["readers"] or record["writers"] or record["busy"]
        return record["state"] is PageState.DRAINING and not waits

    def _depth(self, page: int) -> int:
        depth, parent = 0, self.parents[page]
        while parent is not None:
            depth, parent = depth + 1, self.parents[parent]
        return depth

    def _is_published(self, page: int, scope: Hashable) -> bool:
        """Return whether a lookup of `scope` can pass through `page`."""
        return bool(self.pages[page]["matchable"]) and self.pages[page]["scope"] == scope

    def _took(self, outcome: Outcome) -> bool:
        return not outcome.decision.changes_nothing

    def _chain(self, parent: int | None) -> Hashable:
        return ROOT_CHAIN if parent is None else self.pages[parent]["chain"]

    def _scope_of(self, holder: str) -> PrefixScope:
        record = self.holders.get(holder)
        return cast(PrefixScope, record["scope"]) if record else PrefixScope("")

    def _scope_record(self, scope: Hashable) -> MutableRecord:
        if not isinstance(scope, PrefixScope):
            return blank(entities.scope, live=True)
        if scope not in self.scopes:
            self.scopes[scope] = blank(entities.scope, identity=scope, live=True, limit=self.scope_limit)
        return self.scopes[scope]

    def _apply_page(
        self,
        event: str,
        page: int,
        holder: str | None,
        parameters: Record,
        *,
        scope: PrefixScope | None = None,
        parent: int | None = None,
        occupied: bool = False,
    ) -> Outcome:
        record = self.pages[page]
        old_place = (record["scope"], record["chain"])
        held_by = self.holders.get(holder) if holder else None
        acting = held_by if held_by is not None else blank(entities.holder, state=HolderState.ABSENT)
        account = scope or (acting["scope"] if event == "allocate" else record["scope"])
        up = parent if event == "seal" else self.parents[page]
        before = self._root if up is None else self.pages[up]
        above = {"cached": before.get("state") is PageState.CACHED} | {
            name: before[name] for name in ("matchable", "children", "busy")
        }
        if event == "seal" and up is not None and not self._is_published(up, record["scope"]):
            above |= {"matchable": False, "cached": False}
        view: dict[str, MutableRecord] = {
            "page": record,
            "claim": {"holds": holder in self.holders_of[page]},
            "holder": acting,
            "scope": self._scope_record(account),
            "parent": above,
            "pool": self.pool,
            "index": {"occupied": occupied},
        }
        outcome = apply_row(self._page, view, event, parameters, self._watch)
        before["children"], before["busy"] = above["children"], above["busy"]
        if old_place in self.index and not record["matchable"]:
            del self.index[old_place]
            self.tokens[page] = ()
            self.parents[page] = None
        return outcome

    # --- what is compared and checked -------------------------------------------------------------------------------

    def snapshot(self) -> PoolSnapshot:
        """Return the projection that implementations are compared by."""
        return PoolSnapshot(
            pages=tuple(
                PageSnapshot(
                    state=cast(PageState, record["state"]),
                    holders=frozenset(self.holders_of[number]),
                    readers=cast(int, record["readers"]),
                    writers=cast(int, record["writers"]),
                    generation=cast(int, record["generation"]),
                    scope=record["scope"] if isinstance(record["scope"], PrefixScope) else None,
                    tokens=self.tokens[number],
                )
                for number, record in enumerate(self.pages)
            ),
            promised={
                name: cast(int, record["promised"])
                for name, record in self.holders.items()
                if record["state"] is HolderState.ADMITTED
            },
        )

    def violations(self) -> list[str]:
        """Return the invariants that do not hold now, each with the page and holder it fails for."""
        return [f"{name} of {what}" for what, view in self._views() for name in _broken(view)]

    def _views(self) -> Iterator[tuple[str, View]]:
        for number, record in enumerate(self.pages):
            for holder in self.holders or [""]:
                yield f"page {number}, holder {holder}", self._view(number, record, holder)

    def _view(self, number: int, record: MutableRecord, holder: str) -> View:
        acting = self.holders.get(holder) or blank(entities.holder, state=HolderState.ABSENT)
        holds = holder in self.holders_of[number]
        scope = self._scope_record(record["scope"])
        others = [(n, other) for n, other in enumerate(self.pages) if n != number]
        of_holder = [other for n, other in others if holder in self.holders_of[n]]
        of_scope = [other for _, other in others if other["scope"] == scope["identity"]]
        twins = [other for other in of_scope if other["matchable"] and other["chain"] == record["chain"]]
        up = self.parents[number]
        parent = self._root if up is None else self.pages[up]
        siblings = [o for n, o in others if o["matchable"] and record["matchable"] and self.parents[n] == up]
        rest: MutableRecord = {
            "holders": len(self.holders_of[number] - {holder}),
            **{name: sum(other["state"] is state for _, other in others) for state, name in _COUNTED.items()},
            "promised": sum(cast(int, r["promised"]) for name, r in self.holders.items() if name != holder),
            "holder_pages": sum(other["state"] is PageState.PRIVATE for other in of_holder),
            "holder_shares": sum(other["state"] is PageState.SHARED for other in of_holder),
            "scope_shared": sum(other["state"] is PageState.SHARED for other in of_scope),
            "scope_published": sum(bool(other["matchable"]) for other in of_scope),
            "siblings": len(siblings),
            "busy_siblings": sum(sibling["state"] is not PageState.CACHED for sibling in siblings),
        }
        return {
            "page": record,
            "claim": {"holds": holds},
            "holder": acting,
            "scope": scope,
            "parent": {**parent, "cached": parent.get("state") is PageState.CACHED},
            "pool": self.pool,
            "index": {"occupied": False},
            "other": twins[0] if twins else blank(entities.other),
            "rest": rest,
        }
