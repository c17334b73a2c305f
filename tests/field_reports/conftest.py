"""Subjects that every vector runs on: the oracle, and the reference with each of its ledgers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Protocol

import pytest

from kvescrow.reference.ledger import Ledger as LedgerPort
from kvescrow.reference.ledger import LedgerConfig, SqliteLedger
from kvescrow.reference.ledger.postgres import PostgresLedger
from kvescrow.reference.ledger.valkey import ValkeyLedger
from kvescrow.reference.receipts import Keyring
from kvescrow.reference.scheduler.fair import ClassTerms, FairQueue, TenantTerms
from tests.field_reports.driver import Worker
from tests.field_reports.ledger import Ledger, Terms
from tests.field_reports.on_reference import OpenStore, ReferenceLedger, ReferencePages, ReferenceWorker, in_memory
from tests.field_reports.on_world import WorldLedger, WorldPages, WorldWorker
from tests.field_reports.pages import PAGE_LENGTH, TENANT, Pages
from tests.field_reports.queues import CLASS, QueueOf

DEFAULT_TENANTS = {TENANT: Terms()}


class PagesOf(Protocol):
    """Build a pool with that many usable pages of `length` tokens; `weak`: all chain digests collide."""

    def __call__(self, pages: int, length: int = PAGE_LENGTH, *, weak: bool = False) -> Pages: ...


class LedgerOf(Protocol):
    """Build a ledger over a pool of that many units."""

    def __call__(self, pool_limit: int, tenants: Mapping[str, Terms] = DEFAULT_TENANTS) -> Ledger: ...


WorkerOf = Callable[[int], Worker]
"""Build a worker with that many usable pages, and the ledger that counts them."""


@pytest.fixture(params=["oracle", "reference"])
def pages_of(request: pytest.FixtureRequest) -> PagesOf:
    """A page pool."""
    subject = {"oracle": WorldPages, "reference": ReferencePages}[request.param]

    def build(pages: int, length: int = PAGE_LENGTH, *, weak: bool = False) -> Pages:
        return subject(pages, length, weak=weak)

    return build


EVERY_STORE = ("oracle", "reference-memory", "reference-sqlite", "reference-postgres", "reference-valkey")
"""Subjects of vectors that say something of the store too: parametrize `ledger_of` with them, indirectly."""

_NUMBERS = count()


@pytest.fixture
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], OpenStore]:
    """Return how an empty ledger of the named store is opened; a server starts when it is first needed."""

    def in_postgres(config: LedgerConfig, keyring: Keyring) -> LedgerPort:
        url = request.getfixturevalue("postgres").url
        return PostgresLedger(url, config, schema=f"field_{next(_NUMBERS)}", keyring=keyring, clock=None)

    def in_valkey(config: LedgerConfig, keyring: Keyring) -> LedgerPort:
        url = request.getfixturevalue("valkey").url
        return ValkeyLedger(url, config, prefix=f"field_{next(_NUMBERS)}", keyring=keyring, clock=None)

    def in_sqlite(config: LedgerConfig, keyring: Keyring) -> LedgerPort:
        return SqliteLedger(tmp_path / f"{next(_NUMBERS)}.sqlite", config, keyring=keyring)

    stores = {
        "reference-memory": in_memory,
        "reference-sqlite": in_sqlite,
        "reference-postgres": in_postgres,
        "reference-valkey": in_valkey,
    }
    return stores.__getitem__


@pytest.fixture(params=["oracle", "reference-memory", "reference-sqlite"])
def ledger_of(request: pytest.FixtureRequest, open_store: Callable[[str], OpenStore]) -> Iterator[LedgerOf]:
    """A ledger."""
    opened: list[ReferenceLedger] = []

    def build(pool_limit: int, tenants: Mapping[str, Terms] = DEFAULT_TENANTS) -> Ledger:
        if request.param == "oracle":
            return WorldLedger(pool_limit, tenants)
        opened.append(ReferenceLedger(pool_limit, tenants, open_store(request.param)))
        return opened[-1]

    yield build
    for each in opened:
        each.ledger.close()


@pytest.fixture
def worker_of(ledger_of: LedgerOf) -> WorkerOf:
    """A worker, of the same subject as the ledger."""

    def build(pages: int) -> Worker:
        ledger = ledger_of(pages)
        if isinstance(ledger, WorldLedger):
            return WorldWorker(WorldPages(pages, PAGE_LENGTH, weak=False), ledger)
        assert isinstance(ledger, ReferenceLedger)
        return ReferenceWorker(ReferencePages(pages, PAGE_LENGTH, weak=False), ledger)

    return build


@pytest.fixture
def queue_of() -> QueueOf:
    """An admission queue."""
    return fair_queue


def fair_queue(weights: Mapping[str, int]) -> FairQueue:
    """The reference's queue, with one class and a thousand places for each tenant."""
    tenants = {name: TenantTerms(CLASS, weight) for name, weight in weights.items()}
    return FairQueue({CLASS: ClassTerms(1, 1_000)}, tenants, TenantTerms(CLASS))
