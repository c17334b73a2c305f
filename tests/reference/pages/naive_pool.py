"""A page pool as plainly as it can be written: dicts, sums on demand, whole token chains compared."""

from __future__ import annotations

from kvescrow.spec.vocabulary import Decision, PageSnapshot, PageState, PoolSnapshot, PrefixScope, Reason

D, R, P = Decision, Reason, PageState
Answer = tuple[Decision, Reason]
HELD = (P.PRIVATE, P.SHARED)


def no(reason: Reason) -> Answer:
    return D.REFUSED, reason


def yes(decision: Decision) -> Answer:
    return decision, R.NONE


class NaivePool:
    """Pages are dicts; a published page carries every token from the start of its chain."""

    def __init__(self, pages: int, scope_limit: int | None) -> None:
        self.pages = [self.blank(number) for number in range(pages)]
        self.limit = pages if scope_limit is None else scope_limit
        self.admitted: dict[str, dict] = {}
        self.closed: set[str] = set()
        self.retired: set[PrefixScope] = set()

    @staticmethod
    def blank(number: int) -> dict:
        state = P.FREE if number else P.SINK
        return dict(state=state, holders=set(), readers=0, writers=0, computed=False, spoiled=False, scope=None,
                    chain=None, generation=0)  # fmt: skip

    def number(self, state: PageState) -> int:
        return sum(page["state"] is state for page in self.pages)

    def room(self) -> int:
        return self.number(P.FREE) + self.number(P.CACHED) - sum(h["promised"] for h in self.admitted.values())

    def published(self, scope: PrefixScope) -> list[dict]:
        return [page for page in self.pages if page["chain"] is not None and page["scope"] == scope]

    def children(self, page: dict) -> int:
        return sum(other["chain"][:-1] == page["chain"] for other in self.published(page["scope"]))

    def busy(self, page: dict) -> bool:
        """Whether a page that follows it is not cached."""
        if page["chain"] is None:
            return False
        others = self.published(page["scope"])
        return any(o["chain"][:-1] == page["chain"] and o["state"] is not P.CACHED for o in others)

    def parent_is_cached(self, chain: tuple, scope: PrefixScope) -> bool:
        return any(o["chain"] == chain[:-1] and o["state"] is P.CACHED for o in self.published(scope))

    def wipe(self, page: dict) -> None:
        page.update(self.blank(1) | {"generation": page["generation"]})

    def admit(self, holder: str, scope: PrefixScope, units: int) -> Answer:
        if holder in self.admitted:
            return yes(D.RECORDED)
        if holder in self.closed:
            return no(R.CLOSED)
        if units < 0:
            return no(R.MALFORMED)
        if units > len(self.pages) - 1:
            return no(R.NEVER_FITS)
        if units > self.room():
            return no(R.POOL_CAPACITY)
        self.admitted[holder] = dict(scope=scope, promised=units)
        return yes(D.GRANTED)

    def grow(self, holder: str, units: int) -> Answer:
        if holder in self.closed:
            return no(R.CLOSED)
        if holder not in self.admitted:
            return no(R.UNKNOWN_KEY)
        if units <= 0:
            return no(R.MALFORMED)
        if units > self.room():
            return no(R.POOL_CAPACITY)
        self.admitted[holder]["promised"] += units
        return yes(D.EXTENDED)

    def close(self, holder: str) -> Answer:
        if holder in self.closed:
            return yes(D.RECORDED)
        if holder not in self.admitted:
            return no(R.UNKNOWN_KEY)
        if any(holder in page["holders"] for page in self.pages):
            return no(R.HOLDING)
        del self.admitted[holder]
        self.closed.add(holder)
        return yes(D.RELEASED)

    def forget(self, holder: str) -> Answer:
        if holder in self.admitted:
            return no(R.LIVE)
        if holder not in self.closed:
            return no(R.UNKNOWN_KEY)
        self.closed.remove(holder)
        return yes(D.FORGOTTEN)

    def allocate(self, holder: str, number: int) -> Answer:
        page = self.pages[number]
        if page["state"] is P.SINK:
            return no(R.SINK_PAGE)
        if page["state"] is not P.FREE:
            return no(R.NOT_FREE)
        if holder not in self.admitted or self.admitted[holder]["promised"] <= 0:
            return no(R.NO_PROMISE)
        self.admitted[holder]["promised"] -= 1
        page.update(state=P.PRIVATE, holders={holder}, scope=self.admitted[holder]["scope"])
        page["generation"] += 1
        return yes(D.GRANTED)

    def chain_after(self, parent: int | None, tokens: tuple[int, ...], scope: PrefixScope) -> tuple | None:
        if parent is None:
            return (tokens,)
        before = self.pages[parent]
        return None if before["chain"] is None or before["scope"] != scope else (*before["chain"], tokens)

    def seal(self, holder: str, number: int, tokens: tuple[int, ...], parent: int | None) -> Answer:
        page = self.pages[number]
        if page["state"] is P.SINK:
            return no(R.SINK_PAGE)
        if page["state"] not in HELD:
            return no(R.NOT_PRIVATE)
        if holder not in page["holders"]:
            return no(R.NOT_HOLDER)
        chain = self.chain_after(parent, tokens, page["scope"])
        if page["state"] is P.SHARED:
            return yes(D.RECORDED) if chain is not None and chain == page["chain"] else no(R.NOT_PRIVATE)
        if page["scope"] in self.retired:
            return no(R.RETIRED_SCOPE)
        if not page["computed"] or page["spoiled"] or page["writers"]:
            return no(R.NOT_COMPUTED)
        if chain is None:
            return no(R.PARENT_UNPUBLISHED)
        if self.parent_is_cached(chain, page["scope"]):
            return no(R.PARENT_NOT_HELD)
        others = self.published(page["scope"])
        if any(other["chain"] == chain for other in others):
            return no(R.DUPLICATE)
        if len(others) >= self.limit:
            return no(R.SCOPE_CAPACITY)
        page.update(state=P.SHARED, chain=chain)
        return yes(D.PUBLISHED)

    def share(self, holder: str, number: int, tokens: tuple[int, ...], parent: int | None) -> Answer:
        if holder not in self.admitted:
            return no(R.NO_PROMISE)
        page, own = self.pages[number], self.admitted[holder]
        chain = self.chain_after(parent, tokens, own["scope"])
        if page["chain"] is None or page["scope"] != own["scope"] or page["scope"] in self.retired:
            return yes(D.MISS)
        if page["chain"] != chain:
            return yes(D.MISS)
        if holder in page["holders"]:
            return yes(D.RECORDED)
        if page["state"] is P.CACHED:
            if own["promised"] <= 0:
                return no(R.NO_PROMISE)
            if self.parent_is_cached(chain, own["scope"]):
                return no(R.PARENT_NOT_HELD)
            own["promised"] -= 1
        page["state"] = P.SHARED
        page["holders"].add(holder)
        return yes(D.GRANTED)

    def settle_down(self, page: dict) -> None:
        if page["readers"] + page["writers"] or self.busy(page):
            page["state"] = P.DRAINING
        elif page["chain"] is not None:
            page["state"] = P.CACHED
        else:
            self.wipe(page)

    def drop(self, holder: str, number: int) -> Answer:
        page = self.pages[number]
        if page["state"] is P.SINK:
            return no(R.SINK_PAGE)
        if holder not in page["holders"]:
            return no(R.NOT_HOLDER)
        page["holders"].discard(holder)
        if not page["holders"]:
            self.settle_down(page)
        return yes(D.DROPPED)

    def evict(self, number: int) -> Answer:
        page = self.pages[number]
        if page["state"] is P.SINK:
            return no(R.SINK_PAGE)
        if page["state"] is P.FREE:
            return no(R.NOT_CACHED)
        if page["state"] is not P.CACHED:
            return no(R.IN_USE)
        if self.children(page):
            return no(R.HAS_CHILDREN)
        self.wipe(page)
        return yes(D.RELEASED)

    def touch(self, holder: str, number: int, write: bool) -> Answer:
        page = self.pages[number]
        if page["state"] is P.SINK:
            return no(R.SINK_PAGE)
        if holder not in page["holders"]:
            return no(R.NOT_HOLDER)
        if write and page["state"] is P.SHARED:
            return no(R.READ_ONLY)
        page["writers" if write else "readers"] += 1
        return yes(D.LAUNCHED)

    def settle(self, number: int, write: bool, ok: bool, filled: bool) -> Answer:
        page = self.pages[number]
        if page["state"] is P.SINK:
            return no(R.SINK_PAGE)
        kind = "writers" if write else "readers"
        if not page[kind]:
            return no(R.NOT_OUTSTANDING)
        page[kind] -= 1
        if write and page["state"] is P.PRIVATE:
            page["spoiled"] |= not ok
            page["computed"] |= ok and filled
        if page["state"] is P.DRAINING:
            self.settle_down(page)
        return yes(D.SETTLED)

    def park(self, number: int) -> Answer:
        page = self.pages[number]
        if page["state"] is P.SINK:
            return no(R.SINK_PAGE)
        if page["state"] is not P.DRAINING:
            return yes(D.NOTHING_DUE)
        if page["readers"] + page["writers"]:
            return no(R.IN_FLIGHT)
        if self.busy(page):
            return no(R.IN_USE)
        self.settle_down(page)
        return yes(D.SETTLED)

    def retire_page(self, scope: PrefixScope, number: int) -> Answer:
        page = self.pages[number]
        if page["state"] is P.SINK:
            if scope in self.retired:
                return yes(D.RECORDED)
            self.retired.add(scope)
            return yes(D.NOTED)
        if (page["scope"] or scope) not in self.retired:
            return no(R.LIVE)
        if page["chain"] is None:
            return yes(D.RECORDED)
        if self.children(page):
            return no(R.HAS_CHILDREN)
        if page["state"] is P.CACHED:
            self.wipe(page)
            return yes(D.RELEASED)
        page["chain"] = None
        return yes(D.NOTED)

    def snapshot(self) -> PoolSnapshot:
        return PoolSnapshot(
            pages=tuple(
                PageSnapshot(
                    page["state"],
                    frozenset(page["holders"]),
                    page["readers"],
                    page["writers"],
                    page["generation"],
                    page["scope"],
                    page["chain"][-1] if page["chain"] else (),
                )
                for page in self.pages
            ),
            promised={name: holder["promised"] for name, holder in self.admitted.items()},
        )
