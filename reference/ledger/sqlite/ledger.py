"""The ledger in one SQLite file, and the one thread that decides and commits for it."""

import queue
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from threading import Lock, Thread
from typing import TypeVar

from attrs import define, field

from kvescrow.reference.ledger.port import (
    Clock,
    JournalEntry,
    LedgerConfig,
    LedgerReply,
    Recorder,
    StorageError,
)
from kvescrow.reference.ledger.sqlite.file import LedgerFile
from kvescrow.reference.ledger.sqlite.rows import check_storable
from kvescrow.reference.receipts import Keyring
from kvescrow.spec.vocabulary import Key, LedgerEvent, LedgerSnapshot, UserError

T = TypeVar("T")

LARGEST_GROUP = 64
"""Events in one commit, at most, unless one call brings more: bounds how long the first of them waits."""
LONGEST_GATHERING = 0.002
"""Seconds spent at most on gathering a group. It ends at once when nobody else is waiting."""


@define
class _Group:
    """The events of one call, and what they came to."""

    events: Sequence[LedgerEvent]
    answer: "Future[list[LedgerReply]]" = field(factory=Future)
    entries: list[JournalEntry] = field(factory=list)
    error: Exception | None = None
    """What stopped the group before its last event."""


@define
class _Read:
    """A question that is answered between two commits, so that it sees nothing that may still be undone."""

    ask: Callable[[], None]


