"""The ledger in one SQLite file, for which one caller at a time decides and commits."""

from collections.abc import Sequence
from pathlib import Path

from kvescrow.reference.ledger.groups import Group, GroupedLedger, decide_groups
from kvescrow.reference.ledger.port import Clock, JournalEntry, LedgerConfig, Recorder, StorageError
from kvescrow.reference.ledger.sqlite.file import LedgerFile
from kvescrow.reference.receipts import Keyring
from kvescrow.spec.vocabulary import Key, LedgerEvent, LedgerSnapshot


class SqliteLedger(GroupedLedger):
    """A durable `Ledger`: each reply comes after the commit of its change, and a killed process loses none of them.

    One process at a time has the file. Calls from any number of threads take turns; those that wait at the same
    moment share one transaction. The books in memory are the file's, rebuilt and compared at each opening and after
    each failed commit, so that nothing is answered which the disk does not have.
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
        super().__init__(recorder)
        self._file = LedgerFile(Path(path), config, keyring)
        try:
            self._file.check()
            self._books = self._file.load()
            self._file.adopt_config(self._books)
        except BaseException:
            self._file.close()
            raise
        self._clock = clock
        self._is_ahead = False
        """Whether the books may have what the disk has not."""

    def _keep(self, groups: Sequence[Group]) -> None:
        self._be_level()
        self._is_ahead = True
        changes = decide_groups(groups, self._decide)
        if changes:
            self._file.save(changes, self._books)
        self._is_ahead = False

    def _decide(self, event: LedgerEvent) -> JournalEntry:
        self._read_clock()
        return self._books.handle(event)

    def _be_level(self) -> None:
        """Go back to what the disk has, where a commit failed; the clock alone keeps what it was seen to show.

        Raises `StorageError` where the file cannot be read, or no longer adds up.
        """
        if not self._is_ahead:
            return
        seen = self._books.pool.clock
        self._books = self._file.load()
        if self._clock is not None:
            self._books.advance(seen)
        self._is_ahead = False

    def _entries(self, after: int) -> list[JournalEntry]:
        self._be_level()
        return self._file.entries(after)

    def _snapshot(self) -> LedgerSnapshot:
        self._be_level()
        return self._books.snapshot()

    def _waiting(self) -> tuple[Key, ...]:
        self._be_level()
        return tuple(self._books.queue)

    def _due(self) -> list[LedgerEvent]:
        self._be_level()
        self._read_clock()
        return self._books.due()

    def _read_clock(self) -> None:
        if self._clock is not None:
            self._books.advance(self._clock())

    def _end(self) -> None:
        try:
            if not self._is_ahead:
                self._file.save_accounts(self._books)
        except StorageError:
            # Only the clock's last reading is lost; every change was committed before its reply.
            pass
        finally:
            self._file.close()
