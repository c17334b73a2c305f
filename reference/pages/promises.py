"""The records of a pool, and the promises in it: admission, growth, close (PAG-1, ADM-10).

A method tests its refusals in the order in which they take precedence. What an event means, and why it is refused,
is the matter of the promise table; this is the fast bookkeeping.
"""

from kvescrow.reference.pages.chain import Digest, chain_digest, root_digest
from kvescrow.reference.pages.outcomes import (
    CLOSED,
    EXTENDED,
    FORGOTTEN,
    GRANTED,
    HOLDING,
    LIVE,
    MALFORMED,
    NEVER_FITS,
    POOL_CAPACITY,
    RECORDED,
    RELEASED,
    SINK,
    UNKNOWN_KEY,
)
from kvescrow.reference.pages.records import ROOT, Holder, Page, PageList, ScopeAccount
from kvescrow.reference.pages.replies import Outcome, PageEvent, PageReply, Recorder
from kvescrow.spec.vocabulary import PrefixScope, UserError


class PoolRecords:
    """Pages, promises and the prefix index of one pool, and the events of promises.

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
            if type(value) is not int or value < least:
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
        self._idle: dict[Page, None] = {}
        """Every page that drains though it has nothing to wait for any more; others may be among them."""
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
        _check_units(units)
        available = self._available()
        outcome = self._admit(holder, scope, units)
        return self._promise_reply("admit", holder, outcome, available, units, {"units": units, "scope": scope})

    def grow(self, holder: str, units: int) -> PageReply:
        """Promise `units` more pages to an admitted holder (GRO-2)."""
        _check_units(units)
        available = self._available()
        outcome = self._grow(holder, units)
        return self._promise_reply("grow", holder, outcome, available, units, {"units": units})

    def close(self, holder: str) -> PageReply:
        """Give back what the holder did not draw; it must hold no page any more (LIF-4)."""
        return self._answer("close", holder, None, self._close(holder))

    def forget(self, holder: str) -> PageReply:
        """Forget that a closed holder was here, so that its name may be used anew.

        Its owner may do so after the ledger has confirmed the stop, since nothing late can come then (IDN-5); until
        then a late event finds it closed.
        """
        return self._answer("forget", holder, None, self._forget(holder))

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

    def _forget(self, holder: str) -> Outcome:
        if holder in self._holders:
            return LIVE
        if holder not in self._closed:
            return UNKNOWN_KEY
        self._closed.remove(holder)
        self._seq += 1
        return FORGOTTEN

    # --- scopes' accounts -------------------------------------------------------------------------------------------

    def _open_account(self, scope: PrefixScope) -> ScopeAccount:
        account = ScopeAccount(scope, Page(ROOT, chain=root_digest(scope)))
        account.root.account = account
        self._accounts[scope] = account
        return account

    def _forget_unused(self, account: ScopeAccount) -> None:
        if account.live and not account.holders and not account.index:
            self._accounts.pop(account.scope, None)

    # --- replies ----------------------------------------------------------------------------------------------------

    def _page(self, number: int) -> Page:
        if not 0 <= number <= self.usable:
            raise UserError(f"page: {number} is not in the pool, which has pages 0 to {self.usable}")
        return self._pages[number]

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


def _check_units(units: int) -> None:
    if type(units) is not int:
        raise UserError(f"units is {units!r}: give an integer of pages")
