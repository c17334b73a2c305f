"""Many pages at once: the events of whole requests and steps, in one loop each.

A loop here decides and applies exactly what the same events would, one after the other, and numbers and records them
so; a test repeats recorded runs event by event. It costs a third, since counters are moved once and nothing is
looked up twice: a request of a thousand tokens has about three hundred page events.
"""

from collections.abc import Sequence

from attrs import frozen

from kvescrow.reference.pages.chain import TOKEN_BYTES, unpacked
from kvescrow.reference.pages.events import PageEvents
from kvescrow.reference.pages.outcomes import (
    CACHED,
    DRAINING,
    DROPPED,
    DUPLICATE,
    GRANTED,
    LAUNCHED,
    PRIVATE,
    PUBLISHED,
    RELEASED,
    SCOPE_CAPACITY,
    SETTLED,
    SHARED,
)
from kvescrow.reference.pages.records import ROOT, Holder, Page, ScopeAccount
from kvescrow.reference.pages.replies import Outcome, PageReply
from kvescrow.spec.vocabulary import UserError


@frozen
class PageUse:
    """What one execution does to its pages in one launched step. A page may be read and written."""

    holder: str
    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    filled: frozenset[int] = frozenset()
    """Those of `writes` whose last slot the step writes."""


Told = tuple[str, str | None, Page, Outcome, dict[str, object]]
"""An event for the recorder: its name, holder, page, outcome and parameters."""


