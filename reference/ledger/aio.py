"""Any ledger from asyncio: the same calls, awaited, on the same code path as the synchronous ones.

A call runs in a thread of the front's own, since a store waits for locks and disks there. Nothing is decided here.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self, TypeVar

from kvescrow.reference.ledger.port import JournalEntry, Ledger, LedgerReply
from kvescrow.spec.vocabulary import Key, LedgerEvent, LedgerSnapshot, UserError

T = TypeVar("T")

THREADS = 64
"""Calls under way at once: as many as one group commit takes, so that all of them can share it."""


class AsyncLedger:
    """Awaits a `Ledger` without blocking the event loop; it may be used from one loop.

    A task that is cancelled while it waits stops waiting. Its event is decided all the same: ask again by its key,
    or cancel the reservation by an event of its own (LIF-7).
    """

    def __init__(self, ledger: Ledger, *, threads: int = THREADS) -> None:
        """Stand before `ledger`, which `close` closes; at most `threads` calls run at once, the others wait in order.

        Raises `UserError` for fewer than one thread.
        """
        if threads < 1:
            raise UserError(f"AsyncLedger.threads is {threads}: give at least 1")
        self._ledger = ledger
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="ledger calls")

    async def submit(self, event: LedgerEvent) -> LedgerReply:
        """Decide exactly one event; the reply comes when its change is durable."""
        return await self._call(lambda: self._ledger.submit(event))

    async def submit_many(self, events: Sequence[LedgerEvent]) -> list[LedgerReply]:
        """Decide `events` one after the other; their changes become durable together."""
        return await self._call(lambda: self._ledger.submit_many(events))

    async def journal(self, after: int = 0) -> list[JournalEntry]:
        """Return the changes with a commit number above `after`, in order."""
        return await self._call(lambda: self._ledger.journal(after))

    async def snapshot(self) -> LedgerSnapshot:
        """Return the whole projected state between two events."""
        return await self._call(self._ledger.snapshot)

    async def waiting(self) -> tuple[Key, ...]:
        """Return the queued keys, first come first."""
        return await self._call(self._ledger.waiting)

    async def due(self) -> list[LedgerEvent]:
        """Return the events that time has made due."""
        return await self._call(self._ledger.due)

    async def close(self) -> None:
        """Close the ledger after the calls that are under way; closing twice is harmless."""
        await asyncio.to_thread(self._close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _close(self) -> None:
        self._threads.shutdown(wait=True)
        self._ledger.close()

    async def _call(self, call: Callable[[], T]) -> T:
        try:
            future = self._threads.submit(call)
        except RuntimeError:
            raise UserError("this ledger is closed: open another") from None
        # Shielded, since a cancel would also withdraw a call that has not begun: whoever submits gets it decided.
        return await asyncio.shield(asyncio.wrap_future(future))
