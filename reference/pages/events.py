"""The page pool event by event: each method decides one event and applies it (PAG, SCO).

A method tests its refusals in the order in which they take precedence. What an event means, and why it is refused,
is the matter of the page and promise tables; this is the fast bookkeeping.
"""

from collections.abc import Sequence

from kvescrow.reference.pages.chain import Digest, chain_digest, packed, root_digest
from kvescrow.reference.pages.records import ROOT, Holder, Page, PageList, ScopeAccount, unlink
from kvescrow.reference.pages.replies import Outcome, PageEvent, PageReply, Recorder, granted, refused
from kvescrow.spec.vocabulary import Decision, PageState, PrefixScope, Reason, UserError

# Attributes of an enum are slow to read, and these are read several times a page.
SINK, FREE, PRIVATE = PageState.SINK, PageState.FREE, PageState.PRIVATE
SHARED, CACHED, DRAINING = PageState.SHARED, PageState.CACHED, PageState.DRAINING

GRANTED = granted(Decision.GRANTED)
DROPPED = granted(Decision.DROPPED)
PUBLISHED = granted(Decision.PUBLISHED)
LAUNCHED = granted(Decision.LAUNCHED)
SETTLED = granted(Decision.SETTLED)
RELEASED = granted(Decision.RELEASED)
EXTENDED = granted(Decision.EXTENDED)
NOTED = granted(Decision.NOTED)
RECORDED = granted(Decision.RECORDED)
MISS = granted(Decision.MISS)

SINK_PAGE = refused(Reason.SINK_PAGE)
NO_PROMISE = refused(Reason.NO_PROMISE)
NOT_FREE = refused(Reason.NOT_FREE)
NOT_PRIVATE = refused(Reason.NOT_PRIVATE)
NOT_HOLDER = refused(Reason.NOT_HOLDER)
NOT_COMPUTED = refused(Reason.NOT_COMPUTED)
NOT_CACHED = refused(Reason.NOT_CACHED)
NOT_OUTSTANDING = refused(Reason.NOT_OUTSTANDING)
RETIRED_SCOPE = refused(Reason.RETIRED_SCOPE)
PARENT_UNPUBLISHED = refused(Reason.PARENT_UNPUBLISHED)
DUPLICATE = refused(Reason.DUPLICATE)
SCOPE_CAPACITY = refused(Reason.SCOPE_CAPACITY)
HAS_CHILDREN = refused(Reason.HAS_CHILDREN)
IN_USE = refused(Reason.IN_USE)
READ_ONLY = refused(Reason.READ_ONLY)
LIVE = refused(Reason.LIVE)
MALFORMED = refused(Reason.MALFORMED)
NEVER_FITS = refused(Reason.NEVER_FITS)
POOL_CAPACITY = refused(Reason.POOL_CAPACITY)
CLOSED = refused(Reason.CLOSED)
UNKNOWN_KEY = refused(Reason.UNKNOWN_KEY)
HOLDING = refused(Reason.HOLDING)


