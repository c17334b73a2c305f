"""Reserve and cancel: each store of the reference beside what its engine can do at best, in one run.

Two ceilings for a durable store. A *count* is the bare conditional update of one counter. A *grant* is comparable work:
it also writes the identity of the request, the tenant's counter and a line of history of the same length. Ours writes
the whole record, under checks and with the indexes that leases and the queue need, both accounts and the journal entry,
and it decides outside the engine, where the ceilings decide inside.

An operation is one event, a reservation or its cancel. Files and servers lie on disk, and rates are by the wall clock,
since most of the time is spent on waiting for it; in memory they are by processor time. Where other work keeps the
processors busy, the wall clock measures processor time instead of the disk, and ours needs more of that. So it does on
a disk that takes a tenth of a millisecond for a sync: `docs/operations.md` says where the time goes there. In batches
the decision alone, in Python, takes longer than the whole bare grant in SQLite; one by one PostgreSQL keeps a record
with seven indexes where the bare grant has one.
"""

import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile

from kvescrow.checks.bench.report import BenchReport, BenchRow, interleaved_rates, machine
from kvescrow.checks.targets.engines import BareDict, Engine, PostgresEngine, SqliteEngine, ValkeyEngine
from kvescrow.checks.targets.limiters import installed_limiters
from kvescrow.checks.targets.own_ledgers import (
    BATCH,
    LedgerWork,
    memory_work,
    postgres_work,
    sqlite_work,
    valkey_work,
)
from kvescrow.checks.targets.servers import PostgresServer, ValkeyServer

IN_MEMORY = 4_000
ONE_BY_ONE = 100
BATCHED = 10 * BATCH
BY_CLIENTS = 320
"""Operations in a round of each kind: some tenths of a second on a disk that takes milliseconds for a commit."""
WARM_UP = 160 * BATCH
"""Operations before the first round. A log that still grows costs more at each commit than one that is written over
in place, and ours, which writes more, would leave that state sooner than its ceiling."""
CLIENTS = (4, 16)
SYNCS = 21
"""Writes behind the time that one takes to reach the disk, after all rows."""
UNIT = "events/s"

Round = Callable[[int], int]

STORES = ("memory", "sqlite", "postgres", "valkey")


def measure(rounds: int = 7, stores: Sequence[str] = STORES) -> BenchReport:
    """Run all rows of `stores`; each is the median of `rounds` rounds.

    Raises UserError for fewer than three rounds, and where a server's wheel is missing.
    """
    found: list[BenchRow] = []
    for store in stores:
        found += _memory_rows(rounds) if store == "memory" else _durable_rows(store, rounds)
    # Both decide what the ratios of durable stores mean: see above.
    circumstances = {"load": f"{os.getloadavg()[0]:.1f}", "sync": f"{_sync_time() * 1e3:.2f} ms"}
    return BenchReport({**machine(), **circumstances}, tuple(found))


def _sync_time() -> float:
    """Return the median seconds in which a page that is appended to a file reaches the disk."""

    def append() -> float:
        start = time.perf_counter()
        file.write(bytes(4096))
        file.flush()
        os.fsync(file.fileno())
        return time.perf_counter() - start

    with TemporaryFile(prefix="kvescrow-bench-") as file:
        return statistics.median(append() for _ in range(SYNCS))


def _memory_rows(rounds: int) -> list[BenchRow]:
    with memory_work() as work:
        peers: dict[str, Round] = {
            "a dictionary under a lock": BareDict().one_by_one,
            **installed_limiters(),
        }
        subjects = [_round(work.one_by_one, IN_MEMORY), *(_round(peer, IN_MEMORY) for peer in peers.values())]
        ours, *others = _rates(subjects, rounds, time.process_time)
    return [BenchRow("memory", ours, rate, name, UNIT) for name, rate in zip(peers, others, strict=True)]


def _durable_rows(store: str, rounds: int) -> list[BenchRow]:
    with _OPENED[store]() as (work, engine):
        for warm_up in (work.batched, engine.grants_batched):
            warm_up(WARM_UP)
        one = {"one count": engine.counts, "one grant": engine.grants}
        many = {"counts, batched": engine.counts_batched, "grants, batched": engine.grants_batched}
        found = _rows(f"{store}, one by one", work.one_by_one, one, ONE_BY_ONE, rounds)
        found += _rows(f"{store}, batches of {BATCH}", work.batched, many, BATCHED, rounds)
        for clients in CLIENTS:
            ours, peer = partial(work.by_clients, clients=clients), partial(engine.grants_by_clients, clients=clients)
            found += _rows(
                f"{store}, {clients} clients", ours, {f"grants, {clients} clients": peer}, BY_CLIENTS, rounds
            )
    return found


def _rows(name: str, ours: Round, peers: Mapping[str, Round], operations: int, rounds: int) -> list[BenchRow]:
    subjects = [_round(each, operations) for each in (ours, *peers.values())]
    rate, *others = _rates(subjects, rounds, time.perf_counter)
    return [BenchRow(name, rate, other, peer, UNIT) for peer, other in zip(peers, others, strict=True)]


def _round(work: Round, operations: int) -> Round:
    return lambda _: work(operations)


def _rates(subjects: Sequence[Round], rounds: int, clock: Callable[[], float]) -> list[float]:
    for subject in subjects:  # A warm-up round each.
        subject(0)
    return interleaved_rates(subjects, rounds, clock)


@contextmanager
def _sqlite() -> Iterator[tuple[LedgerWork, Engine]]:
    with TemporaryDirectory(prefix="kvescrow-bench-") as name, sqlite_work(Path(name)) as work:
        engine = SqliteEngine(Path(name))
        yield work, engine
        engine.close()


@contextmanager
def _postgres() -> Iterator[tuple[LedgerWork, Engine]]:
    with ExitStack() as stack:
        server = PostgresServer(on_disk=True)
        stack.callback(server.close)
        work = stack.enter_context(postgres_work(server.url))
        engine = PostgresEngine(server.url)
        stack.callback(engine.close)
        yield work, engine


@contextmanager
def _valkey() -> Iterator[tuple[LedgerWork, Engine]]:
    with ExitStack() as stack:
        server = ValkeyServer(on_disk=True)
        stack.callback(server.close)
        work = stack.enter_context(valkey_work(server.url))
        engine = ValkeyEngine(server.url)
        stack.callback(engine.close)
        yield work, engine


_OPENED: Mapping[str, Callable[[], AbstractContextManager[tuple[LedgerWork, Engine]]]] = {
    "sqlite": _sqlite,
    "postgres": _postgres,
    "valkey": _valkey,
}
