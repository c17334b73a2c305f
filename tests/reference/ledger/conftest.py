"""Ledgers for the tests: every store behind one fixture, and the words that scenarios are told in.

The servers are real and start once a session, in memory; each ledger has a schema or a name of its own there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from kvescrow.reference.ledger import Ledger, LedgerConfig, MemoryLedger, SqliteLedger, TenantConfig
from kvescrow.reference.ledger.postgres import PostgresLedger
from kvescrow.reference.ledger.shared import SharedLedger
from kvescrow.reference.ledger.valkey import ValkeyLedger
from kvescrow.reference.receipts import Keyring
from kvescrow.spec.vocabulary import Finish, Key, Receipt, StopOutcome
from tests.reference.ledger.sharing import Place, PostgresPlace, ValkeyPlace

SECOND = 1_000_000
FAR = 10**12

Open = Callable[..., Ledger]
Opened = Callable[..., SharedLedger]


@pytest.fixture
def keyring() -> Keyring:
    return Keyring({"first": b"a key of thirty-two random bytes"}, "first")


NUMBERS = count()


@pytest.fixture
def schema() -> str:
    """Name a place on a server that no other test uses: a schema, or a prefix of keys."""
    return f"ledger_{next(NUMBERS)}"


@pytest.fixture(params=["memory", "sqlite", "postgres", "valkey"])
def open_ledger(request: pytest.FixtureRequest, tmp_path: Path, keyring: Keyring) -> Iterator[Open]:
    """Open a ledger of the store under test; each call opens another one, and all are closed at the end."""
    opened: list[Ledger] = []

    def open_one(config: LedgerConfig, **options: Any) -> Ledger:
        options = {"keyring": keyring, "clock": None, **options}
        ledger: Ledger
        match request.param:
            case "memory":
                ledger = MemoryLedger(config, **options)
            case "sqlite":
                ledger = SqliteLedger(tmp_path / f"{len(opened)}.ledger", config, **options)
            case "postgres":
                url = request.getfixturevalue("postgres").url
                ledger = PostgresLedger(url, config, schema=f"ledger_{next(NUMBERS)}", **options)
            case _:
                url = request.getfixturevalue("valkey").url
                ledger = ValkeyLedger(url, config, prefix=f"ledger_{next(NUMBERS)}", **options)
        opened.append(ledger)
        return ledger

    yield open_one
    for ledger in opened:
        ledger.close()


@pytest.fixture
def finish(keyring: Keyring) -> Callable[..., Finish]:
    """Return the event with an authentic receipt."""

    def make(key: Key, owner: str, generation: int, used: int, outcome: StopOutcome = StopOutcome.COMPLETED) -> Finish:
        return Finish(keyring.sign(receipt(key, owner, generation, used, outcome)))

    return make


def receipt(key: Key, owner: str, generation: int, used: int, outcome: StopOutcome = StopOutcome.COMPLETED) -> Receipt:
    """Return an unsigned receipt for pool `pool`."""
    return Receipt("pool", key, owner, generation, 7, outcome, used, "", b"")


@pytest.fixture
def config() -> LedgerConfig:
    """A pool of 40,000 with two tenants that may each take all of it."""
    return LedgerConfig(
        pool="pool",
        pool_limit=40_000,
        tenants={name: TenantConfig(limit=40_000, budget=1_000_000, queue_limit=4) for name in ("red", "blue")},
        retention=60 * SECOND,
    )


@pytest.fixture(params=["postgres", "valkey"])
def place(request: pytest.FixtureRequest, schema: str, keyring: Keyring) -> Place:
    url = request.getfixturevalue(request.param).url
    return PostgresPlace(url, schema, keyring) if request.param == "postgres" else ValkeyPlace(url, schema, keyring)


@pytest.fixture
def gateway(place: Place, config: LedgerConfig) -> Iterator[Opened]:
    """Open one more gateway on the ledger under test; all are closed at the end."""
    opened: list[SharedLedger] = []

    def open_one(config: LedgerConfig = config, **options: object) -> SharedLedger:
        opened.append(place.open(config, **options))
        return opened[-1]

    yield open_one
    for ledger in opened:
        ledger.close()
