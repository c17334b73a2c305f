"""The ledger in PostgreSQL: one connection a gateway."""

import uuid
from pathlib import Path

import psycopg

from kvescrow.reference.ledger.encoding import check_no_zeros
from kvescrow.reference.ledger.port import Clock, LedgerConfig, Recorder, StorageError, StoreClock
from kvescrow.reference.ledger.postgres.database import Database
from kvescrow.reference.ledger.postgres.statements import quoted
from kvescrow.reference.ledger.recovery import Witness
from kvescrow.reference.ledger.shared import SharedLedger
from kvescrow.reference.receipts import Keyring
from kvescrow.spec.vocabulary import LedgerEvent


class PostgresLedger(SharedLedger):
    """A `SharedLedger` in one schema of a PostgreSQL database.

    Each group of events is one transaction: lock, decide over what is read under the lock, write, commit.
    """

    def __init__(
        self,
        url: str,
        config: LedgerConfig,
        *,
        schema: str = "kvescrow",
        keyring: Keyring | None = None,
        clock: "Clock | StoreClock | None" = StoreClock.STORE,
        recorder: Recorder | None = None,
        witness: "Path | None" = None,
        patience: float = 5.0,
    ) -> None:
        """Open the ledger in `schema` of the database at `url`, or begin it under `config`; upgrade older tables.

        `url` is a libpq connection string. An existing ledger keeps its limits, budgets and clock; new tenants, queue
        limits and the retention are taken from `config`. `clock` is the server's, unless another is given for tests,
        or None: then time moves by `Tick` alone. `recorder` sees this gateway's events after their commit. `witness`
        is a file that remembers the last change this gateway saw, so that it notices a store restored from an older
        backup even after a restart of its own. `patience` is for how many seconds a lost connection is tried again.

        Raises `StorageError` where the database cannot be had, is damaged, of another pool or a newer version, and
        `UserError` where the server runs without fsync.
        """
        memory = Witness(witness)
        store = Database(url, schema, config, keyring, memory, uuid.uuid4().hex)
        super().__init__(store, memory, clock, recorder, patience)

    def _check_storable(self, event: LedgerEvent) -> None:
        super()._check_storable(event)
        check_no_zeros(event, "PostgreSQL")


def drop(url: str, schema: str) -> None:
    """Remove the ledger in `schema` with everything it kept. Raises `StorageError` where it cannot be removed."""
    quoted_schema = quoted(schema)
    try:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"DROP SCHEMA IF EXISTS {quoted_schema} CASCADE")
    except psycopg.Error as error:
        raise StorageError(f"PostgreSQL schema {schema!r}: {error}: nothing was removed") from error