class PageBatches(PageEvents):
    """The loops."""

    # --- requests ---------------------------------------------------------------------------------------------------

    def _match(self, account: ScopeAccount | None, prompt: bytes) -> list[Page]:
        """Walk the index over the full pages of `prompt` but its last token, up to the first hole (PAG-7, PAG-8).

        A hit is a page whose tokens are equal and whose page before is the last hit, so the whole chain is compared.
        """
        if account is None or not account.live:
            return []
        hits: list[Page] = []
        find, digest, width = account.index.get, self._digest, self.page_length * TOKEN_BYTES
        before, chain = account.root, account.root.chain or b""
        for start in range(0, len(prompt) - width, width):
            piece = prompt[start : start + width]
            chain = digest(chain, piece)
            page = find(chain)
            if page is None or page.parent is not before or page.tokens != piece:
                break
            hits.append(page)
            before = page
        return hits

    def _take(self, holder: Holder, hits: Sequence[Page]) -> None:
        """Share `hits`, a chain from its front, with a new holder that has a unit for each that nobody holds."""
        revived = rescued = 0
        held, parent = holder.held, holder.account.root
        for page in hits:
            if page.state is not SHARED:
                if page.state is CACHED:
                    parent.busy += 1
                    before, after = page.before, page.after
                    before.after, after.before = after, before
                    page.before = page.after = page
                    revived += 1
                else:
                    rescued += 1
                page.state = SHARED
            page.holders.add(holder)
            held[page] = None
            parent = page
        holder.promised -= revived
        holder.account.shared += revived + rescued
        self._promised -= revived
        self._cached -= revived
        self._draining -= rescued
        self._shared += revived + rescued
        first = self._seq
        self._seq += len(hits)
        if self._recorder is not None:
            hit = {"tokens_equal": True}
            self._tell(first, [("share", holder.name, page, GRANTED, {"chain": page.chain, **hit}) for page in hits])

    def _draw(self, holder: Holder, wanted: int) -> list[Page]:
        """Draw `wanted` promised pages, evicting the least recently held leaf where none is free."""
        drawn: list[Page] = []
        account, held, unpublish = holder.account, holder.held, self._unpublish
        no_free, cached = self._free_list.end, self._cached_list.end
        evicted = 0
        for _ in range(wanted):
            page = no_free.after
            if page is no_free:
                page = cached.after
                if page is cached or page.children:
                    page = self._oldest_leaf()
                unpublish(page)
                page.computed = False
                evicted += 1
            before, after = page.before, page.after
            before.after, after.before = after, before
            page.before = page.after = page
            page.state = PRIVATE
            page.account = account
            page.generation += 1
            page.holders.add(holder)
            held[page] = None
            drawn.append(page)
        holder.promised -= wanted
        self._promised -= wanted
        self._free -= wanted - evicted
        self._cached -= evicted
        self._private += wanted
        first = self._seq
        self._seq += wanted + evicted
        if self._recorder is not None:
            self._tell_drawn(first, holder, drawn[: wanted - evicted], drawn[wanted - evicted :])
        return drawn

    def _tell_drawn(self, first: int, holder: Holder, free: Sequence[Page], evicted: Sequence[Page]) -> None:
        told: list[Told] = [("allocate", holder.name, page, GRANTED, {}) for page in free]
        for page in evicted:
            told += [("evict", None, page, RELEASED, {}), ("allocate", holder.name, page, GRANTED, {})]
        self._tell(first, told)

    def _publish(self, holder: Holder, sequence: bytes) -> int:
        """Seal the holder's computed pages from the front; return how many of its first pages are published."""
        account, width = holder.account, self.page_length * TOKEN_BYTES
        index, digest, limit = account.index, self._digest, self._scope_limit
        before, chain = account.root, account.root.chain or b""
        start = done = 0
        size = len(sequence) if account.live else 0
        sealed: list[Page] = []
        refusal: Outcome | None = None
        for page in holder.held:
            end = start + width
            if page.chain is not None:
                chain = page.chain
            elif end > size or not page.computed or page.spoiled or page.writers:
                break
            else:
                piece = sequence[start:end]
                chain = digest(chain, piece)
                if len(index) >= limit:
                    refusal = DUPLICATE if chain in index else SCOPE_CAPACITY
                    break
                if index.setdefault(chain, page) is not page:
                    refusal = DUPLICATE
                    break
                page.chain, page.tokens, page.parent = chain, piece, before
                page.state = SHARED
                before.children += 1
                before.busy += 1
                sealed.append(page)
            before = page
            start = end
            done += 1
        account.shared += len(sealed)
        self._private -= len(sealed)
        self._shared += len(sealed)
        first = self._seq
        self._seq += len(sealed)
        if self._recorder is not None:
            told = [_seal_told(holder, page, page.tokens, page.parent, PUBLISHED) for page in sealed]
            if refusal is not None:
                told.append(_seal_told(holder, page, sequence[start:end], before, refusal))
            self._tell(first, told)
        return done

    def _give_up(self, holder: Holder) -> None:
        """Drop all pages of the holder, the last first."""
        private = shared = draining = 0
        cached: list[Page] = []
        held = holder.held
        for page in reversed(held):
            holders = page.holders
            holders.remove(holder)
            if holders:
                continue
            if page.state is PRIVATE:
                private += 1
            else:
                shared += 1
            if page.readers or page.writers or page.busy:
                page.state = DRAINING
                draining += 1
            elif (parent := page.parent) is not None:
                page.state = CACHED
                cached.append(page)
                parent.busy -= 1
                if not parent.busy and parent.state is DRAINING:
                    self._idle[parent] = None
            else:
                self._scrub(page)
        self._cached_list.extend(cached)
        holder.account.shared -= shared
        self._private -= private
        self._shared -= shared
        self._cached += len(cached)
        self._draining += draining
        dropped = list(held)[::-1]
        held.clear()
        first = self._seq
        self._seq += len(dropped)
        if self._recorder is not None:
            self._tell(first, [("drop", holder.name, page, DROPPED, {}) for page in dropped])

    def _park_idle(self) -> None:
        """Park every page that drains though it has nothing to wait for, and so on up its chain."""
        idle, first = self._idle, self._seq
        if not idle:
            return
        parked: list[Page] = []
        while idle:
            page, _ = idle.popitem()
            if self._park(page) is SETTLED:
                parked.append(page)
        if self._recorder is not None:
            self._tell(first, [("park", None, page, SETTLED, {}) for page in parked])

    # --- steps ------------------------------------------------------------------------------------------------------

    def launch(self, uses: Sequence[PageUse]) -> PageReply:
        """Touch every page that a step lists, or none: the first refusal is the answer."""
        refusal = self._first_refusal(uses)
        if refusal is not None:
            return refusal
        pages, first = self._pages, self._seq
        for use in uses:
            for number in use.reads:
                pages[number].readers += 1
            for number in use.writes:
                pages[number].writers += 1
            self._seq += len(use.reads) + len(use.writes)
        if self._recorder is not None:
            self._tell(first, [
                ("touch", use.holder, pages[number], LAUNCHED, {"write": write})
                for use in uses
                for write, numbers in ((False, use.reads), (True, use.writes))
                for number in numbers
            ])  # fmt: skip
        return PageReply(*LAUNCHED, self._seq)

    def finish(self, uses: Sequence[PageUse], ok: bool) -> None:
        """Settle every page of a launched step; with `ok` false what it wrote is never published (PAG-6).

        Pages that drained for those of the step are parked.
        """
        for use in uses:
            self._in_pool(use.reads)
            self._in_pool(use.writes)
        pages, settle, first = self._pages, self._settle, self._seq
        told: list[Told] | None = None if self._recorder is None else []
        for use in uses:
            filled = use.filled
            for number in use.reads:
                outcome = settle(pages[number], False, ok, False)
                if told is not None:
                    told.append(_settle_told(pages[number], outcome, False, ok, False))
            for number in use.writes:
                outcome = settle(pages[number], True, ok, number in filled)
                if told is not None:
                    told.append(_settle_told(pages[number], outcome, True, ok, number in filled))
        self._tell(first, told or ())
        self._park_idle()

    def _first_refusal(self, uses: Sequence[PageUse]) -> PageReply | None:
        pages = self._pages
        for use in uses:
            holder = self._holders.get(use.holder)
            self._in_pool(use.reads)
            self._in_pool(use.writes)
            for number in use.reads:
                if holder not in pages[number].holders:
                    return self._refuse_touch(use.holder, number, False)
            for number in use.writes:
                page = pages[number]
                if page.state is not PRIVATE or holder not in page.holders:
                    return self._refuse_touch(use.holder, number, True)
        return None

    def _refuse_touch(self, holder: str, number: int, write: bool) -> PageReply:
        outcome = self._touch_refusal(self._holders.get(holder), self._pages[number], write)
        return self._answer("touch", holder, number, outcome, {"write": write})

    def _in_pool(self, numbers: tuple[int, ...]) -> None:
        """Raise UserError where a number is no page's; a negative one would silently count from the end."""
        if numbers and not 0 <= min(numbers) <= max(numbers) <= self.usable:
            raise UserError(f"page: {numbers} are not all in the pool, which has pages 0 to {self.usable}")

    # --- the recorder -----------------------------------------------------------------------------------------------

    def _tell(self, first: int, told: Sequence[Told]) -> None:
        """Tell the recorder of changes that are all made: a recorder that raises leaves a whole pool behind.

        `first` is the commit number before them.
        """
        seq = first
        for event, holder, page, outcome, parameters in told:
            seq += not outcome.decision.changes_nothing
            self._record(event, holder, page.number, outcome, parameters, seq)


def _seal_told(holder: Holder, page: Page, tokens: bytes, parent: Page | None, outcome: Outcome) -> Told:
    before = None if parent is None or parent.number == ROOT else parent.number
    return "seal", holder.name, page, outcome, {"tokens": unpacked(tokens), "parent": before}


def _settle_told(page: Page, outcome: Outcome, write: bool, ok: bool, filled: bool) -> Told:
    return "settle", None, page, outcome, {"write": write, "ok": ok, "filled": filled}
