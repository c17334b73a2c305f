"""The ledgers in PostgreSQL and Valkey under torture: a real server of their own, and a connection for each caller."""

import logging
import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol, TypeVar

from attrs import frozen

from kvescrow.checks.targets.servers import PostgresServer, ValkeyServer
from kvescrow.checks.targets.torture import CONFIG, EVERYWHERE, KEYRING, ReferenceSite, evidence_of
from kvescrow.checks.torture.clock import SteppedClock
from kvescrow.checks.torture.faults import FaultKind
from kvescrow.checks.torture.site import Connection, Evidence, NotApplied, Reply, StoreDown, Unreachable
from kvescrow.reference.ledger import JournalEntry, Ledger, LedgerReply, StorageError
from kvescrow.reference.ledger.port import OutcomeUnknown
from kvescrow.spec.vocabulary import Key, LedgerEvent, LedgerSnapshot

T = TypeVar("T")

_PATIENCE = 0.2
"""Seconds for which a gateway tries a lost connection again by itself; short, so that callers see what happens."""
_SECONDS = 20
"""Seconds in which a server must be up, or dead."""


class _Server(Protocol):
    @property
    def url(self) -> str: ...
    @property
    def processes(self) -> list[int]: ...
    def start(self) -> None: ...
    def close(self) -> None: ...


@frozen
class ServerOpener:
    """Opens a ledger of this process in the store."""

    store: str
    url: str

    def __call__(self, clock: SteppedClock) -> Connection:
        """Open it. Raises `Unreachable`."""
        try:
            return SharedConnection(self._open(clock))
        except (StorageError, OutcomeUnknown) as error:
            raise Unreachable(str(error)) from error

    def _open(self, clock: SteppedClock) -> Ledger:
        if self.store == "postgres":
            from kvescrow.reference.ledger.postgres import PostgresLedger

            # Connections break on purpose here, so that they did is no news.
            logging.getLogger("psycopg").setLevel(logging.CRITICAL)
            return PostgresLedger(self.url, CONFIG, keyring=KEYRING, clock=clock, patience=_PATIENCE)
        from kvescrow.reference.ledger.valkey import ValkeyLedger

        return ValkeyLedger(self.url, CONFIG, keyring=KEYRING, clock=clock, patience=_PATIENCE)


class SharedConnection:
    """A ledger of this process; what it says of a broken store is told in the words of a campaign."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def submit(self, event: LedgerEvent) -> Reply:
        """Decide one event."""
        return self._told(lambda: self._submit(event))

    def _submit(self, event: LedgerEvent) -> LedgerReply:
        return self._ledger.submit(event)

    def due(self) -> list[LedgerEvent]:
        """Return the events that time has made due."""
        return self._told(self._ledger.due)

    def waiting(self) -> tuple[Key, ...]:
        """Return the queued keys."""
        return self._told(self._ledger.waiting)

    def snapshot(self) -> LedgerSnapshot:
        """Return the whole projected state."""
        return self._told(self._ledger.snapshot)

    def journal(self) -> list[JournalEntry]:
        """Return every change."""
        return self._told(self._ledger.journal)

    def close(self) -> None:
        """Give up the ledger."""
        self._ledger.close()

    @staticmethod
    def _told(ask: Callable[[], T]) -> T:
        try:
            return ask()
        except OutcomeUnknown as error:
            raise Unreachable(str(error)) from error
        except StorageError as error:
            raise NotApplied(str(error)) from error


class ServerStore:
    """A ledger in a server that every gateway reaches by itself."""

    def __init__(self, store: str) -> None:
        """Start the server; takes seconds for PostgreSQL."""
        self._store = store
        self._folder = TemporaryDirectory(prefix="kvescrow-store-")
        self._server: _Server = PostgresServer() if store == "postgres" else ValkeyServer()
        clock = SteppedClock(Path(self._folder.name) / "clock")
        clock.begin()
        self._site = ReferenceSite(clock, ServerOpener(store, self._server.url), forgets_the_clock=True)

    @property
    def name(self) -> str:
        """By which results name it."""
        return self._store

    @property
    def faults(self) -> frozenset[FaultKind]:
        """A server can suffer all of them."""
        return EVERYWHERE | {FaultKind.SERVER_KILLED, FaultKind.DISK_FULL}

    @property
    def site(self) -> ReferenceSite:
        """What gateways need."""
        return self._site

    def start(self) -> None:
        """Start the server where it is down, and wait until the ledger opens."""
        until = time.monotonic() + _SECONDS
        while True:
            try:
                if not self._server.processes:
                    self._server.start()
                self._site.connect().close()
                return
            except Exception as error:
                if time.monotonic() > until:
                    raise StoreDown(str(error)) from error
                time.sleep(0.02)

    def kill(self) -> None:
        """Kill every process of the server, those that it starts meanwhile and those that outlive it included."""
        until = time.monotonic() + _SECONDS
        while self._server.processes:
            self._signal(signal.SIGKILL)
            if time.monotonic() > until:
                raise StoreDown("the server does not die")
            time.sleep(0.005)

    def pause(self) -> None:
        """Stop them where they are."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let them go on."""
        self._signal(signal.SIGCONT)

    def squeeze(self) -> None:
        """Let no file of the server grow."""
        self._limit_files(1)

    def relieve(self) -> None:
        """Let them grow again; a server that gave up over it is started again."""
        self._limit_files(None)
        time.sleep(0.1)
        self.start()

    def evidence(self) -> Evidence:
        """Return its journal and its state."""
        connection = self._site.connect()
        try:
            return evidence_of(connection.journal(), connection.snapshot())  # type: ignore[attr-defined]  # as opened
        finally:
            connection.close()

    def close(self) -> None:
        """Stop the server and remove its files."""
        self._server.close()
        self._folder.cleanup()

    def _signal(self, number: signal.Signals) -> None:
        for pid in self._server.processes:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def _limit_files(self, size: int | None) -> None:
        """Limit the size of files that the server may write to, or lift the limit.

        Each limit is set as the user whose process it is, since a server may run as another user.
        """
        for pid in self._server.processes:
            with suppress(FileNotFoundError):
                user = os.stat(f"/proc/{pid}").st_uid
                limit = f"--fsize={'unlimited' if size is None else size}:"
                subprocess.run(["prlimit", f"--pid={pid}", limit], user=user, check=False, capture_output=True)
