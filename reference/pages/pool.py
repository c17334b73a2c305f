"""The page pool: whole requests and steps, each all or nothing, over the events of a page (ADM-10)."""

from kvescrow.reference.pages.batches import PageBatches
from kvescrow.reference.pages.chain import Tokens, packed, unpacked
from kvescrow.reference.pages.invariants import PoolState, check
from kvescrow.reference.pages.outcomes import CACHED, GRANTED, NO_PROMISE
from kvescrow.reference.pages.replies import Acquired, PageReply, PoolCounts
from kvescrow.spec.vocabulary import Decision, PageSnapshot, PoolSnapshot, PrefixScope, UserError


class PagePool(PageBatches):
    """A pool of KV pages of one worker.

    A holder's pages, in the order in which it got them, hold its sequence from the first token on. So does every
    request that takes its pages by `acquire` and `allocate`.

    A page that nobody holds drains while one that follows it is in use. `acquire`, `release`, `finish` and
    `retire_scope` park what has nothing to wait for any more. The events `drop`, `settle` and `retire_page` each do
    what they say and no more: who uses these calls `park`.
    """

    # --- requests ---------------------------------------------------------------------------------------------------

    def acquire(self, holder: str, scope: PrefixScope, tokens: Tokens, total_tokens: int) -> Acquired | PageReply:
        """Admit a request with the prompt `tokens`, share what is cached of it, and draw the rest of its pages.

        `total_tokens` is the prompt and the full allowed output (ADM-4). Everything that it may need is promised
        at once, hits that nobody holds included (PAG-5). Pages of the output are drawn later, by `allocate`. Any
        refusal is a PageReply and leaves no claim. Raises UserError where the numbers make no request.
        """
        prompt = self._prompt(tokens)
        if total_tokens < len(tokens):
            raise UserError(f"total_tokens: {total_tokens} is less than the prompt's {len(tokens)}")
        self._park_idle()
        hits = self._match(self._accounts.get(scope), prompt)
        revived = sum([page.state is CACHED for page in hits])
        units = self._pages_for(total_tokens) - len(hits) + revived
        reply = self.admit(holder, scope, units)
        if reply.decision is not Decision.GRANTED:
            return reply
        record = self._holders[holder]
        # Hits come first: from then on they cannot be evicted for the pages that are drawn (PAG-9).
        self._take(record, hits)
        self._draw(record, self._pages_for(len(tokens)) - len(hits))
        pages = tuple([page.number for page in record.held])
        return Acquired(pages, len(hits) * self.page_length, record.promised, self._seq)

    def allocate(self, holder: str, page: int | None = None) -> PageReply:
        """Draw one promised page; None: any, where need be the least recently held leaf after its eviction."""
        record = self._holders.get(holder)
        if page is not None:
            return self._answer("allocate", holder, page, self._allocate(record, self._page(page)))
        if record is None or record.promised <= 0:
            return self._answer("allocate", holder, None, NO_PROMISE)
        (drawn,) = self._draw(record, 1)
        return PageReply(*GRANTED, self._seq, drawn.number, holder)

    def publish(self, holder: str, tokens: Tokens) -> int:
        """Seal the holder's computed pages from the front, and return how many of its first pages are published.

        `tokens` is the sequence so far; a page that it does not fill stays private. It stops at the first page
        that is not computed or not accepted: a duplicate's successors stay private too, since their chain would
        hang on a page that the holder does not hold.
        """
        record = self._holders.get(holder)
        return 0 if record is None else self._publish(record, packed(tokens))

    def release(self, holder: str) -> PageReply:
        """Drop all pages of the holder, the last first, so that the ends of chains are evicted first; close it."""
        record = self._holders.get(holder)
        if record is not None:
            self._give_up(record)
            self._park_idle()
        return self.close(holder)

    def lookup(self, scope: PrefixScope, tokens: Tokens) -> int:
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
            if parent is not None and not parent.children and parent.number > 0:
                leaves.append(parent)
        self._park_idle()
        return PageReply(reply.decision, reply.reason, self._seq, reply.page)

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
                idle=tuple(self._idle),
                counts=self.counts(),
                scope_limit=self._scope_limit,
            )
        )

    def _pages_for(self, tokens: int) -> int:
        return -(-tokens // self.page_length)

    def _prompt(self, tokens: Tokens) -> bytes:
        if len(tokens) == 0:
            raise UserError("tokens: a prompt has at least one")
        return packed(tokens)
