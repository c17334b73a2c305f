"""The reference ledger as a target: in memory, and in an SQLite file."""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from kvescrow.checks.targets.protocols import Capabilities, Kind, LedgerFacts, LedgerSetup, Subject
from kvescrow.reference.ledger import Ledger, LedgerConfig, MemoryLedger, TenantConfig
from kvescrow.reference.ledger.sqlite import SqliteLedger
from kvescrow.reference.receipts import Keyring
from kvescrow.spec.vocabulary import Fence, LedgerEvent, LedgerSnapshot, Receipt

_KEY = b"a key that only this fuzz run has"


class ReferenceLedger:
    """Any store of the reference behind `LedgerTarget`."""

    def __init__(self, opened: Callable[[], Ledger], keyring: Keyring, folder: TemporaryDirectory[str] | None) -> None:
        """Open with `opened`, now and after each restart. `folder`, if any, is removed at the end."""
        self._opened = opened
        self._ledger = opened()
        self._keyring = keyring
        self._folder = folder

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
        """Close the ledger and remove its file."""
        self._ledger.close()
        if self._folder is not None:
            self._folder.cleanup()


def _config(setup: LedgerSetup) -> LedgerConfig:
    tenants = {name: TenantConfig(t.limit, t.budget, t.queue_limit) for name, t in setup.tenants.items()}
    return LedgerConfig(setup.pool, setup.pool_limit, tenants, setup.retention)


def _keyring() -> Keyring:
    return Keyring({"k1": _KEY}, "k1")


def open_memory(setup: LedgerSetup) -> ReferenceLedger:
    """Open the ledger in memory."""
    keys = _keyring()
    return ReferenceLedger(lambda: MemoryLedger(_config(setup), keyring=keys), keys, None)


def open_sqlite(setup: LedgerSetup) -> ReferenceLedger:
    """Open the ledger in an SQLite file of its own."""
    keys = _keyring()
    folder = TemporaryDirectory(prefix="kvescrow-fuzz-")
    path = Path(folder.name) / "ledger.sqlite"
    return ReferenceLedger(lambda: SqliteLedger(path, _config(setup), keyring=keys), keys, folder)


def memory_subject() -> Subject:
    """Return the reference ledger in memory."""
    return Subject(Kind.LEDGER, open_memory)


def sqlite_subject() -> Subject:
    """Return the reference ledger in an SQLite file."""
    return Subject(Kind.LEDGER, open_sqlite, Capabilities(durable=True))
