"""The ledger in Valkey: one connection a gateway."""

import uuid
from pathlib import Path

import valkey

from kvescrow.reference.ledger.port import Clock, LedgerConfig, Recorder, StorageError, StoreClock
from kvescrow.reference.ledger.recovery import Witness
from kvescrow.reference.ledger.shared import SharedLedger
from kvescrow.reference.ledger.valkey.store import KeyStore
from kvescrow.reference.receipts import Keyring


class ValkeyLedger(SharedLedger):
    """A `SharedLedger` in the keys `{prefix}:...` of a Valkey or Redis server.

    Each group of events is loaded by one script and kept by another, which refuses where anything has changed in
    between; then the group is decided anew. Some gateway always gets through, and one that lost often gets its turn.
    """

    def __init__(
        self,
        url: str,
        config: LedgerConfig,
        *,
        prefix: str = "kvescrow",
        keyring: Keyring | None = None,
        clock: "Clock | StoreClock | None" = StoreClock.STORE,
        recorder: Recorder | None = None,
        witness: "Path | None" = None,
        patience: float = 5.0,
    ) -> None:
        """Open the ledger under `prefix` at the server `url`, or begin it under `config`.

        `url` is `valkey://`, `rediss://` or `unix://`. An existing ledger keeps its limits, budgets and clock; new
        tenants, queue limits and the retention are taken from `config`. `clock` is the server's, unless another is
        given for tests, or None: then time moves by `Tick` alone. `recorder` sees this gateway's events after they
        are kept. `witness` is a file that remembers the last change this gateway saw, so that it notices a server
        that came back with older data even after a restart of its own. `patience` is for how many seconds a lost
        connection is tried again.

        Raises `UserError` where the server's settings let it lose what it confirmed (`appendonly`, `appendfsync`,
        `maxmemory-policy`), and `StorageError` where it cannot be had, or the ledger is damaged or another pool's.
        """
        memory = Witness(witness)
        store = KeyStore(url, prefix, config, keyring, memory, uuid.uuid4().hex)
        super().__init__(store, memory, clock, recorder, patience)


def drop(url: str, prefix: str) -> None:
    """Remove the ledger under `prefix` with everything it kept. Raises `StorageError` where it cannot be removed."""
    try:
        with valkey.Valkey.from_url(url) as client:
            names = list(client.scan_iter(f"{{{prefix}}}:*", count=1000))
            if names:
                client.unlink(*names)
    except valkey.ValkeyError as error:
        raise StorageError(f"Valkey keys {prefix!r}: {error}: not all was removed") from error
