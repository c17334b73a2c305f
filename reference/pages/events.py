"""The pages of a pool event by event: each method decides one event and applies it (PAG, SCO).

A method tests its refusals in the order in which they take precedence. What an event means, and why it is refused,
is the matter of the page table; this is the fast bookkeeping. A page that has nothing to wait for any more, because
of what happened to the pages that follow it, is noted as idle and drains until it is parked.
"""

from collections.abc import Sequence

from kvescrow.reference.pages.chain import packed
from kvescrow.reference.pages.outcomes import (
    CACHED,
    DRAINING,
    DROPPED,
    DUPLICATE,
    FREE,
    GRANTED,
    HAS_CHILDREN,
    IN_FLIGHT,
    IN_USE,
    LAUNCHED,
    LIVE,
    MISS,
    NO_PROMISE,
    NOT_CACHED,
    NOT_COMPUTED,
    NOT_FREE,
    NOT_HOLDER,
    NOT_OUTSTANDING,
    NOT_PRIVATE,
    NOTED,
    NOTHING_DUE,
    PARENT_NOT_HELD,
    PARENT_UNPUBLISHED,
    PRIVATE,
    PUBLISHED,
    READ_ONLY,
    RECORDED,
    RELEASED,
    RETIRED_SCOPE,
    SCOPE_CAPACITY,
    SETTLED,
    SHARED,
    SINK,
    SINK_PAGE,
)
from kvescrow.reference.pages.promises import PoolRecords
from kvescrow.reference.pages.records import Holder, Page, ScopeAccount, unlink
from kvescrow.reference.pages.replies import Outcome, PageReply
from kvescrow.spec.vocabulary import PrefixScope, UserError


