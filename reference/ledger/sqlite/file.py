"""One ledger file: opened for one writer, loaded and compared, and written one group of changes at a time."""

import ctypes
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from weakref import WeakSet

from kvescrow.reference.ledger import rows
from kvescrow.reference.ledger.books import Books, account_of
from kvescrow.reference.ledger.port import JournalEntry, LedgerConfig, StorageError, StorageFull
from kvescrow.reference.ledger.records import Reservation
from kvescrow.reference.ledger.sqlite.schema import APPLICATION_ID, SCHEMA, VERSION
from kvescrow.reference.ledger.touched import Touched, touched_by
from kvescrow.reference.receipts import Keyring


def _write(table: str, columns: Sequence[str], *identity: str) -> str:
    """Return the statement that writes a row over the one with the same `identity`, if there is one."""
    values = ", ".join("?" for _ in columns)
    changed = ", ".join(f"{name} = excluded.{name}" for name in columns if name not in identity)
    return (
        f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({values}) "
        f"ON CONFLICT ({', '.join(identity)}) DO UPDATE SET {changed}"
    )


def _update(table: str, columns: Sequence[str], kept: Sequence[str]) -> str:
    """Return the statement that changes a row; it takes all columns, of which `kept` stay and the first two name it."""
    places = {name: f"{name} = ?{place}" for place, name in enumerate(columns, start=1)}
    changed = ", ".join(text for name, text in places.items() if name not in kept)
    return f"UPDATE {table} SET {changed} WHERE {' AND '.join(places[name] for name in columns[:2])}"


_WRITE_POOL = _write("pool", rows.POOL_COLUMNS, "id")
_WRITE_TENANT = _write("tenant", rows.TENANT_COLUMNS, "name")
_WRITE_RESERVATION = _write("reservation", rows.RESERVATION_COLUMNS, "tenant", "request")
# Apart, since writing over a row that is there moves every index entry: that took half as long again.
_CHANGE_RESERVATION = _update("reservation", rows.RESERVATION_COLUMNS, rows.BOUND_COLUMNS)
_FORGET = "DELETE FROM reservation WHERE tenant = ? AND request = ?"
_WRITE_ENTRY = "INSERT INTO journal (seq, now, event, reply) VALUES (?, ?, ?, ?)"
_READ_ENTRIES = "SELECT seq, now, event, reply FROM journal WHERE seq > ? ORDER BY seq"


_OPEN: "WeakSet[LedgerFile]" = WeakSet()


def _leave_to_parent() -> None:
    """Let a process that was forked off never close a connection: that would remove the other one's write-ahead log."""
    for file in _OPEN:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(file._connection))


os.register_at_fork(after_in_child=_leave_to_parent)


