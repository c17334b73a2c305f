"""The reference's ledgers as a measurement drives them: reservations and their cancels, one by one or batched."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from threading import Thread

from kvescrow.checks.targets.measured import OtherWork
from kvescrow.reference.ledger import Ledger, LedgerConfig, MemoryLedger, SqliteLedger, TenantConfig
from kvescrow.spec.vocabulary import Cancel, Decision, Key, Reserve

BATCH = 64
"""Events in one batch: the largest group of a group commit."""
AMOUNT = 10
_PLENTY = 10**12
_FAR = 10**17

CONFIG = LedgerConfig(
    pool="pool",
    pool_limit=_PLENTY,
    tenants={"tenant": TenantConfig(limit=_PLENTY, budget=_PLENTY * 1000, queue_limit=4)},
    retention=10**15,
)


class LedgerWork:
    """Work on one open ledger. Every request has a name of its own, and every decision is checked."""

    def __init__(self, ledger: Ledger) -> None:
        """Drive `ledger`, which this does not close."""
        self._ledger = ledger
        self._numbers = count()
        # What a ledger keeps to find what is due, it keeps from the first time that it is asked.
        ledger.due()

    def one_by_one(self, operations: int) -> int:
        """Reserve and cancel, each in a call of its own; return how many events that was."""
        for _ in range(operations // 2):
            key = self._key()
            reply = self._ledger.submit(Reserve(key, AMOUNT, "digest", _FAR))
            _expect(reply.decision, Decision.ADMITTED)
            _expect(self._ledger.submit(Cancel(key, reply.life)).decision, Decision.RELEASED)
        return operations // 2 * 2

    def batched(self, operations: int) -> int:
        """The same in batches: all reservations of a batch, then all their cancels."""
        batches = operations // (2 * BATCH)
        for _ in range(batches):
            keys = [self._key() for _ in range(BATCH)]
            replies = self._ledger.submit_many([Reserve(key, AMOUNT, "digest", _FAR) for key in keys])
            ends = self._ledger.submit_many([Cancel(key, r.life) for key, r in zip(keys, replies, strict=True)])
            _expect(ends[-1].decision, Decision.RELEASED)
        return batches * 2 * BATCH

    def by_clients(self, operations: int, clients: int) -> int:
        """One by one from `clients` threads at once, which a durable ledger commits in groups."""
        return in_threads(clients, lambda _: self.one_by_one(operations // clients))

    def _key(self) -> Key:
        return Key("tenant", f"request {next(self._numbers)}")


def _expect(found: Decision, wanted: Decision) -> None:
    """Stop the run where a ledger did other work than is to be measured."""
    if found is not wanted:
        raise OtherWork(f"the ledger decided {found.value}, not {wanted.value}: this is not the work to be measured")


def in_threads(clients: int, work: Callable[[int], int]) -> int:
    """Do `work`, given the client's number, from `clients` threads at once; return the sum of what they return."""
    done: list[int] = []
    threads = [Thread(target=lambda n=number: done.append(work(n))) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(done) != clients:
        raise OtherWork("a client failed: its error is above")
    return sum(done)


@contextmanager
def _driven(ledger: Ledger) -> Iterator[LedgerWork]:
    try:
        yield LedgerWork(ledger)
    finally:
        ledger.close()


@contextmanager
def memory_work() -> Iterator[LedgerWork]:
    """Drive a ledger in memory."""
    with _driven(MemoryLedger(CONFIG)) as work:
        yield work


@contextmanager
def sqlite_work(folder: Path) -> Iterator[LedgerWork]:
    """Drive a ledger in a file in `folder`."""
    with _driven(SqliteLedger(folder / "ledger.sqlite", CONFIG)) as work:
        yield work


@contextmanager
def postgres_work(url: str) -> Iterator[LedgerWork]:
    """Drive a ledger in the database at `url`, which is the run's own."""
    from kvescrow.reference.ledger.postgres import PostgresLedger

    with _driven(PostgresLedger(url, CONFIG)) as work:
        yield work


@contextmanager
def valkey_work(url: str) -> Iterator[LedgerWork]:
    """Drive a ledger in the server at `url`, which is the run's own."""
    from kvescrow.reference.ledger.valkey import ValkeyLedger

    with _driven(ValkeyLedger(url, CONFIG)) as work:
        yield work