class PageEvents(PoolRecords):
    """The events of pages and of scopes."""

    # --- scopes -----------------------------------------------------------------------------------------------------

    def close_scope(self, scope: PrefixScope) -> PageReply:
        """Weights or adapter changed: nothing of `scope` is published or matched from now on (SCO-5)."""
        account = self._accounts.get(scope) or self._open_account(scope)
        outcome = RECORDED
        if account.live:
            account.live = False
            self._seq += 1
            outcome = NOTED
        return self._answer("retire_scope", None, 0, outcome, {"scope": scope})

    def retire_page(self, scope: PrefixScope, page: int) -> PageReply:
        """Take a page of a closed scope out of the index, leaves first (SCO-5).

        A page in use is judged by its own scope; `scope` counts for a free page, which has none. On the sink this is
        `close_scope`.
        """
        record = self._page(page)
        if record.state is SINK:
            return self.close_scope(scope)
        account = self._accounts.get(record.account.scope if record.account else scope)
        return self._answer("retire_scope", None, page, self._retire(record, account), {"scope": scope})

    def _retire(self, page: Page, account: ScopeAccount | None) -> Outcome:
        if account is None or account.live:
            return LIVE
        if page.chain is None:
            return RECORDED
        if page.children:
            return HAS_CHILDREN
        if page.state is CACHED:
            self._evict(page)
            return RELEASED
        parent = self._unpublish(page)
        self._less_busy(parent)
        self._seq += 1
        return NOTED

    # --- allocate, seal, share, drop --------------------------------------------------------------------------------

    def seal(self, holder: str, page: int, tokens: Sequence[int], parent: int | None) -> PageReply:
        """Publish a computed page with its `tokens` after the published page `parent`; None: it is the first.

        A parent of another scope counts as unpublished, since no lookup of this scope could pass through it.
        """
        piece = self._full_page(tokens)
        before = None if parent is None else self._page(parent)
        outcome = self._seal(self._holders.get(holder), self._page(page), piece, before)
        return self._answer("seal", holder, page, outcome, {"tokens": tokens, "parent": parent})

    def share(self, holder: str, page: int, tokens: Sequence[int], parent_chain: bytes | None) -> PageReply:
        """Join the holders of a published page at which a lookup with `tokens` arrived.

        `parent_chain` is the digest of the page before it; None: the lookup starts here. Every miss has the same
        answer (SCO-4).
        """
        piece = self._full_page(tokens)
        record, found = self._holders.get(holder), self._page(page)
        before = parent_chain
        if before is None:
            before = record.account.root.chain if record else b""
        chain = self._digest(before or b"", piece)
        # A digest that collides could also hide another page before this one, so its digest is compared as well.
        equal = piece == found.tokens and found.parent is not None and found.parent.chain == before
        outcome = self._share(record, found, chain, equal)
        return self._answer("share", holder, page, outcome, {"chain": chain, "tokens_equal": equal})

    def drop(self, holder: str, page: int) -> PageReply:
        """Give up the holder's claim; physically the page is free only when no step may touch it (PAG-4)."""
        return self._answer("drop", holder, page, self._drop(self._holders.get(holder), self._page(page)))

    def _allocate(self, holder: Holder | None, page: Page) -> Outcome:
        if page.state is not FREE:
            return SINK_PAGE if page.state is SINK else NOT_FREE
        if holder is None or holder.promised <= 0:
            return NO_PROMISE
        holder.promised -= 1
        self._promised -= 1
        unlink(page)
        self._free -= 1
        self._private += 1
        page.state = PRIVATE
        page.holders.add(holder)
        holder.held[page] = None
        page.account = holder.account
        page.generation += 1
        self._seq += 1
        return GRANTED

    def _seal(self, holder: Holder | None, page: Page, tokens: bytes, parent: Page | None) -> Outcome:
        state = page.state
        if state is not PRIVATE and state is not SHARED:
            return SINK_PAGE if state is SINK else NOT_PRIVATE
        account = page.account
        if holder is None or holder not in page.holders or account is None:
            return NOT_HOLDER
        if parent is None:
            parent = account.root
        before = parent.chain if parent.account is account else None
        if state is SHARED:
            again = before is not None and page.chain is not None and page.chain == self._digest(before, tokens)
            return RECORDED if again else NOT_PRIVATE
        if not account.live:
            return RETIRED_SCOPE
        if not page.computed or page.spoiled or page.writers:
            return NOT_COMPUTED
        if before is None:
            return PARENT_UNPUBLISHED
        if parent.state is CACHED:
            return PARENT_NOT_HELD
        index = account.index
        chain = self._digest(before, tokens)
        if chain in index:
            return DUPLICATE
        if len(index) >= self._scope_limit:
            return SCOPE_CAPACITY
        index[chain] = page
        page.chain, page.tokens, page.parent = chain, tokens, parent
        parent.children += 1
        parent.busy += 1
        page.state = SHARED
        self._private -= 1
        self._shared += 1
        account.shared += 1
        self._seq += 1
        return PUBLISHED

    def _share(self, holder: Holder | None, page: Page, chain: bytes | None, equal: bool) -> Outcome:
        if holder is None:
            return NO_PROMISE
        account = holder.account
        if page.account is not account or page.chain is None or page.chain != chain or not account.live or not equal:
            return MISS
        state = page.state
        if state is SHARED:
            if holder in page.holders:
                return RECORDED
        else:
            if state is CACHED:
                if holder.promised <= 0:
                    return NO_PROMISE
                parent = self._parent(page)
                if parent.state is CACHED:
                    return PARENT_NOT_HELD
                parent.busy += 1
                holder.promised -= 1
                self._promised -= 1
                self._cached -= 1
                unlink(page)
            else:
                self._draining -= 1
            page.state = SHARED
            self._shared += 1
            account.shared += 1
        page.holders.add(holder)
        holder.held[page] = None
        self._seq += 1
        return GRANTED

    def _drop(self, holder: Holder | None, page: Page) -> Outcome:
        state = page.state
        if holder is None or holder not in page.holders:
            return SINK_PAGE if state is SINK else NOT_HOLDER
        page.holders.remove(holder)
        del holder.held[page]
        self._seq += 1
        if state is PRIVATE:
            self._private -= 1
        elif page.holders:
            return DROPPED
        else:
            self._shared -= 1
            holder.account.shared -= 1
        self._rest(page)
        return DROPPED

    def _rest(self, page: Page) -> None:
        """Put a page that nobody holds where it belongs: it drains, its content stays, or it is free."""
        if page.readers or page.writers or page.busy:
            page.state = DRAINING
            self._draining += 1
        elif page.chain is not None:
            page.state = CACHED
            self._cached += 1
            self._cached_list.append(page)
            self._less_busy(self._parent(page))
        else:
            self._scrub(page)

    def _scrub(self, page: Page) -> None:
        page.state = FREE
        page.account = None
        page.computed = page.spoiled = False
        self._free += 1
        self._free_list.push(page)

    def _less_busy(self, parent: Page) -> None:
        """A page that follows `parent` is cached or unpublished now."""
        parent.busy -= 1
        if not parent.busy and parent.state is DRAINING:
            self._idle[parent] = None

    def _parent(self, page: Page) -> Page:
        if page.parent is None:
            raise AssertionError(f"page {page.number} is in no index")
        return page.parent

    # --- evict, park ------------------------------------------------------------------------------------------------

    def evict(self, page: int) -> PageReply:
        """Take back the content of a page that nobody holds and no published page follows (PAG-8)."""
        record = self._page(page)
        if record.state is not CACHED:
            outcome = {SINK: SINK_PAGE, FREE: NOT_CACHED}.get(record.state, IN_USE)
        elif record.children:
            outcome = HAS_CHILDREN
        else:
            self._evict(record)
            outcome = RELEASED
        return self._answer("evict", None, page, outcome)

    def _evict(self, page: Page) -> None:
        unlink(page)
        self._cached -= 1
        self._unpublish(page)
        self._scrub(page)
        self._seq += 1

    def park(self, page: int) -> PageReply:
        """Let a draining page go on if it has nothing to wait for: no step, and no page after it that is in use."""
        return self._answer("park", None, page, self._park(self._page(page)))

    def _park(self, page: Page) -> Outcome:
        if page.state is not DRAINING:
            return SINK_PAGE if page.state is SINK else NOTHING_DUE
        if page.readers or page.writers:
            return IN_FLIGHT
        if page.busy:
            return IN_USE
        self._draining -= 1
        self._rest(page)
        self._seq += 1
        return SETTLED

    def _unpublish(self, page: Page) -> Page:
        """Clear index and tag together (PAG-8); return the page before it."""
        account, parent = page.account, page.parent
        if account is None or parent is None or page.chain is None:
            raise AssertionError(f"page {page.number} is in no index")
        del account.index[page.chain]
        page.chain, page.tokens, page.parent = None, b"", None
        parent.children -= 1
        if not parent.children and parent.after is parent and parent.state is CACHED:
            self._cached_list.push(parent)
        if not account.index:
            self._forget_unused(account)
        return parent

    def _oldest_leaf(self) -> Page:
        """Return the least recently held cached page that no published page follows.

        There is one for every promise: what follows a cached page is cached (PAG-1). A page with children that
        comes to the front is unlinked. It is older than all that stay, so it goes back to the front when its last
        child goes; each unlinking is paid for by one seal.
        """
        while (page := self._cached_list.first()) is not None and page.children:
            unlink(page)
        if page is None:
            raise AssertionError("a promised page is neither free nor evictable")
        return page

    # --- touch, settle ----------------------------------------------------------------------------------------------

    def touch(self, holder: str, page: int, write: bool) -> PageReply:
        """Launch a step of the holder that reads or writes the page."""
        record = self._page(page)
        outcome = self._touch_refusal(self._holders.get(holder), record, write)
        if outcome is LAUNCHED:
            self._touch(record, write)
        return self._answer("touch", holder, page, outcome, {"write": write})

    def settle(self, page: int, write: bool, ok: bool, filled: bool) -> PageReply:
        """End such a step; `filled`: it wrote the last slot of the page. Good or bad, it is the same end (PAG-4)."""
        outcome = self._settle(self._page(page), write, ok, filled)
        return self._answer("settle", None, page, outcome, {"write": write, "ok": ok, "filled": filled})

    def _touch_refusal(self, holder: Holder | None, page: Page, write: bool) -> Outcome:
        state = page.state
        if holder is None or holder not in page.holders:
            return SINK_PAGE if state is SINK else NOT_HOLDER
        return READ_ONLY if write and state is SHARED else LAUNCHED

    def _touch(self, page: Page, write: bool) -> None:
        if write:
            page.writers += 1
        else:
            page.readers += 1
        self._seq += 1

    def _settle(self, page: Page, write: bool, ok: bool, filled: bool) -> Outcome:
        if (page.writers if write else page.readers) <= 0:
            return SINK_PAGE if page.state is SINK else NOT_OUTSTANDING
        self._seq += 1
        if write:
            page.writers -= 1
            if page.state is PRIVATE:
                if not ok:
                    page.spoiled = True
                elif filled:
                    page.computed = True
                return SETTLED
        else:
            page.readers -= 1
        if page.state is DRAINING and not page.readers and not page.writers and not page.busy:
            self._draining -= 1
            self._rest(page)
        return SETTLED

    def _full_page(self, tokens: Sequence[int]) -> bytes:
        if len(tokens) != self.page_length:
            raise UserError(f"tokens: {len(tokens)} given, but a published page has {self.page_length}")
        return packed(tokens)
