"""The page pool: whole requests and steps, each all or nothing, over the events of a page (ADM-10)."""

from collections.abc import Sequence

from attrs import frozen

from kvescrow.reference.pages.chain import TOKEN_BYTES, packed, unpacked
from kvescrow.reference.pages.events import (
    CACHED,
    DROPPED,
    GRANTED,
    LAUNCHED,
    NO_PROMISE,
    NOT_FREE,
    PUBLISHED,
    RELEASED,
    PageEvents,
)
from kvescrow.reference.pages.invariants import PoolState, check
from kvescrow.reference.pages.records import Holder, Page, ScopeAccount
from kvescrow.reference.pages.replies import Acquired, Outcome, PageReply, PoolCounts
from kvescrow.spec.vocabulary import Decision, PageSnapshot, PoolSnapshot, PrefixScope, UserError


@frozen
class PageUse:
    """What one execution does to its pages in one launched step. A page may be read and written."""

    holder: str
    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    filled: frozenset[int] = frozenset()
    """Those of `writes` whose last slot the step writes."""


class PagePool(PageEvents):
    """A pool of KV pages of one worker.

    A holder's pages, in the order in which it got them, hold its sequence from the first token on. So does every
    request that takes its pages by `acquire` and `allocate`.
    """

    # --- requests ---------------------------------------------------------------------------------------------------

    def acquire(
        self, holder: str, scope: PrefixScope, tokens: Sequence[int], total_tokens: int
    ) -> Acquired | PageReply:
        """Admit a request with the prompt `tokens`, share what is cached of it, and draw the rest of its pages.

        `total_tokens` is the prompt and the full allowed output (ADM-4). Everything that it may need is promised
        at once, hits that nobody holds included (PAG-5). Pages of the output are drawn later, by `allocate`. Any
        refusal is a PageReply and leaves no claim. Raises UserError where the numbers make no request.
        """
        prompt = self._prompt(tokens)
        if total_tokens < len(tokens):
            raise UserError(f"total_tokens: {total_tokens} is less than the prompt's {len(tokens)}")
        hits = self._match(self._accounts.get(scope), prompt)
        revived = sum(page.state is CACHED for page in hits)
        units = self._pages_for(total_tokens) - len(hits) + revived
        reply = self.admit(holder, scope, units)
        if reply.decision is not Decision.GRANTED:
            return reply
        record = self._holders[holder]
        refusal = self._take(record, hits, self._pages_for(len(tokens)) - len(hits))
        if refusal is not None:
            self.release(holder)
            self.forget(holder)
            return PageReply(*refusal, self._seq, None, holder, reply.available, units)
        return Acquired(
            tuple(page.number for page in record.held), len(hits) * self.page_length, record.promised, self._seq
        )

    def allocate(self, holder: str, page: int | None = None) -> PageReply:
        """Draw one promised page; None: any, where need be the least recently held leaf after its eviction."""
        record = self._holders.get(holder)
        if page is not None:
            return self._answer("allocate", holder, page, self._allocate(record, self._page(page)))
        if record is None or record.promised <= 0:
            return self._answer("allocate", holder, None, NO_PROMISE)
        drawn = self._draw(record)
        return PageReply(
            *(NOT_FREE if drawn is None else GRANTED), self._seq, None if drawn is None else drawn.number, holder
        )

    def publish(self, holder: str, tokens: Sequence[int]) -> int:
        """Seal the holder's computed pages from the front, and return how many of its first pages are published.

        `tokens` is the sequence so far; a page that it does not fill stays private. It stops at the first page
        that is not computed or not accepted: a duplicate's successors stay private too, since their chain would
        hang on a page that the holder does not hold.
        """
        record = self._holders.get(holder)
        sequence = packed(tokens)
        width = self.page_length * TOKEN_BYTES
        parent: Page | None = None
        end = 0
        for done, page in enumerate(record.held if record else ()):
            start, end = end, end + width
            if page.chain is None:
                if end > len(sequence) or not page.computed or page.writers:
                    return done
                piece = sequence[start:end]
                outcome = self._seal(record, page, piece, parent)
                if self._recorder is not None:
                    before = None if parent is None else parent.number
                    self._record("seal", holder, page.number, outcome, {"tokens": unpacked(piece), "parent": before})
                if outcome is not PUBLISHED:
                    return done
            parent = page
        return len(record.held) if record else 0

    def release(self, holder: str) -> PageReply:
        """Drop all pages of the holder, the last first, so that the ends of chains are evicted first; close it."""
        record = self._holders.get(holder)
        if record is not None:
            for page in list(record.held)[::-1]:
                self._drop(record, page)
                if self._recorder is not None:
                    self._record("drop", holder, page.number, DROPPED)
        return self.close(holder)

    def forget(self, holder: str) -> None:
        """Forget that a closed holder was here. Its owner may do so after the ledger has confirmed the stop,
        since a generation is never used again (IDN-5); until then a late event finds it closed.
        """
        self._closed.discard(holder)

    def lookup(self, scope: PrefixScope, tokens: Sequence[int]) -> int:
        """Return how many first tokens of a prompt are cached now for `scope`; nothing is pinned (PAG-9)."""
        return len(self._match(self._accounts.get(scope), self._prompt(tokens))) * self.page_length

    def retire_scope(self, scope: PrefixScope) -> PageReply:
        """Close `scope` and take all its pages out of the index, leaves first; holders keep theirs (SCO-5)."""
        reply = self.close_scope(scope)
        leaves = [page for page in self._accounts[scope].index.values() if not page.children]
        while leaves:
            page = leaves.pop()
            parent = page.parent
            self.retire_page(scope, page.number)
            if parent is not None and parent.chain is not None and not parent.children and parent.number > 0:
                leaves.append(parent)
        return PageReply(reply.decision, reply.reason, self._seq, reply.page)

    # --- steps ------------------------------------------------------------------------------------------------------

    def launch(self, uses: Sequence[PageUse]) -> PageReply:
        """Touch every page that a step lists, or none: the first refusal is the answer."""
        refusal = self._first_refusal(uses)
        if refusal is not None:
            return refusal
        for use in uses:
            for write, numbers in ((False, use.reads), (True, use.writes)):
                for number in numbers:
                    self._touch(self._pages[number], write)
                    if self._recorder is not None:
                        self._record("touch", use.holder, number, LAUNCHED, {"write": write})
        return PageReply(*LAUNCHED, self._seq)

    def finish(self, uses: Sequence[PageUse], ok: bool) -> None:
        """Settle every page of a launched step; with `ok` false what it wrote is never published (PAG-6)."""
        for use in uses:
            for write, numbers in ((False, use.reads), (True, use.writes)):
                for number in numbers:
                    filled = write and number in use.filled
                    outcome = self._settle(self._page(number), write, ok, filled)
                    if self._recorder is not None:
                        parameters: dict[str, object] = {"write": write, "ok": ok, "filled": filled}
                        self._record("settle", None, number, outcome, parameters)

    def _first_refusal(self, uses: Sequence[PageUse]) -> PageReply | None:
        for use in uses:
            holder = self._holders.get(use.holder)
            for write, numbers in ((False, use.reads), (True, use.writes)):
                for number in numbers:
                    outcome = self._touch_refusal(holder, self._page(number), write)
                    if outcome is not LAUNCHED:
                        return self._answer("touch", use.holder, number, outcome, {"write": write})
        return None

    # --- what the pool is -------------------------------------------------------------------------------------------

    def chain(self, page: int) -> bytes | None:
        """Return the digest under which `page` is published; None where it is not."""
        return self._page(page).chain

    def pages_of(self, holder: str) -> tuple[int, ...]:
        """Return the pages of an admitted holder in the order in which it got them."""
        record = self._holders.get(holder)
        return () if record is None else tuple(page.number for page in record.held)

    def counts(self) -> PoolCounts:
        """Return pages by state and promised units."""
        return PoolCounts(
            self.usable, self._free, self._private, self._shared, self._cached, self._draining, self._promised
        )

    def snapshot(self) -> PoolSnapshot:
        """Return the whole projected state."""
        return PoolSnapshot(
            pages=tuple(
                PageSnapshot(
                    state=page.state,
                    holders=frozenset(holder.name for holder in page.holders),
                    readers=page.readers,
                    writers=page.writers,
                    generation=page.generation,
                    scope=None if page.account is None else page.account.scope,
                    tokens=unpacked(page.tokens),
                )
                for page in self._pages
            ),
            promised={holder.name: holder.promised for holder in self._holders.values()},
        )

    def check(self) -> None:
        """Compute every invariant of the page and promise tables anew; raises BrokenInvariant with its name."""
        check(
            PoolState(
                pages=tuple(self._pages),
                holders=self._holders,
                accounts=self._accounts,
                free_list=tuple(self._free_list),
                cached_list=tuple(self._cached_list),
                counts=self.counts(),
                scope_limit=self._scope_limit,
            )
        )

    # --- how --------------------------------------------------------------------------------------------------------

    def _pages_for(self, tokens: int) -> int:
        return -(-tokens // self.page_length)

    def _prompt(self, tokens: Sequence[int]) -> bytes:
        if not tokens:
            raise UserError("tokens: a prompt has at least one")
        return packed(tokens)

    def _match(self, account: ScopeAccount | None, prompt: bytes) -> list[Page]:
        """Walk the index over the full pages of `prompt` but its last token, up to the first hole (PAG-7, PAG-8)."""
        if account is None or not account.live:
            return []
        hits: list[Page] = []
        index, digest, width = account.index, self._digest, self.page_length * TOKEN_BYTES
        parent, chain = account.root, account.root.chain or b""
        for end in range(width, len(prompt), width):
            piece = prompt[end - width : end]
            chain = digest(chain, piece)
            page = index.get(chain)
            if page is None or page.parent is not parent or page.tokens != piece:
                break
            hits.append(page)
            parent = page
        return hits

    def _take(self, holder: Holder, hits: Sequence[Page], fresh: int) -> Outcome | None:
        """Share `hits`, then draw `fresh` pages. Hits come first: from then on they cannot be evicted (PAG-9)."""
        for page in hits:
            outcome = self._share(holder, page, page.chain, True)
            if self._recorder is not None:
                self._record("share", holder.name, page.number, outcome, {"chain": page.chain, "tokens_equal": True})
        for _ in range(fresh):
            if self._draw(holder) is None:
                return NOT_FREE
        return None

    def _draw(self, holder: Holder) -> Page | None:
        page = self._free_list.first()
        if page is None:
            page = self._oldest_leaf()
            if page is None:
                return None
            self._evict(page)
            if self._recorder is not None:
                self._record("evict", None, page.number, RELEASED)
        self._allocate(holder, page)
        if self._recorder is not None:
            self._record("allocate", holder.name, page.number, GRANTED)
        return page
