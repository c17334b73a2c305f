"""The ledger file: one writer, one truth, and clear words where it cannot be had (SCA-1, LEA-7)."""

from __future__ import annotations

import resource
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from attrs import evolve

from kvescrow.reference.ledger import (
    Ledger,
    LedgerConfig,
    SqliteLedger,
    StorageError,
    StorageFull,
    TenantConfig,
)
from kvescrow.spec.vocabulary import (
    Cancel,
    Decision,
    Forget,
    Key,
    Reason,
    Reserve,
    SetBudget,
    SetPoolLimit,
    Start,
    Sweep,
    Tick,
    UserError,
)

FAR = 10**12


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pool.ledger"


def ask(request: str, amount: int = 10, digest: str = "digest", max_wait: int = 0) -> Reserve:
    return Reserve(Key("red", request), amount, digest, FAR, max_wait=max_wait)


@contextmanager
def opened(path: Path, config: LedgerConfig, clock: Callable[[], int] | None = None) -> Iterator[SqliteLedger]:
    ledger = SqliteLedger(path, config, clock=clock)
    try:
        yield ledger
    finally:
        ledger.close()


@contextmanager
def raw(path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(path)
    yield connection
    connection.commit()
    connection.close()


def test_everything_survives_closing(path: Path, config: LedgerConfig) -> None:
    with opened(path, config) as ledger:
        ledger.submit(ask("live", 39_000))
        ledger.submit(SetPoolLimit(39_500))
        for request in ("first", "second"):
            assert ledger.submit(ask(request, 900, max_wait=50)).reason is Reason.POOL_CAPACITY
        ledger.submit(Start(Key("red", "live"), 1, "worker", lease=20))
        ledger.submit(SetPoolLimit(45_000))
        ledger.submit(SetBudget("blue", 77))
        ledger.submit(Tick(30))
        left, history, due = ledger.snapshot(), ledger.journal(), ledger.due()
    with opened(path, config) as ledger:
        assert ledger.snapshot() == left
        assert ledger.journal() == history
        assert ledger.due() == due == [Sweep(Key("red", "live"))]
        assert ledger.submit(ask("live", 39_000)).decision is Decision.RECORDED
        newcomer = ledger.submit(Reserve(Key("blue", "new"), 1, "digest", FAR))
        assert newcomer.reason is Reason.BEHIND_OTHERS, "the queue is still there"
        assert ledger.submit(Tick(31)).seq == history[-1].seq + 1


def test_lives_and_generations_go_on_after_forgetting_and_reopening(path: Path, config: LedgerConfig) -> None:
    at_once = evolve(config, retention=0)
    with opened(path, at_once) as ledger:
        life = ledger.submit(ask("work")).life
        ledger.submit(Cancel(Key("red", "work"), life))
        assert ledger.submit(Forget(Key("red", "work"))).decision is Decision.FORGOTTEN
    with raw(path) as connection:
        assert connection.execute("SELECT count(*) FROM reservation").fetchone() == (0,)
    with opened(path, at_once) as ledger:
        assert ledger.submit(ask("work")).life == life + 1


def test_the_clock_does_not_go_back_over_a_restart(path: Path, config: LedgerConfig) -> None:
    with opened(path, config, clock=lambda: 500) as ledger:
        ledger.submit(Sweep(Key("red", "nothing")))
    with opened(path, config, clock=lambda: 20) as ledger:
        ledger.submit(ask("work"))
        assert ledger.snapshot().clock == 500


def test_a_new_configuration_adds_tenants_and_undoes_no_event(path: Path, config: LedgerConfig) -> None:
    with opened(path, config) as ledger:
        ledger.submit(SetPoolLimit(10))
    tenants = {"green": TenantConfig(5, 5, 5), "red": TenantConfig(1, 1, 0)}
    with opened(path, LedgerConfig("pool", 99, tenants, 0)) as ledger:
        snapshot = ledger.snapshot()
        assert snapshot.pool_limit == 10
        assert {name: account.limit for name, account in snapshot.tenants.items()} == {
            "blue": 40_000,
            "green": 5,
            "red": 40_000,
        }
        ledger.submit(ask("a", 10))
        assert ledger.submit(ask("b", max_wait=9)).reason is Reason.QUEUE_FULL, "the new queue limit counts"


def test_a_second_ledger_on_one_file_is_told_so_at_once(path: Path, config: LedgerConfig) -> None:
    with opened(path, config) as ledger:
        ledger.submit(ask("work"))
        with pytest.raises(StorageError, match=rf"{path}: another ledger has this file open: submit through"):
            SqliteLedger(path, config)
        program = (
            "import sys\n"
            "from kvescrow.reference.ledger import LedgerConfig, SqliteLedger\n"
            "from kvescrow.spec.vocabulary import UserError\n"
            "try:\n"
            "    SqliteLedger(sys.argv[1], LedgerConfig('pool', 1, {}, 0))\n"
            "except UserError as error:\n"
            "    sys.exit(str(error))\n"
        )
        other = subprocess.run(
            [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=False, timeout=60
        )
        assert other.returncode == 1
        assert other.stderr.startswith(f"{path}: another ledger has this file open")
        assert ledger.submit(ask("more")).decision is Decision.ADMITTED
    with opened(path, config) as ledger:
        assert ledger.snapshot().pool_active == 20


def test_a_full_file_applies_nothing_and_recovers(path: Path, config: LedgerConfig) -> None:
    with opened(path, config) as ledger:
        ledger.submit(ask("first"))
        connection = ledger._file._connection
        usual = connection.execute("PRAGMA max_page_count").fetchone()[0]
        used = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {used + 1}")
        before, seq = ledger.snapshot(), ledger.journal()[-1].seq

        with pytest.raises(StorageFull, match=rf"{path}: the disk is full, nothing was applied: make room"):
            ledger.submit(ask("large", digest="x" * 50_000))
        assert ledger.snapshot() == before
        assert ledger.submit(ask("first")).decision is Decision.RECORDED
        with pytest.raises(StorageFull):
            ledger.submit_many([ask("small"), ask("large", digest="x" * 50_000)])
        assert ledger.snapshot() == before, "a group is kept whole or not at all"

        connection.execute(f"PRAGMA max_page_count = {usual}")
        reply = ledger.submit(ask("large", digest="x" * 50_000))
        assert (reply.decision, reply.seq) == (Decision.ADMITTED, seq + 1)
        left = ledger.snapshot()
    with opened(path, config) as ledger:
        assert ledger.snapshot() == left


def test_a_write_that_fails_applies_nothing_and_recovers(path: Path, config: LedgerConfig) -> None:
    """A limit on the size of files fails the write itself, as a failing disk does."""
    with opened(path, config) as ledger:
        ledger.submit(ask("first"))
        before = ledger.snapshot()
        usual = resource.getrlimit(resource.RLIMIT_FSIZE)
        size = max(each.stat().st_size for each in path.parent.iterdir())
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 4096, usual[1]))
        try:
            with pytest.raises(StorageError, match=rf"{path}: .*nothing was applied"):
                ledger.submit(ask("large", digest="x" * 100_000))
            assert ledger.snapshot() == before
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, usual)
        assert ledger.submit(ask("large", digest="x" * 100_000)).decision is Decision.ADMITTED
        left = ledger.snapshot()
    with opened(path, config) as ledger:
        assert ledger.snapshot() == left


