"""The ledger in PostgreSQL: what only a database can hold, refuse or get wrong (SCA-1, LEA-7)."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from kvescrow.checks.targets.servers import PostgresServer
from kvescrow.reference.ledger import LedgerConfig, StorageError
from kvescrow.reference.ledger.books import Books
from kvescrow.reference.ledger.postgres import PostgresLedger, database, drop, session
from kvescrow.reference.ledger.postgres import schema as tables
from kvescrow.reference.ledger.records import Reservation
from kvescrow.spec.vocabulary import Decision, Key, Reserve, Start, Tick, UserError
from tests.reference.ledger.sharing import PostgresPlace

FAR = 10**12


def ask(request: str, amount: int = 10, digest: str = "digest", max_wait: int = 0) -> Reserve:
    return Reserve(Key("red", request), amount, digest, FAR, max_wait=max_wait)


@pytest.fixture
def place(postgres: PostgresServer, schema: str, keyring: object) -> PostgresPlace:
    return PostgresPlace(postgres.url, schema, keyring)  # type: ignore[arg-type]  # a keyring


@contextmanager
def opened(place: PostgresPlace, config: LedgerConfig, **options: object) -> Iterator[PostgresLedger]:
    ledger = place.open(config, **options)
    try:
        yield ledger  # type: ignore[misc]  # of this place
    finally:
        ledger.close()


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ("UPDATE {s}.pool SET active = active + 1", r"pool\.active is 11, but its reservations add up to 10"),
        ("UPDATE {s}.tenant SET active = 9 WHERE name = 'red'", r"tenant 'red' active is 9"),
        ("UPDATE {s}.pool SET next_life = 1", r"pool\.next_life is 1, but life 2 was drawn"),
        ("DELETE FROM {s}.journal WHERE seq = 3", r"pool\.seq is 3, but the journal ends at 2"),
        ("DELETE FROM {s}.pool", r"it has no pool"),
    ],
)
def test_counters_that_do_not_add_up_are_named(
    place: PostgresPlace, config: LedgerConfig, change: str, names: str
) -> None:
    with opened(place, config) as ledger:
        ledger.submit(ask("work"))
        ledger.submit(Start(Key("red", "work"), 1, "worker"))
        ledger.submit(ask("waits", 39_999, max_wait=5))
    place.run(change)
    with pytest.raises(StorageError, match=rf"the ledger is damaged \(.*{names}.*\): restore it from a backup"):
        place.open(config)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE {s}.reservation SET state = 'RUNNING'",
        "UPDATE {s}.reservation SET state = 'QUEUED'",
        "UPDATE {s}.reservation SET state = 'ABSENT'",
        "UPDATE {s}.reservation SET bound = amount - 1",
        "UPDATE {s}.reservation SET used = bound + 1",
        "UPDATE {s}.tenant SET spent = -1",
        "UPDATE {s}.pool SET active = -1",
        "INSERT INTO {s}.pool SELECT 2, name, 1, 1, 0, 0, 1, 1, 0 FROM {s}.pool",
        "UPDATE {s}.reservation SET life = 1",
    ],
)
def test_the_schema_stores_no_such_fault(place: PostgresPlace, config: LedgerConfig, change: str) -> None:
    with opened(place, config) as ledger:
        ledger.submit_many([ask("work"), ask("more")])
    with pytest.raises(psycopg.errors.IntegrityError):
        place.run(change)


def test_older_tables_are_upgraded_once_and_newer_ones_refused(
    place: PostgresPlace, config: LedgerConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(place, config) as ledger:
        ledger.submit(ask("work"))
        left = ledger.snapshot()
    next_one = (*tables.MIGRATIONS, ("ALTER TABLE {s}.journal ADD COLUMN remark text",))
    with monkeypatch.context() as newer:
        newer.setattr(database, "MIGRATIONS", next_one)
        newer.setattr(database, "VERSION", len(next_one))
        for _ in range(2):
            with opened(place, config) as ledger:
                assert ledger.snapshot() == left
    with pytest.raises(
        StorageError, match=r"tables have version 2, this program knows versions up to 1: use the newer"
    ):
        place.open(config)


def test_a_migration_that_fails_leaves_the_tables_as_they_were(
    place: PostgresPlace, config: LedgerConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(place, config) as ledger:
        left = ledger.snapshot()
    broken = (
        *tables.MIGRATIONS,
        ("ALTER TABLE {s}.journal ADD COLUMN remark text", "ALTER TABLE {s}.nothing OWNER TO me"),
    )
    with monkeypatch.context() as newer:
        newer.setattr(database, "MIGRATIONS", broken)
        newer.setattr(database, "VERSION", len(broken))
        with pytest.raises(StorageError, match=r"nothing was applied"):
            place.open(config)
    with opened(place, config) as ledger:
        assert ledger.snapshot() == left


def test_a_ledger_that_others_write_to_meanwhile_adds_up_when_it_is_opened(
    place: PostgresPlace, config: LedgerConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Books and journal are compared as of one moment."""
    with opened(place, config) as ledger:
        ledger.submit(ask("before"))
        restore, numbers = Books.restore, itertools.count()

        def restore_late(books: Books, record: Reservation, at: int) -> None:
            if threading.current_thread() is opener:
                ledger.submit(ask(f"meanwhile {next(numbers)}"))
            restore(books, record, at)

        monkeypatch.setattr(Books, "restore", restore_late)
        found: list[object] = []

        def open_another() -> None:
            with opened(place, config) as another:
                found.append(another)

        opener = threading.Thread(target=open_another)
        opener.start()
        opener.join()
        assert found and next(numbers) == 1


