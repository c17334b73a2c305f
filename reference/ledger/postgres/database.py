"""One connection to a ledger in PostgreSQL: opened and upgraded, locked and loaded, written one group at a time.

The locks have one order everywhere: accounts of tenants by name, the pool's row last. Whoever changes anything holds
the pool's row from before it reads until its commit, so commit numbers are gap-free and in the order of commits, and
what is read after that lock, in a later statement of READ COMMITTED, is what every earlier writer left.
"""

import json
from collections.abc import Iterable, Sequence

from kvescrow.reference.ledger import rows
from kvescrow.reference.ledger.books import Books, account_of
from kvescrow.reference.ledger.encoding import event_text, quote, reply_text
from kvescrow.reference.ledger.port import JournalEntry, LedgerConfig, StorageError, key_of
from kvescrow.reference.ledger.postgres.schema import MIGRATIONS, VERSION
from kvescrow.reference.ledger.postgres.session import Row, Session
from kvescrow.reference.ledger.postgres.statements import (
    POOL_COLUMNS,
    RESERVATION_COLUMNS,
    quoted,
    statements,
)
from kvescrow.reference.ledger.records import PoolAccount, Reservation, TenantAccount
from kvescrow.reference.ledger.recovery import Mark, Witness, went_back
from kvescrow.reference.ledger.shared import STALEST, Store
from kvescrow.reference.ledger.touched import Touched, touched_by
from kvescrow.reference.receipts import Keyring
from kvescrow.spec.vocabulary import TERMINAL_STATES, Forget, Key, LedgerEvent, Sweep

LONGEST_HOLD = 5_000
"""Milliseconds after which the server ends a session that has locked the pool and does not commit.

A stopped gateway must not hold up the others for ever; it finds its connection gone, and nothing of it applied. The
usual bound, `idle_in_transaction_session_timeout`, does not see a client that ended its pipeline with a flush.
"""