def test_a_ledger_that_cannot_go_back_to_its_file_stops(path: Path, config: LedgerConfig) -> None:
    """Where the failed commit cannot be undone in memory, nothing more is decided."""
    with opened(path, config) as ledger:
        ledger.submit(ask("first"))
        ledger._file._connection.execute("UPDATE pool SET active = active + 1")
        ledger._file._connection.execute("PRAGMA max_page_count = 1")
        for _ in range(2):
            with pytest.raises(StorageError):
                ledger.submit(ask("large", digest="x" * 500_000))
        with pytest.raises(StorageError, match=r"pool\.active is 11"):
            ledger.snapshot()


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ("UPDATE pool SET active = active + 1", r"pool\.active is 11, but its reservations add up to 10"),
        ("UPDATE tenant SET active = 9 WHERE name = 'red'", r"tenant 'red' active is 9"),
        ("UPDATE tenant SET held = 9 WHERE name = 'blue'", r"tenant 'blue' held is 9"),
        ("UPDATE tenant SET queued = 3 WHERE name = 'red'", r"tenant 'red' queued is 3"),
        ("UPDATE pool SET next_life = 1", r"pool\.next_life is 1, but life 2 was drawn"),
        ("UPDATE pool SET next_generation = 1", r"pool\.next_generation is 1, but 1 was drawn"),
        ("DELETE FROM reservation WHERE request = 'work'", r"pool\.active is 10, but its reservations add up to 0"),
        ("DELETE FROM journal WHERE seq = 3", r"pool\.seq is 3, but the journal ends at 2"),
        ("DELETE FROM tenant WHERE name = 'red'", r"tenant 'red' has a reservation 'work' but no account"),
        ("DELETE FROM pool", r"it has no pool"),
    ],
)
def test_counters_that_do_not_add_up_are_named(path: Path, config: LedgerConfig, change: str, names: str) -> None:
    with opened(path, config) as ledger:
        ledger.submit(ask("work"))
        ledger.submit(Start(Key("red", "work"), 1, "worker"))
        ledger.submit(ask("waits", 39_999, max_wait=5))
    with raw(path) as connection:
        connection.execute(change)
    with pytest.raises(StorageError, match=rf"{path}: the file is damaged .*{names}.*: restore it"):
        SqliteLedger(path, config)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE reservation SET state = 'RUNNING'",
        "UPDATE reservation SET state = 'QUEUED'",
        "UPDATE reservation SET state = 'ABSENT'",
        "UPDATE reservation SET bound = amount - 1",
        "UPDATE reservation SET used = bound + 1",
        "UPDATE reservation SET amount = 'many'",
        "UPDATE tenant SET spent = -1",
        "UPDATE pool SET active = -1",
        "INSERT INTO pool SELECT 2, name, capacity, retention, active, clock, 1, 1, 0 FROM pool",
        "INSERT INTO reservation SELECT 'red', 'twin', state, amount, digest, deadline, least_service, "
        "bound, life, used, overrun, generation, owner, lease, expires, retained, place FROM reservation",
    ],
)
def test_the_schema_stores_no_such_fault(path: Path, config: LedgerConfig, change: str) -> None:
    with opened(path, config) as ledger:
        ledger.submit(ask("work"))
    with raw(path) as connection, pytest.raises(sqlite3.IntegrityError):
        connection.execute(change)


