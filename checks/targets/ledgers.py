"""The reference ledger as a target: in memory, in an SQLite file, in PostgreSQL, in Valkey.

A server is taken from the environment, or started from its wheel once a process.
"""

import atexit
import os
from collections.abc import Callable
from functools import cache
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from kvescrow.checks.targets.protocols import LedgerFacts, LedgerSetup
from kvescrow.checks.targets.subject import Capabilities, Kind, Subject
from kvescrow.reference.ledger import Ledger, LedgerConfig, MemoryLedger, TenantConfig
from kvescrow.reference.ledger.sqlite import SqliteLedger
from kvescrow.reference.receipts import Keyring
from kvescrow.spec.vocabulary import Fence, LedgerEvent, LedgerSnapshot, Receipt

_KEY = b"a key that only this fuzz run has"

POSTGRES_URL, VALKEY_URL = "KVESCROW_POSTGRES_URL", "KVESCROW_VALKEY_URL"
"""Environment variables that name a server to use; what a run makes there has names of its own, and is removed."""


class ReferenceLedger:
    """Any store of the reference behind `LedgerTarget`."""

    def __init__(self, opened: Callable[[], Ledger], keyring: Keyring, remove: Callable[[], None]) -> None:
        """Open with `opened`, now and after each restart. `remove` takes away what is kept, at the end."""
        self._opened = opened
        self._ledger = opened()
        self._keyring = keyring
        self._remove = remove

    def submit(self, event: LedgerEvent) -> LedgerFacts:
        """Decide one event."""
        reply = self._ledger.submit(event)
        return LedgerFacts(reply.decision, reply.reason, reply.state, reply.life, reply.generation)

    def snapshot(self) -> LedgerSnapshot:
        """Return the whole projected state."""
        return self._ledger.snapshot()

    def sign(self, receipt: Receipt) -> Receipt:
        """Sign as the workers of the pool do."""
        return self._keyring.sign(receipt)

    def sign_fence(self, fence: Fence) -> Fence:
        """Sign as the supervisor of the pool does."""
        return self._keyring.fence("pool", fence.key, fence.owner)

    def restart(self) -> None:
        """Close the ledger and open it again."""
        self._ledger.close()
        self._ledger = self._opened()

    def close(self) -> None:
        """Close the ledger and remove what it kept."""
        self._ledger.close()
        self._remove()


def _config(setup: LedgerSetup) -> LedgerConfig:
    tenants = {name: TenantConfig(t.limit, t.budget, t.queue_limit) for name, t in setup.tenants.items()}
    return LedgerConfig(setup.pool, setup.pool_limit, tenants, setup.retention)


def _keyring() -> Keyring:
    return Keyring({"k1": _KEY}, "k1")


def open_memory(setup: LedgerSetup) -> ReferenceLedger:
    """Open the ledger in memory."""
    keys = _keyring()
    return ReferenceLedger(lambda: MemoryLedger(_config(setup), keyring=keys), keys, lambda: None)


def open_sqlite(setup: LedgerSetup) -> ReferenceLedger:
    """Open the ledger in an SQLite file of its own."""
    keys = _keyring()
    folder = TemporaryDirectory(prefix="kvescrow-fuzz-")
    path = Path(folder.name) / "ledger.sqlite"
    return ReferenceLedger(lambda: SqliteLedger(path, _config(setup), keyring=keys), keys, folder.cleanup)


_NUMBERS = count()


def _new_name() -> str:
    return f"kvescrow_fuzz_{os.getpid()}_{next(_NUMBERS)}"


@cache
def _postgres_url() -> str:
    url = os.environ.get(POSTGRES_URL)
    if url:
        return url
    from kvescrow.checks.targets.servers import PostgresServer

    server = PostgresServer()
    atexit.register(server.close)
    return server.url


@cache
def _valkey_url() -> str:
    url = os.environ.get(VALKEY_URL)
    if url:
        return url
    from kvescrow.checks.targets.servers import ValkeyServer

    server = ValkeyServer()
    atexit.register(server.close)
    return server.url


def open_postgres(setup: LedgerSetup) -> ReferenceLedger:
    """Open the ledger in a PostgreSQL schema of its own; its time moves by `Tick` alone."""
    from kvescrow.reference.ledger.postgres import PostgresLedger, drop

    keys, url, name = _keyring(), _postgres_url(), _new_name()

    def opened() -> Ledger:
        return PostgresLedger(url, _config(setup), schema=name, keyring=keys, clock=None)

    return ReferenceLedger(opened, keys, lambda: drop(url, name))


def open_valkey(setup: LedgerSetup) -> ReferenceLedger:
    """Open the ledger under a Valkey prefix of its own; its time moves by `Tick` alone."""
    from kvescrow.reference.ledger.valkey import ValkeyLedger, drop

    keys, url, name = _keyring(), _valkey_url(), _new_name()

    def opened() -> Ledger:
        return ValkeyLedger(url, _config(setup), prefix=name, keyring=keys, clock=None)

    return ReferenceLedger(opened, keys, lambda: drop(url, name))


def memory_subject() -> Subject:
    """Return the reference ledger in memory."""
    return Subject(Kind.LEDGER, open_memory)


def sqlite_subject() -> Subject:
    """Return the reference ledger in an SQLite file."""
    return Subject(Kind.LEDGER, open_sqlite, Capabilities(durable=True))


def postgres_subject() -> Subject:
    """Return the reference ledger in PostgreSQL."""
    return Subject(Kind.LEDGER, open_postgres, Capabilities(durable=True))


def valkey_subject() -> Subject:
    """Return the reference ledger in Valkey."""
    return Subject(Kind.LEDGER, open_valkey, Capabilities(durable=True))