class SqliteLedger:
    """A durable `Ledger`: each reply comes after the commit of its change, and a killed process loses none of them.

    One process at a time has the file. Calls from any number of threads meet in one writer thread; those that wait
    at the same moment share one transaction. The books in memory are the file's, rebuilt and compared at each
    opening and after each failed commit, so they never run ahead of the disk.
    """

    def __init__(
        self,
        path: "Path | str",
        config: LedgerConfig,
        *,
        keyring: Keyring | None = None,
        clock: Clock | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        """Open the ledger at `path`, or begin it under `config`.

        An existing file keeps its limits, budgets and clock. The options are those of `MemoryLedger`; `recorder`
        sees an event after its commit. Raises `StorageError` where the file is in use, damaged, of another pool, or
        does not add up. Integers in events are limited to 62 bits.
        """
        self._file = LedgerFile(Path(path), config, keyring)
        try:
            self._file.check()
            self._books = self._file.load()
            self._file.adopt_config(self._books)
        except BaseException:
            self._file.close()
            raise
        self._clock = clock
        self._recorder = recorder
        self._broken: StorageError | None = None
        self._inbox: queue.SimpleQueue[_Group | _Read | None] = queue.SimpleQueue()
        # Whatever is put in under the gate comes before the writer's end, so no caller waits for ever.
        self._gate = Lock()
        self._closed = False
        self._writer = Thread(target=self._write, name=f"ledger {path}", daemon=True)
        self._writer.start()

    def submit(self, event: LedgerEvent) -> LedgerReply:
        """Decide exactly one event; return when its change is on disk."""
        return self.submit_many([event])[0]

    def submit_many(self, events: Sequence[LedgerEvent]) -> list[LedgerReply]:
        """Decide `events` one after the other, with no other event between them, and commit them together."""
        for event in events:
            check_storable(event)
        group = _Group(list(events))
        self._send(group)
        return group.answer.result()

    def journal(self, after: int = 0) -> list[JournalEntry]:
        """Return the changes with a commit number above `after`."""
        return self._read(lambda: self._file.entries(after))

    def snapshot(self) -> LedgerSnapshot:
        """Return the whole projected state, as committed."""
        return self._read(self._snapshot)

    def waiting(self) -> tuple[Key, ...]:
        """Return the queued keys, first come first."""
        return self._read(self._waiting)

    def due(self) -> list[LedgerEvent]:
        """Return the events that time has made due."""
        return self._read(self._due)

    def close(self) -> None:
        """Commit what was submitted, keep the clock's reading, and let other processes have the file."""
        with self._gate:
            if not self._closed:
                self._closed = True
                self._inbox.put(None)
        self._writer.join()

    def _send(self, request: "_Group | _Read") -> None:
        with self._gate:
            if self._closed:
                raise UserError("this ledger is closed: open another")
            self._inbox.put(request)

    def _read(self, ask: Callable[[], T]) -> T:
        answer: Future[T] = Future()

        def run() -> None:
            try:
                if self._broken is not None:
                    raise self._broken
                answer.set_result(ask())
            except Exception as error:
                answer.set_exception(error)

        self._send(_Read(run))
        return answer.result()

    # --- What follows runs in the writer thread alone ---------------------------------------------------------------

    def _write(self) -> None:
        request = self._inbox.get()
        while request is not None:
            if isinstance(request, _Read):
                request.ask()
                request = self._inbox.get()
                continue
            groups, following = self._gather(request)
            self._serve(groups)
            request = following if following is not _NOTHING else self._inbox.get()
        self._end()

    def _gather(self, first: _Group) -> "tuple[list[_Group], _Group | _Read | None]":
        """Return the groups that wait now, and the request after them, which must wait for their commit."""
        groups, events = [first], len(first.events)
        until = time.monotonic() + LONGEST_GATHERING
        while events < LARGEST_GROUP and time.monotonic() < until:
            try:
                request = self._inbox.get_nowait()
            except queue.Empty:
                break
            if not isinstance(request, _Group):
                return groups, request
            groups.append(request)
            events += len(request.events)
        return groups, _NOTHING

    def _serve(self, groups: Sequence[_Group]) -> None:
        """Decide all events, commit what they changed, and only then answer."""
        try:
            if self._broken is not None:
                raise self._broken
            for group in groups:
                self._decide(group)
            entries = [entry for group in groups for entry in group.entries]
            changes = [entry for entry in entries if not entry.reply.decision.changes_nothing]
            if changes:
                self._commit(changes)
        except Exception as error:
            for group in groups:
                group.answer.set_exception(error)
            return
        for group in groups:
            self._answer(group)

    def _decide(self, group: _Group) -> None:
        for event in group.events:
            try:
                self._read_clock()
                group.entries.append(self._books.handle(event))
            except Exception as error:
                # Events before it stay decided, as they would with a call for each.
                group.error = error
                return

    def _commit(self, changes: Sequence[JournalEntry]) -> None:
        try:
            self._file.save(changes, self._books)
        except Exception:
            self._rebuild()
            raise

    def _rebuild(self) -> None:
        """Go back to what the disk has; the clock alone keeps what it was seen to show."""
        seen = self._books.pool.clock
        try:
            self._books = self._file.load()
        except StorageError as error:
            self._broken = error
            return
        if self._clock is not None:
            self._books.advance(seen)

    def _answer(self, group: _Group) -> None:
        try:
            if self._recorder is not None:
                for entry in group.entries:
                    self._recorder(entry)
            if group.error is not None:
                raise group.error
            group.answer.set_result([entry.reply for entry in group.entries])
        except Exception as error:
            group.answer.set_exception(error)

    def _snapshot(self) -> LedgerSnapshot:
        return self._books.snapshot()

    def _waiting(self) -> tuple[Key, ...]:
        return tuple(self._books.queue)

    def _due(self) -> list[LedgerEvent]:
        self._read_clock()
        return self._books.due()

    def _read_clock(self) -> None:
        if self._clock is not None:
            self._books.advance(self._clock())

    def _end(self) -> None:
        try:
            if self._broken is None:
                self._file.save_accounts(self._books)
        except StorageError:
            # Only the clock's last reading is lost; every change was committed before its reply.
            pass
        finally:
            self._file.close()


_NOTHING = _Read(lambda: None)
"""Stands for: no request was taken after the groups."""
