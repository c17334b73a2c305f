"""The ledger in PostgreSQL: one connection and one writer thread a gateway."""

import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from kvescrow.reference.ledger.groups import Group, GroupedLedger, decide_groups
from kvescrow.reference.ledger.port import (
    Clock,
    JournalEntry,
    LedgerConfig,
    OutcomeUnknown,
    Recorder,
    StorageError,
    StoreClock,
)
from kvescrow.reference.ledger.postgres.database import ConnectionLost, Database, patiently
from kvescrow.reference.ledger.recovery import Witness
from kvescrow.reference.ledger.rows import check_no_zeros
from kvescrow.reference.receipts import Keyring
from kvescrow.spec.vocabulary import Key, LedgerEvent, LedgerSnapshot

T = TypeVar("T")

ATTEMPTS = 3
"""Times a group is decided anew after its connection broke before its commit."""


class PostgresLedger(GroupedLedger):
    """A durable `Ledger` that any number of gateways share, each with a `PostgresLedger` of its own.

    Each group of events is one transaction: lock, decide over what was read under the lock, write, commit. Nothing is
    cached between two groups. A reply comes after the commit of its change.

    A connection that breaks is made anew. Where that was before the commit, the group is decided again; where it was
    during the commit, the journal tells whether it took place. Only where the server stays away is the caller told
    `OutcomeUnknown`, and then its key tells.
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
        super().__init__(f"schema {schema}", recorder)
        self._clock = clock
        self._patience = patience
        self._floor = 0
        self._witness = Witness(witness)
        self._database = Database(url, schema, config, keyring, self._witness, uuid.uuid4().hex)
        try:
            self._database.open()
        except BaseException:
            self._database.close()
            self._witness.close()
            raise
        self._begin()

    @property
    def recovering(self) -> bool:
        """Whether changes may be missing, so that nothing is granted (RECOVERING)."""
        return self._ask(lambda: self._read(self._database.is_recovering))

    def begin_recovery(self) -> None:
        """Grant nothing until `confirm_recovered`; for an operator who restored a backup."""
        self._ask(lambda: self._read(self._database.begin_recovery))

    def confirm_recovered(self) -> bool:
        """Grant again; return whether the ledger was recovering.

        For an operator who has made sure that no work runs which the ledger does not know: that its worker
        incarnations are gone, for one. Lives and generations that were drawn in the lost changes are not drawn again.
        """
        return self._ask(lambda: self._read(self._database.confirm_recovered))

    def _check_storable(self, event: LedgerEvent) -> None:
        super()._check_storable(event)
        check_no_zeros(event, "PostgreSQL")

    def _keep(self, groups: Sequence[Group]) -> None:
        for _ in range(ATTEMPTS):
            try:
                return self._attempt(groups)
            except ConnectionLost:
                patiently(self._database.connect, self._patience)
        raise StorageError(
            f"{self._database.name}: the connection was lost {ATTEMPTS} times, nothing was applied: submit again"
        )

    def _attempt(self, groups: Sequence[Group]) -> None:
        database = self._database
        books, now = database.load([event for group in groups for event in group.events])

        def decide(event: LedgerEvent) -> JournalEntry:
            if self._clock is not None:
                books.advance(self._passed(now))
            return books.handle(event)

        changes = decide_groups(groups, decide)
        if not changes:
            database.release()
            return
        try:
            database.save(changes, books)
        except ConnectionLost as error:
            if not self._was_kept(changes, error):
                raise

    def _was_kept(self, changes: Sequence[JournalEntry], error: ConnectionLost) -> bool:
        """Return whether `changes` were committed although the answer was lost (SCA-2)."""

        def ask() -> bool:
            self._database.connect()
            return self._database.kept(changes)

        try:
            return patiently(ask, self._patience)
        except StorageError:
            raise OutcomeUnknown(
                f"{self._database.name}: the connection was lost while committing: submit the event again, its key "
                "tells whether it was applied"
            ) from error

    def _passed(self, server: int) -> int:
        """Return the time, never less than this gateway has seen; `server` is what the server's clock showed."""
        now = self._clock() if callable(self._clock) else server
        self._floor = max(self._floor, now)
        return self._floor

    def _read(self, question: Callable[[], T]) -> T:
        """Return the answer to `question`; where the connection was lost, connect and ask again."""
        try:
            return question()
        except ConnectionLost:
            patiently(self._database.connect, self._patience)
            return question()

    def _entries(self, after: int) -> list[JournalEntry]:
        return self._read(lambda: self._database.entries(after))

    def _snapshot(self) -> LedgerSnapshot:
        books = self._read(self._database.read)
        books.advance(self._floor)
        return books.snapshot()

    def _waiting(self) -> tuple[Key, ...]:
        return self._read(self._database.waiting)

    def _due(self) -> list[LedgerEvent]:
        return self._read(lambda: self._database.due(self._read_clock()))

    def _read_clock(self) -> int:
        if self._clock is None:
            return 0
        return self._passed(0 if callable(self._clock) else self._database.now())

    def _end(self) -> None:
        try:
            if self._floor:
                self._database.keep_clock(self._floor)
        except StorageError:
            # Only the clock's last reading is lost; every change was committed before its reply.
            pass
        finally:
            self._database.close()
            self._witness.close()