class PageEvents:
    """Pages, promises and the prefix index, one event at a time.

    `pages` counts the sink, which is page 0; `page_length` is in tokens; `scope_limit` bounds the pages that one
    scope may publish (SCO-3), None leaves it to the pool. `recorder` sees every event in order. `digest` names the
    places of pages. A page number outside the pool, or tokens that do not fill a page, raise UserError.
    """

    def __init__(
        self,
        pages: int,
        page_length: int,
        scope_limit: int | None = None,
        *,
        recorder: Recorder | None = None,
        digest: Digest = chain_digest,
    ) -> None:
        for name, value, least in (
            ("pages", pages, 2),
            ("page_length", page_length, 1),
            ("scope_limit", 0 if scope_limit is None else scope_limit, 0),
        ):
            if not isinstance(value, int) or value < least:
                raise UserError(f"{name}: {value!r} is not an integer of {least} or more (page 0 is the sink)")
        self.page_length = page_length
        self.usable = pages - 1
        self._scope_limit = self.usable if scope_limit is None else scope_limit
        self._recorder = recorder
        self._digest = digest
        self._pages = [Page(number) for number in range(pages)]
        self._pages[0].state = SINK
        self._holders: dict[str, Holder] = {}
        self._closed: set[str] = set()
        self._accounts: dict[PrefixScope, ScopeAccount] = {}
        self._free_list = PageList()
        self._cached_list = PageList()
        """Least recently held first. A page with children that came to the front waits outside, see `_oldest_leaf`."""
        for page in self._pages[1:]:
            self._free_list.append(page)
        self._seq = 0
        self._free, self._private, self._shared, self._cached, self._draining = self.usable, 0, 0, 0, 0
        self._promised = 0

    @property
    def seq(self) -> int:
        """Commit number of the last change."""
        return self._seq

    # --- promises ---------------------------------------------------------------------------------------------------

    def admit(self, holder: str, scope: PrefixScope, units: int) -> PageReply:
        """Promise `units` pages to a new holder: new pages, and hits that nobody holds (PAG-1, PAG-5)."""
        available = self._available()
        outcome = self._admit(holder, scope, units)
        return self._promise_reply("admit", holder, outcome, available, units, {"units": units, "scope": scope})

    def grow(self, holder: str, units: int) -> PageReply:
        """Promise `units` more pages to an admitted holder (GRO-2)."""
        available = self._available()
        outcome = self._grow(holder, units)
        return self._promise_reply("grow", holder, outcome, available, units, {"units": units})

    def close(self, holder: str) -> PageReply:
        """Give back what the holder did not draw; it must hold no page any more (LIF-4)."""
        return self._answer("close", holder, None, self._close(holder))

    def _available(self) -> int:
        return self._free + self._cached - self._promised

    def _absent(self, holder: str) -> Outcome:
        return CLOSED if holder in self._closed else UNKNOWN_KEY

    def _admit(self, holder: str, scope: PrefixScope, units: int) -> Outcome:
        if holder in self._holders:
            return RECORDED
        if holder in self._closed:
            return CLOSED
        if units < 0:
            return MALFORMED
        if units > self.usable:
            return NEVER_FITS
        if units > self._available():
            return POOL_CAPACITY
        account = self._accounts.get(scope) or self._open_account(scope)
        account.holders += 1
        self._holders[holder] = Holder(holder, account, units)
        self._promised += units
        self._seq += 1
        return GRANTED

    def _grow(self, holder: str, units: int) -> Outcome:
        record = self._holders.get(holder)
        if record is None:
            return self._absent(holder)
        if units <= 0:
            return MALFORMED
        if units > self._available():
            return POOL_CAPACITY
        record.promised += units
        self._promised += units
        self._seq += 1
        return EXTENDED

    def _close(self, holder: str) -> Outcome:
        record = self._holders.get(holder)
        if record is None:
            return RECORDED if holder in self._closed else UNKNOWN_KEY
        if record.held:
            return HOLDING
        self._promised -= record.promised
        del self._holders[holder]
        self._closed.add(holder)
        record.account.holders -= 1
        self._forget_unused(record.account)
        self._seq += 1
        return RELEASED

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

    def _open_account(self, scope: PrefixScope) -> ScopeAccount:
        account = ScopeAccount(scope, Page(ROOT, chain=root_digest(scope)))
        account.root.account = account
        self._accounts[scope] = account
        return account

    def _forget_unused(self, account: ScopeAccount) -> None:
        if account.live and not account.holders and not account.index:
            self._accounts.pop(account.scope, None)

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
        self._unpublish(page)
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
        index = account.index
        chain = self._digest(before, tokens)
        if chain in index:
            return DUPLICATE
        if len(index) >= self._scope_limit:
            return SCOPE_CAPACITY
        index[chain] = page
        page.chain, page.tokens, page.parent = chain, tokens, parent
        parent.children += 1
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
        if page.readers or page.writers:
            page.state = DRAINING
            self._draining += 1
        elif page.chain is not None:
            page.state = CACHED
            self._cached += 1
            self._cached_list.append(page)
        else:
            self._scrub(page)

    def _scrub(self, page: Page) -> None:
        page.state = FREE
        page.account = None
        page.computed = page.spoiled = False
        self._free += 1
        self._free_list.push(page)

    # --- evict ------------------------------------------------------------------------------------------------------

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

    def _unpublish(self, page: Page) -> None:
        """Clear index and tag together (PAG-8)."""
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

    def _oldest_leaf(self) -> Page | None:
        """Return the least recently held cached page that no published page follows.

        A page with children that comes to the front is unlinked. It is older than all that stay, so it goes back
        to the front when its last child goes; each unlinking is paid for by one seal.
        """
        while (page := self._cached_list.first()) is not None and page.children:
            unlink(page)
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
        if page.state is DRAINING and not page.readers and not page.writers:
            self._draining -= 1
            self._rest(page)
        return SETTLED

    # --- replies ----------------------------------------------------------------------------------------------------

    def _page(self, number: int) -> Page:
        if not 0 <= number <= self.usable:
            raise UserError(f"page: {number} is not in the pool, which has pages 0 to {self.usable}")
        return self._pages[number]

    def _full_page(self, tokens: Sequence[int]) -> bytes:
        if len(tokens) != self.page_length:
            raise UserError(f"tokens: {len(tokens)} given, but a published page has {self.page_length}")
        return packed(tokens)

    def _promise_reply(
        self, event: str, holder: str, outcome: Outcome, available: int, asked: int, parameters: dict[str, object]
    ) -> PageReply:
        if self._recorder is not None:
            self._record(event, holder, None, outcome, parameters, self._seq)
        return PageReply(*outcome, self._seq, None, holder, available, asked)

    def _answer(
        self,
        event: str,
        holder: str | None,
        page: int | None,
        outcome: Outcome,
        parameters: dict[str, object] | None = None,
    ) -> PageReply:
        if self._recorder is not None:
            self._record(event, holder, page, outcome, parameters or {}, self._seq)
        return PageReply(*outcome, self._seq, page, holder)

    def _record(
        self,
        event: str,
        holder: str | None,
        page: int | None,
        outcome: Outcome,
        parameters: dict[str, object],
        seq: int,
    ) -> None:
        if self._recorder is not None:
            self._recorder(PageEvent(event, page, holder, parameters, *outcome, seq))