class Database(Session, Store):
    """The open connection. A method that raises has rolled its transaction back."""

    def __init__(
        self, url: str, schema: str, config: LedgerConfig, keyring: Keyring | None, witness: Witness, writer: str
    ) -> None:
        """Remember how to connect; `writer` names this gateway's incarnation in the journal."""
        super().__init__(url, schema)
        self._config = config
        self._keyring = keyring
        self._witness = witness
        self._writer = writer
        self._sql = statements(schema)
        self._row_version = ""

    # --- opening ------------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Connect, make or upgrade the tables, take the configuration, and compare all counters with their sums."""
        self.connect()
        with self._guarded():
            self._migrate()
            self._adopt_config()
        books, last = self._read()
        found = books.discrepancies()
        if books.pool.seq != last:
            found.append(f"pool.seq is {books.pool.seq}, but the journal ends at {last}")
        if found:
            raise self._damaged("; ".join(found))

    def connect(self) -> None:
        """Connect anew, and see whether the store has gone back behind what this gateway saw."""
        self._dial()
        try:
            with self._guarded():
                self._check_durable()
                self._check_version()
        except BaseException:
            # A server that was not checked to the end is not used.
            self.close()
            raise

    def _check_version(self) -> None:
        version = self._version()
        if version > VERSION:
            raise StorageError(
                f"{self.name}: its tables have version {version}, this program knows versions up to {VERSION}: "
                "use the newer program"
            )
        if self._witness.mark is not None and version == VERSION:
            self._compare_history(self._witness.mark)

    def _version(self) -> int:
        known = self._one("SELECT to_regclass(%s) IS NOT NULL", (f"{quoted(self._schema)}.migration",))[0]
        if not known:
            return 0
        version: int = self._one(f"SELECT coalesce(max(version), 0) FROM {quoted(self._schema)}.migration")[0]
        return version

    def _migrate(self) -> None:
        """Bring the tables to this program's version, once however many gateways start together."""
        if self._version() == VERSION:
            return
        lock = f"kvescrow {self._schema}"
        # Got before the transaction begins, so that what another gateway made meanwhile is seen there.
        self._execute("SELECT pg_advisory_lock(hashtextextended(%s, 0))", (lock,))
        try:
            with self._transaction():
                self._apply_migrations(self._version())
        finally:
            self._execute("SELECT pg_advisory_unlock(hashtextextended(%s, 0))", (lock,))

    def _apply_migrations(self, version: int) -> None:
        s = quoted(self._schema)
        self._execute(f"CREATE SCHEMA IF NOT EXISTS {s}")
        self._execute(
            f"CREATE TABLE IF NOT EXISTS {s}.migration "
            "(version integer PRIMARY KEY, applied timestamptz NOT NULL DEFAULT now())"
        )
        for number, migration in enumerate(MIGRATIONS[version:], start=version + 1):
            with self._open_connection.pipeline():
                for statement in migration:
                    self._execute(statement.format(s=s))
            self._execute(f"INSERT INTO {s}.migration (version) VALUES (%s)", (number,))
        if version == 0:
            self._create_pool()

    def _create_pool(self) -> None:
        pool = Books.opened(self._config, self._keyring).pool
        self._execute(
            f"INSERT INTO {quoted(self._schema)}.pool ({', '.join(rows.POOL_COLUMNS)}) "
            f"VALUES ({', '.join('%s' for _ in rows.POOL_COLUMNS)})",
            rows.pool_row(self._config.pool, pool),
        )

    def _adopt_config(self) -> None:
        """Take new tenants, queue limits and the retention from the configuration; other limits stay as recorded."""
        wanted = {name: tenant.queue_limit for name, tenant in self._config.tenants.items()}
        with self._transaction():
            for name in sorted(wanted):
                self._execute(self._sql.add_tenant, rows.tenant_row(name, account_of(self._config.tenants[name])))
            accounts = dict(map(rows.tenant_of, self._all(self._sql.lock_tenants, (list(wanted),))))
            name, pool, _, _ = self._pool_of(self._one(self._sql.lock_pool))
            if name != self._config.pool:
                raise StorageError(
                    f"{self.name}: this is the ledger of pool {name!r}, not of {self._config.pool!r}: "
                    "correct LedgerConfig.pool, or name another schema"
                )
            changed = {tenant: limit for tenant, limit in wanted.items() if accounts[tenant].queue_limit != limit}
            for tenant, limit in changed.items():
                self._execute(self._sql.set_queue_limit, (limit, tenant))
            if changed or pool.retention != self._config.retention:
                # Also where it stays: the pool's new version tells the other gateways that something has changed.
                self._execute(self._sql.set_retention, (self._config.retention,))

    # --- one group ----------------------------------------------------------------------------------------------------

    def load(self, events: Sequence[LedgerEvent], defeats: int) -> tuple[Books, int]:
        """Begin a transaction; return books with all that `events` may look at, locked, and the server's clock.

        Who holds the lock is never defeated.
        """
        keys = {key: None for event in events if (key := key_of(event)) is not None}
        names = sorted({key.tenant for key in keys})
        with self._guarded():
            while True:
                books, now, mark = self._load(list(keys), names)
                if not went_back(self._witness.mark, mark, None):
                    self._witness.saw(mark)
                    return books, now
                self._note_loss(mark)

    def _load(self, keys: Sequence[Key], names: Sequence[str]) -> tuple[Books, int, Mark]:
        sql, connection = self._sql, self._open_connection
        asked = _array(map(quote, names))
        with connection.pipeline():
            connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
            locked = connection.execute(sql.lock, {"names": asked, "longest": LONGEST_HOLD}, prepare=True)
            found = connection.execute(sql.concerned, {"keys": _keys(keys), "names": asked}, prepare=True)
        row = locked.fetchone()
        if row is None:
            raise self._damaged("it has no pool")
        name, account, mark, recovering = self._pool_of(row)
        accounts, self._row_version, now, _ = row[len(POOL_COLUMNS) :]
        books = Books(name, account, self._keyring)
        books.recovering = recovering
        books.tenants.update(rows.tenant_of(tuple(each.values())) for each in accounts)
        self._restore(books, found.fetchall())
        return books, now, mark

    def _restore(self, books: Books, found: Sequence[Row]) -> None:
        """Put the records in `found` into `books`, each once, and the accounts of those who wait."""
        records = {record.key: (record, place) for record, place in map(rows.reservation_of, found)}
        others = sorted({record.key.tenant for record, place in records.values() if place} - books.tenants.keys())
        if others:
            books.tenants.update(map(rows.tenant_of, self._all(self._sql.tenants, (others,))))
        for record, place in sorted(records.values(), key=lambda item: item[1]):
            books.restore(record, place)

    def save(self, changes: Sequence[JournalEntry], books: Books) -> bool:
        """Write `changes` and what of `books` they touched, and commit."""
        values = self._values(changes, books, touched_by(changes, books))
        with self._guarded():
            connection = self._open_connection
            with connection.pipeline():
                saved = connection.execute(self._sql.save, values, prepare=True)
                connection.execute("COMMIT")
            row = saved.fetchone()
        if row is None:
            raise self._damaged("it has no pool")
        self._note_saved(books, row[0])
        return True

    @property
    def version(self) -> str:
        """That of the pool's row, which whoever changes anything changes."""
        return self._row_version

    def save_standing(
        self, changes: Sequence[JournalEntry], books: Books, version: str, absent: Sequence[Key], now: int | None
    ) -> int | None:
        """Write and commit them in one statement, if all is as this gateway left it; return the server's clock."""
        mark = self._witness.mark
        assert mark is not None, "`load` saw it"
        touched = touched_by(changes, books)
        values = self._values(changes, books, touched) | {
            "names": _array(map(quote, sorted(touched.tenants))),
            "version": version,
            "last": mark.seq,
            "last_writer": mark.writer,
            "epoch": mark.epoch,
            "longest": LONGEST_HOLD,
            "absent": _keys(absent),
            "now": now,
            "stalest": STALEST,
        }
        with self._guarded():
            row = self._open_connection.execute(self._sql.save_standing, values, prepare=True).fetchone()
        if row is None:
            return None
        version, clock, _ = row
        self._note_saved(books, version)
        return int(clock)

    def _values(self, changes: Sequence[JournalEntry], books: Books, touched: Touched) -> dict[str, object]:
        pool = books.pool
        return {
            "writer": self._writer,
            "changes": _array(map(_change_text, changes)),
            "kept": _array(_record_text(each, books) for each in touched.new),
            "altered": _array(_record_text(each, books) for each in touched.changed),
            "gone": _keys(touched.gone),
            "accounts": _array(_account_text(name, books.tenants[name]) for name in touched.tenants),
            "capacity": pool.limit,
            "active": pool.active,
            "clock": pool.clock,
            "next_life": pool.next_life,
            "next_generation": pool.next_generation,
            "seq": pool.seq,
        }

    def _note_saved(self, books: Books, version: str) -> None:
        assert self._witness.mark is not None, "`load` saw the epoch"
        self._witness.saw(Mark(self._witness.mark.epoch, books.pool.seq, self._writer))
        self._row_version = version

    def release(self) -> None:
        """End the transaction that `load` began, without a change.

        The locks alone need no wait for the disk. A rollback would need none either, but psycopg forgets its prepared
        statements at each.
        """
        with self._guarded(), self._open_connection.pipeline():
            self._execute("SET LOCAL synchronous_commit = off")
            self._execute("COMMIT")

    def kept(self, changes: Sequence[JournalEntry]) -> bool:
        """Return whether `changes`, whose commit this gateway did not hear of, were committed; if not, see to it that
        they never are.

        The lost session may still be committing: the pool's row is its own until it is over, so that is waited for. Or
        its statement has not even begun: then it finds another version of that row.
        """
        with self._guarded(), self._transaction():
            self._one(self._sql.lock_pool)
            found = self._all(self._sql.writer_of, (changes[-1].seq,))
            were_kept = bool(found) and found[0][0] == self._writer
            if not were_kept:
                self._execute(self._sql.touch_pool)
        return were_kept

    # --- recovery -----------------------------------------------------------------------------------------------------

    def _compare_history(self, mark: Mark) -> None:
        with self._transaction():
            _, _, now, _ = self._pool_of(self._one(self._sql.lock_pool))
            then = self._all(self._sql.writer_of, (mark.seq,)) if mark.seq else []
            if went_back(mark, now, then[0][0] if then else None):
                self._execute(self._sql.recover, (mark.seq,))
        self._witness.saw(now)

    def _note_loss(self, now: Mark) -> None:
        """Let every gateway know that changes are missing, in the transaction that found it out."""
        assert self._witness.mark is not None, "without a mark nothing is missed"
        self._execute(self._sql.recover, (self._witness.mark.seq,))
        self._execute("COMMIT")
        self._witness.saw(now)

    def begin_recovery(self) -> None:
        """Grant nothing until `confirm_recovered`."""
        with self._guarded(), self._transaction():
            self._execute(self._sql.recover, (self._pool_of(self._one(self._sql.lock_pool))[2].seq,))

    def confirm_recovered(self) -> bool:
        """Grant again; return whether that was refused before."""
        with self._guarded(), self._transaction():
            self._one(self._sql.lock_pool)
            return self._execute(self._sql.recovered).rowcount == 1

    def is_recovering(self) -> bool:
        """Return whether nothing is granted."""
        with self._guarded():
            return self._pool_of(self._one(self._sql.read_pool))[3]

    # --- reading ------------------------------------------------------------------------------------------------------

    def read(self) -> Books:
        """Return the whole books, as of one moment."""
        return self._read()[0]

    def _read(self) -> tuple[Books, int]:
        """Return the books, and the number of the journal's last change at the same moment."""
        with self._guarded():
            connection = self._open_connection
            with connection.pipeline():
                connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                account = connection.execute(self._sql.read_pool)
                tenants = connection.execute(self._sql.all_tenants)
                reservations = connection.execute(self._sql.all_reservations)
                last = connection.execute(self._sql.last_change)
                connection.execute("COMMIT")
        row, number = account.fetchone(), last.fetchone()
        if row is None or number is None:
            raise self._damaged("it has no pool")
        name, pool, _, recovering = self._pool_of(row)
        books = Books(name, pool, self._keyring)
        books.recovering = recovering
        books.tenants.update(map(rows.tenant_of, tenants.fetchall()))
        # In order of place, so that the queue is as it was.
        for found in reservations.fetchall():
            books.restore(*rows.reservation_of(found))
        return books, number[0]

    def entries(self, after: int) -> list[JournalEntry]:
        """Return the changes with a commit number above `after`, in order."""
        with self._guarded():
            return [rows.entry_of(row) for row in self._all(self._sql.entries, (after,))]

    def waiting(self) -> tuple[Key, ...]:
        """Return the queued keys, first come first."""
        with self._guarded():
            return tuple(Key(*row) for row in self._all(self._sql.queue))

    def due(self, clock: int) -> list[LedgerEvent]:
        """Return what is due when the clock shows `clock`, or what the pool's record shows, whichever is later."""
        with self._guarded():
            found = self._all(self._sql.due, (clock,))
        return [
            Forget(Key(tenant, request)) if state in _TERMINAL else Sweep(Key(tenant, request))
            for tenant, request, state in found
        ]

    def now(self) -> int:
        """Return the server's clock in microseconds."""
        with self._guarded():
            now: int = self._one(self._sql.now)[0]
        return now

    def keep_clock(self, clock: int) -> None:
        """Let no gateway's clock show less than `clock` from now on (LEA-6)."""
        with self._guarded():
            self._execute(self._sql.keep_clock, (clock,))

    def _pool_of(self, row: Row) -> tuple[str, PoolAccount, Mark, bool]:
        """Return the pool's name and account, its mark, and whether it recovers."""
        width = len(rows.POOL_COLUMNS)
        name, pool = rows.pool_of(row[:width])
        epoch, writer, recovering = row[width : len(POOL_COLUMNS)]
        return name, pool, Mark(epoch, pool.seq, writer), recovering


