"""The ledger in memory: one lock, nothing durable, the whole journal kept."""

from collections.abc import Sequence
from threading import Lock

from kvescrow.reference.ledger.books import Books
from kvescrow.reference.ledger.port import Clock, JournalEntry, LedgerConfig, LedgerReply, Recorder
from kvescrow.reference.receipts import Keyring
from kvescrow.spec.vocabulary import Key, LedgerEvent, LedgerSnapshot, UserError


class MemoryLedger:
    """A `Ledger` for one process that may forget everything when it ends.

    The lock makes each event one step (ADM-2). The journal of changes stays in memory and only grows.
    """

    def __init__(
        self,
        config: LedgerConfig,
        *,
        keyring: Keyring | None = None,
        clock: Clock | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        """Open empty books.

        Without a `keyring` every receipt and fence proof is FORGED. With a `clock` each event first reads it;
        without one, time moves by `Tick` alone.
        """
        self._books = Books.opened(config, keyring)
        self._clock = clock
        self._recorder = recorder
        # Commit numbers count the changes from 1, so the change with number n stands at index n - 1.
        self._journal: list[JournalEntry] = []
        self._closed = False
        self._lock = Lock()

    def submit(self, event: LedgerEvent) -> LedgerReply:
        """Decide exactly one event."""
        with self._lock:
            self._check_open()
            return self._submit(event)

    def submit_many(self, events: Sequence[LedgerEvent]) -> list[LedgerReply]:
        """Decide `events` one after the other, with no other event between them."""
        with self._lock:
            self._check_open()
            return [self._submit(event) for event in events]

    def _submit(self, event: LedgerEvent) -> LedgerReply:
        if self._clock is not None:
            self._books.advance(self._clock())
        entry = self._books.handle(event)
        if entry.seq > len(self._journal):
            self._journal.append(entry)
        if self._recorder is not None:
            self._recorder(entry)
        return entry.reply

    def journal(self, after: int = 0) -> list[JournalEntry]:
        """Return the changes with a commit number above `after`."""
        with self._lock:
            self._check_open()
            return self._journal[max(0, after) :]

    def snapshot(self) -> LedgerSnapshot:
        """Return the whole projected state between two events."""
        with self._lock:
            self._check_open()
            return self._books.snapshot()

    def waiting(self) -> tuple[Key, ...]:
        """Return the queued keys, first come first."""
        with self._lock:
            self._check_open()
            return tuple(self._books.queue)

    def due(self) -> list[LedgerEvent]:
        """Return the events that time has made due."""
        with self._lock:
            self._check_open()
            if self._clock is not None:
                self._books.advance(self._clock())
            return self._books.due()

    def close(self) -> None:
        """Refuse every later call."""
        with self._lock:
            self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise UserError("this ledger is closed: open another")