def test_a_gateway_that_stands_still_holds_up_the_others_for_a_bounded_time(
    place: PostgresPlace, config: LedgerConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is stopped between its lock and its commit; the server ends it, and its own attempt is made anew."""
    monkeypatch.setattr(database, "LONGEST_HOLD", 200)
    with opened(place, config) as stopped, opened(place, config) as other:
        save = stopped._store.save
        held: list[Decision] = []

        def stop_first(*arguments: object) -> bool:
            monkeypatch.setattr(stopped._store, "save", save)
            held.append(other.submit(ask("other")).decision)
            time.sleep(0.3)
            return save(*arguments)  # type: ignore[arg-type]  # what it was called with

        monkeypatch.setattr(stopped._store, "save", stop_first)
        reply = stopped.submit(ask("mine"))
        assert held == [Decision.ADMITTED]
        assert (reply.decision, reply.seq) == (Decision.ADMITTED, 2)
        assert other.snapshot().pool_active == 20


def test_a_session_that_holds_the_pool_for_ever_is_named(
    place: PostgresPlace, config: LedgerConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(session._SESSION, "lock_timeout", 100)
    with opened(place, config) as ledger:
        with psycopg.connect(place.url) as connection:
            connection.execute(f"SELECT * FROM {place.schema}.pool FOR UPDATE")
            with pytest.raises(StorageError, match=r"another session holds the pool, nothing was applied: end that"):
                ledger.submit(ask("work"))
        assert ledger.submit(ask("work")).seq == 1


def test_a_server_without_fsync_is_refused(place: PostgresPlace, config: LedgerConfig) -> None:
    place.run("ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()")
    try:
        time.sleep(0.2)
        with pytest.raises(UserError, match=r"fsync is off, so the server may lose .*: set fsync = on and restart"):
            place.open(config)
    finally:
        place.run("ALTER SYSTEM RESET fsync", "SELECT pg_reload_conf()")
        time.sleep(0.2)


def test_a_server_that_is_too_old_is_refused(
    place: PostgresPlace, config: LedgerConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "OLDEST_SERVER", 990_000)
    with pytest.raises(UserError, match=r"older than PostgreSQL 99, so it cannot end a gateway .*: upgrade it"):
        place.open(config)


def test_a_standby_is_refused(place: PostgresPlace, config: LedgerConfig) -> None:
    with opened(place, config):
        pass
    url = f"{place.url}&options=-c%20default_transaction_read_only%3Don"
    with pytest.raises(StorageError, match=r"the server only reads: name the primary"):
        PostgresLedger(url, config, schema=place.schema)


def test_a_session_that_would_not_wait_for_the_disk_is_told_to(place: PostgresPlace, config: LedgerConfig) -> None:
    ledger = PostgresLedger(f"{place.url}&options=-c%20synchronous_commit%3Doff", config, schema=place.schema)
    setting = ledger._store._one("SHOW synchronous_commit")  # type: ignore[attr-defined]  # of a Database
    assert setting == ("on",)
    ledger.close()


@pytest.mark.parametrize(
    ("event", "names"),
    [
        (Reserve(Key("red", "a\0b"), 5, "d", 9), r"Reserve\.request holds a NUL, which PostgreSQL cannot keep"),
        (Reserve(Key("red", "\ud800"), 5, "d", 9), r"Reserve\.request holds a lone surrogate"),
        (Tick(2**70), r"Tick\.now is beyond"),
    ],
)
def test_what_a_database_cannot_hold_is_refused_before_it_is_decided(
    place: PostgresPlace, config: LedgerConfig, event: Reserve, names: str
) -> None:
    with opened(place, config) as ledger:
        with pytest.raises(UserError, match=names):
            ledger.submit(event)
        far = Reserve(Key("red", "far"), 5, "\\ \" ' % {", 2**62 - 1, max_wait=2**62 - 1)
        assert ledger.submit(far).seq == 1
        assert ledger.journal()[0].event == far


def test_an_account_beyond_63_bits_applies_nothing(place: PostgresPlace, config: LedgerConfig) -> None:
    with opened(place, config) as ledger:
        place.run("UPDATE {s}.pool SET next_life = 9223372036854775807")
        before = ledger.snapshot()
        with pytest.raises(StorageError, match=r"an account went beyond 63 bits"):
            ledger.submit(ask("work"))
        assert ledger.snapshot() == before


@pytest.mark.parametrize("name", ["", "Ledger", 'a"b', "a-b", "a.b"])
def test_a_schema_with_a_difficult_name_is_refused(postgres: PostgresServer, config: LedgerConfig, name: str) -> None:
    with pytest.raises(UserError, match=r"name it with small letters"):
        PostgresLedger(postgres.url, config, schema=name)


def test_a_dropped_ledger_is_gone(place: PostgresPlace, config: LedgerConfig) -> None:
    with opened(place, config) as ledger:
        ledger.submit(ask("work"))
    drop(place.url, place.schema)
    with opened(place, config) as ledger:
        assert ledger.snapshot().reservations == {}
    with pytest.raises(StorageError, match="nothing was removed"):
        drop("postgresql://nobody@localhost:1/nothing", "ledger")


@pytest.mark.parametrize(("store", "library"), [("postgres", "psycopg"), ("valkey", "valkey")])
def test_without_its_library_a_store_says_what_to_install(store: str, library: str) -> None:
    program = (
        f"import sys; sys.modules[{library!r}] = None\n"
        "import kvescrow.reference.ledger\n"
        "from kvescrow.spec.vocabulary import UserError\n"
        "try:\n"
        f"    import kvescrow.reference.ledger.{store}\n"
        "except UserError as error:\n"
        "    sys.exit(str(error))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert f"pip install 'kvescrow[{store}]'" in done.stderr