_TERMINAL = frozenset(state.value for state in TERMINAL_STATES)


def _array(texts: Iterable[str]) -> str:
    """Return a JSON array of `texts`, since psycopg looks at every element of a list: that took longer than a query."""
    return f"[{','.join(texts)}]"


def _account_text(name: str, account: TenantAccount) -> str:
    return json.dumps(dict(zip(rows.TENANT_COLUMNS, rows.tenant_row(name, account), strict=True)))


_KEY = '{"tenant":%s,"request":%s}'


def _keys(keys: Iterable[Key]) -> str:
    return _array(_KEY % (quote(key.tenant), quote(key.request)) for key in keys)


_RECORD = "{" + ",".join(f'"{name}":%s' for name in RESERVATION_COLUMNS) + "}"


def _record_text(record: Reservation, books: Books) -> str:
    due = record.due()
    values = rows.reservation_texts(record, books.queue.place(record.key))
    return _RECORD % (*values, "null" if due is None else due)


def _change_text(entry: JournalEntry) -> str:
    """Return one change as a JSON object; the server keeps the objects in it as the texts that they are here."""
    event, reply = event_text(entry.event), reply_text(entry.reply)
    return f'{{"seq":{entry.seq},"now":{entry.now},"event":{event},"reply":{reply}}}'