def test_a_damaged_file_is_refused(path: Path, config: LedgerConfig) -> None:
    with opened(path, config) as ledger:
        ledger.submit_many([ask(str(number)) for number in range(300)])
    content = path.read_bytes()
    for damaged in (b"no database at all" * 500, content[:100] + b"\xff" * 8_000 + content[8_100:], content[:9_000]):
        path.write_bytes(damaged)
        with pytest.raises(StorageError, match=rf"{path}: the file is damaged .*: restore it from a backup"):
            SqliteLedger(path, config)
    path.write_bytes(content)
    with opened(path, config) as ledger:
        assert ledger.snapshot().pool_active == 3_000


def test_another_programs_file_is_left_alone(path: Path, config: LedgerConfig) -> None:
    with raw(path) as connection:
        connection.execute("CREATE TABLE recipes (name TEXT)")
    content = path.read_bytes()
    with pytest.raises(StorageError, match=rf"{path}: this is another program's file: name another"):
        SqliteLedger(path, config)
    assert path.read_bytes() == content


def test_a_file_of_another_version_or_pool_is_refused(path: Path, config: LedgerConfig) -> None:
    with opened(path, config):
        pass
    with pytest.raises(StorageError, match=rf"{path}: this is the ledger of pool 'pool', not of 'loop'"):
        SqliteLedger(path, evolve(config, pool="loop"))
    with raw(path) as connection:
        connection.execute("PRAGMA user_version = 9")
    with pytest.raises(StorageError, match=rf"{path}: its schema has version 9, this program writes version 1"):
        SqliteLedger(path, config)


def test_a_file_in_no_folder_is_refused(tmp_path: Path, config: LedgerConfig) -> None:
    path = tmp_path / "nowhere" / "pool.ledger"
    with pytest.raises(StorageError, match=rf"{path}: .*: name a file in a folder that can be written"):
        SqliteLedger(path, config)


@pytest.mark.parametrize(
    ("event", "names"),
    [
        (Reserve(Key("red", "work"), 5, "d", 2**62), r"Reserve\.deadline is beyond 2\*\*62"),
        (Reserve(Key("red", "\ud800"), 5, "d", 9), r"Reserve\.request holds a lone surrogate"),
        (Tick(2**70), r"Tick\.now is beyond"),
    ],
)
def test_what_sqlite_cannot_hold_is_refused_before_it_is_decided(
    path: Path, config: LedgerConfig, event: Reserve, names: str
) -> None:
    with opened(path, config) as ledger:
        with pytest.raises(UserError, match=names):
            ledger.submit(event)
        assert ledger.submit(Reserve(Key("red", "far"), 5, "d", 2**62 - 1, max_wait=2**62 - 1)).seq == 1
        assert ledger.journal()[0].event == Reserve(Key("red", "far"), 5, "d", 2**62 - 1, max_wait=2**62 - 1)


def test_text_of_any_kind_comes_back_as_it_was(path: Path, config: LedgerConfig) -> None:
    keys = [Key("red", text) for text in ("", "a\0b", "a\0c", "ключ", "'; --", "🗝")]
    with opened(path, config) as ledger:
        for key in keys:
            assert ledger.submit(Reserve(key, 5, "\0", FAR)).decision is Decision.ADMITTED
        left = ledger.snapshot()
    with opened(path, config) as ledger:
        assert ledger.snapshot() == left
        assert [entry.event.key for entry in ledger.journal()] == keys  # type: ignore[union-attr]  # all are reserves


def test_a_group_larger_than_a_commit_is_kept_whole(path: Path, config: LedgerConfig) -> None:
    with opened(path, config) as ledger:
        replies = ledger.submit_many([ask(str(number), 1) for number in range(500)])
        assert [reply.seq for reply in replies] == list(range(1, 501))
        assert ledger.submit_many([]) == []
    with opened(path, config) as ledger:
        assert ledger.snapshot().pool_active == 500


def test_the_port_is_kept(path: Path, config: LedgerConfig) -> None:
    with opened(path, config) as ledger:
        port: Ledger = ledger
        assert port.waiting() == ()