class LedgerFile:
    """The open file. Its methods may be called from one thread at a time.

    Every method raises `StorageError` where SQLite cannot do what is asked; then the file is as it was before.
    """

    def __init__(self, path: Path, config: LedgerConfig, keyring: Keyring | None) -> None:
        """Open the file at `path`, or make it; keep every other process out until it is closed."""
        self._path = path
        self._config = config
        self._keyring = keyring
        with self._translated():
            # A busy file is refused at once: another writer would hold it until it ends.
            self._connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
        _OPEN.add(self)
        try:
            with self._translated():
                self._prepare()
        except BaseException:
            self._connection.close()
            raise

    def _prepare(self) -> None:
        execute = self._connection.execute
        # Exclusive before the first access: the file is locked from then on, and no shared memory file is made.
        execute("PRAGMA locking_mode = EXCLUSIVE")
        with self._transaction():
            is_new = self._identify()
        execute("PRAGMA synchronous = FULL")
        execute("PRAGMA foreign_keys = ON")
        if execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
            raise StorageError(f"{self._path}: no write-ahead log is possible here: put it on a local file system")
        with self._transaction():
            if is_new:
                self._create()

    def _identify(self) -> bool:
        """Return whether the file is new; refuse one that is not a ledger of this version."""
        execute = self._connection.execute
        application = execute("PRAGMA application_id").fetchone()[0]
        is_empty = execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] == 0
        if is_empty and application == 0:
            return True
        if application != APPLICATION_ID:
            raise StorageError(f"{self._path}: this is another program's file: name another file for the ledger")
        version = execute("PRAGMA user_version").fetchone()[0]
        if version != VERSION:
            raise StorageError(
                f"{self._path}: its schema has version {version}, this program writes version {VERSION}: "
                "open it with the program that made it"
            )
        return False

    def _create(self) -> None:
        for statement in SCHEMA:
            self._connection.execute(statement)
        self._connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        self._connection.execute(f"PRAGMA user_version = {VERSION}")
        books = Books.opened(self._config, self._keyring)
        self._write_accounts(books, books.tenants)

    def check(self) -> None:
        """Raise `StorageError` where the file is damaged; reads the whole file."""
        with self._translated():
            damage = self._connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if damage != "ok":
            raise self._damaged(damage)

    def load(self) -> Books:
        """Return the books as the file has them, compared with what their reservations add up to (LEA-7).

        Raises `StorageError` where a counter does not agree, and where it is another pool's ledger.
        """
        with self._translated():
            books = self._read()
            last = self._connection.execute("SELECT ifnull(max(seq), 0) FROM journal").fetchone()[0]
        found = books.discrepancies()
        if books.pool.seq != last:
            found.append(f"pool.seq is {books.pool.seq}, but the journal ends at {last}")
        if found:
            raise self._damaged("; ".join(found))
        if books.pool_name != self._config.pool:
            raise StorageError(
                f"{self._path}: this is the ledger of pool {books.pool_name!r}, not of {self._config.pool!r}: "
                "correct LedgerConfig.pool, or name another file"
            )
        return books

    def _read(self) -> Books:
        execute = self._connection.execute
        row = execute(f"SELECT {', '.join(rows.POOL_COLUMNS)} FROM pool").fetchone()
        if row is None:
            raise self._damaged("it has no pool")
        name, pool = rows.pool_of(row)
        books = Books(name, pool, self._keyring)
        tenants = execute(f"SELECT {', '.join(rows.TENANT_COLUMNS)} FROM tenant ORDER BY name")
        books.tenants.update(map(rows.tenant_of, tenants))
        # In order of place, so that the queue is as it was.
        for record in execute(f"SELECT {', '.join(rows.RESERVATION_COLUMNS)} FROM reservation ORDER BY place"):
            books.restore(*rows.reservation_of(record))
        return books

    def adopt_config(self, books: Books) -> None:
        """Take new tenants, queue limits and the retention from the configuration into `books` and file."""
        books.pool.retention = self._config.retention
        for name, tenant in self._config.tenants.items():
            books.tenants.setdefault(name, account_of(tenant)).queue_limit = tenant.queue_limit
        self.save_accounts(books)

    def save(self, changes: Sequence[JournalEntry], books: Books) -> None:
        """Write `changes` and the records and accounts of `books` that they touched, in one transaction."""
        touched = touched_by(changes, books)
        with self._translated(), self._transaction():
            self._connection.executemany(_WRITE_ENTRY, map(rows.entry_row, changes))
            self._write_records(touched, books)
            self._write_accounts(books, touched.tenants)

    def save_accounts(self, books: Books) -> None:
        """Write the accounts and the clock of `books`."""
        with self._translated(), self._transaction():
            self._write_accounts(books, books.tenants)

    def _write_records(self, touched: Touched, books: Books) -> None:
        execute = self._connection.executemany
        execute(_FORGET, [(key.tenant, key.request) for key in touched.gone])
        execute(_WRITE_RESERVATION, (_row(record, books) for record in touched.new))
        written = execute(_CHANGE_RESERVATION, (_row(record, books) for record in touched.changed)).rowcount
        if touched.changed and written != len(touched.changed):
            raise self._damaged(f"of {len(touched.changed)} of its reservations only {written} are there")

    def _write_accounts(self, books: Books, names: Iterable[str]) -> None:
        self._connection.executemany(_WRITE_TENANT, [rows.tenant_row(name, books.tenants[name]) for name in names])
        self._connection.execute(_WRITE_POOL, rows.pool_row(books.pool_name, books.pool))

    def entries(self, after: int) -> list[JournalEntry]:
        """Return the changes with a commit number above `after`, in order."""
        with self._translated():
            return [rows.entry_of(row) for row in self._connection.execute(_READ_ENTRIES, (after,))]

    def close(self) -> None:
        """Close the file and let other processes in."""
        self._connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            # SQLite may have rolled back by itself; where it cannot, the next BEGIN says so.
            with suppress(sqlite3.Error):
                self._connection.rollback()
            raise

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise self._storage_error(error) from error
        except OverflowError as error:
            raise StorageError(f"{self._path}: an account went beyond 63 bits: begin a new ledger") from error

    def _damaged(self, what: object) -> StorageError:
        return StorageError(f"{self._path}: the file is damaged ({what}): restore it from a backup")

    def _storage_error(self, error: sqlite3.Error) -> StorageError:
        path = self._path
        # The primary code is the low byte; the rest details it.
        match getattr(error, "sqlite_errorcode", 0) & 0xFF:
            case sqlite3.SQLITE_FULL:
                return StorageFull(f"{path}: the disk is full, nothing was applied: make room and submit again")
            case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
                return StorageError(
                    f"{path}: another ledger has this file open: submit through that one, or close it first"
                )
            case sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_CORRUPT:
                return self._damaged(error)
            case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM:
                return StorageError(f"{path}: {error}: name a file in a folder that can be written")
            case sqlite3.SQLITE_IOERR:
                return StorageError(
                    f"{path}: {error}, nothing was applied: check the disk, its room and the file size limit, "
                    "then submit again"
                )
            case _:
                return StorageError(f"{path}: {error}, nothing was applied: check the file with a backup at hand")


def _row(record: Reservation, books: Books) -> rows.Row:
    return rows.reservation_row(record, books.queue.place(record.key))
