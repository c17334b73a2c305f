"""The stores of the reference under torture: each process that has a store, and each gateway's way to it.

A ledger in memory or in an SQLite file lives in one process (SCA-1). Here that process serves a Unix socket, one
thread a connection, and gateways call it there.
"""

import multiprocessing
import os
import resource
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing.connection import Client, Listener
from multiprocessing.connection import Connection as Pipe
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any, cast

from attrs import asdict, evolve, frozen

from kvescrow.checks.concurrency import Answer, Change, Terms
from kvescrow.checks.targets.planted_ledgers import check_sabotage, open_planted
from kvescrow.checks.torture.clock import SteppedClock
from kvescrow.checks.torture.faults import BY_GATEWAYS, FaultKind
from kvescrow.checks.torture.site import (
    Connection,
    Evidence,
    Front,
    NotApplied,
    Reply,
    StoreDown,
    StoreUnderTorture,
    Unreachable,
)
from kvescrow.reference.journal import line_of
from kvescrow.reference.ledger import (
    Admission,
    JournalEntry,
    Ledger,
    LedgerConfig,
    LedgerReply,
    StorageError,
    TenantConfig,
)
from kvescrow.reference.receipts import Keyring
from kvescrow.spec.vocabulary import (
    Fence,
    Key,
    LedgerEvent,
    LedgerSnapshot,
    Receipt,
    UserError,
)
from kvescrow.spec.world.ledger import TenantTerms

POOL = "pool"
CONFIG = LedgerConfig(
    pool=POOL,
    pool_limit=100,
    tenants={
        "red": TenantConfig(limit=70, budget=10**12, queue_limit=4),
        "blue": TenantConfig(limit=60, budget=10**12, queue_limit=4),
        "green": TenantConfig(limit=40, budget=600, queue_limit=2),
    },
    retention=1_000_000,
)
"""Small, so that every limit is met; the third tenant runs out of its budget on the way."""
KEYRING = Keyring({"torture": b"a key that only these campaigns have"}, "torture")
EVERYWHERE = frozenset(
    {
        FaultKind.GATEWAY_KILLED,
        FaultKind.GATEWAY_STOPPED,
        FaultKind.SERVER_STOPPED,
        FaultKind.CLOCK_FORWARD,
        FaultKind.CLOCK_BACK,
        FaultKind.CONNECTION_STORM,
        *BY_GATEWAYS,
    }
)
"""Faults that every store can suffer."""
_START_SECONDS = 20


@frozen
class ReferenceSite:
    """What gateways need, whatever the store; `opener` makes a connection."""

    clock: SteppedClock
    opener: "Callable[[SteppedClock], Connection]"
    forgets_the_clock: bool
    """Memory is one process for good; what outlives a process keeps its clock with changes alone."""

    @property
    def terms(self) -> Terms:
        """What the ledger began with."""
        tenants = {name: TenantTerms(t.limit, t.budget, t.queue_limit) for name, t in CONFIG.tenants.items()}
        return Terms(CONFIG.pool_limit, tenants, CONFIG.retention)

    def connect(self) -> Connection:
        """Return a new connection."""
        return self.opener(self.clock)

    def front(self, ledger: Connection, lease: int) -> Front:
        """Stand an admission front before `ledger`."""
        return _Front(Admission(cast(Ledger, ledger), lease=lease))

    def sign(self, receipt: Receipt) -> Receipt:
        """Sign as the workers of the pool do."""
        return KEYRING.sign(evolve(receipt, pool=POOL))

    def fence(self, key: Key, owner: str) -> Fence:
        """Prove that `owner` is gone."""
        return KEYRING.fence(POOL, key, owner)


class _Front:
    def __init__(self, admission: Admission) -> None:
        self._admission = admission

    def submit(self, event: LedgerEvent) -> Reply:
        return self._admission.submit(event).reply

    def advance(self) -> None:
        self._admission.advance()


# --- one process that has the store -----------------------------------------------------------------------------------


@frozen
class SocketOpener:
    """Connects to the process that has the store."""

    address: str

    def __call__(self, clock: SteppedClock) -> "RemoteLedger":
        """Connect; the other side reads the clock."""
        try:
            return RemoteLedger(Client(self.address, "AF_UNIX"))
        except (OSError, EOFError) as error:
            raise Unreachable(str(error)) from error


class RemoteLedger:
    """A ledger in another process."""

    def __init__(self, pipe: "Pipe[Any, Any]") -> None:
        self._pipe = pipe

    def submit(self, event: LedgerEvent) -> LedgerReply:
        """Decide one event."""
        return cast(LedgerReply, self._ask("submit", event))

    def due(self) -> list[LedgerEvent]:
        """Return the events that time has made due."""
        return cast("list[LedgerEvent]", self._ask("due"))

    def waiting(self) -> tuple[Key, ...]:
        """Return the queued keys."""
        return cast("tuple[Key, ...]", self._ask("waiting"))

    def snapshot(self) -> LedgerSnapshot:
        """Return the whole projected state."""
        return cast(LedgerSnapshot, self._ask("snapshot"))

    def journal(self) -> list[JournalEntry]:
        """Return every change."""
        return cast("list[JournalEntry]", self._ask("journal"))

    def close(self) -> None:
        """Hang up."""
        self._pipe.close()

    def _ask(self, question: str, *arguments: object) -> object:
        try:
            self._pipe.send((question, *arguments))
            kind, answer = self._pipe.recv()
        except (OSError, EOFError) as error:
            raise Unreachable(str(error)) from error
        match kind:
            case "answer":
                return answer
            case "not applied":
                raise NotApplied(answer)
            case _:
                raise UserError(str(answer))


def _serve(address: str, opener: "Callable[[SteppedClock], Ledger]", clock: SteppedClock) -> None:
    """Open the ledger and serve it until killed."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # The campaign tells of an interrupt.
    ledger = opener(clock)
    with suppress(FileNotFoundError):
        os.unlink(address)
    listener = Listener(address, "AF_UNIX", backlog=128)
    while True:
        try:
            pipe = listener.accept()
        except OSError:
            # The caller hung up before it was greeted.
            continue
        Thread(target=_serve_one, args=(ledger, pipe), daemon=True).start()


def _serve_one(ledger: Ledger, pipe: "Pipe[Any, Any]") -> None:
    with suppress(OSError, EOFError):
        while True:
            question, *arguments = pipe.recv()
            try:
                answer: tuple[str, object] = ("answer", getattr(ledger, question)(*arguments))
            except StorageError as error:
                answer = ("not applied", str(error))
            except UserError as error:
                answer = ("error", str(error))
            pipe.send(answer)


@frozen
class LedgerOpener:
    """Opens the ledger in the process that has it."""

    store: str
    folder: str
    sabotage: str | None = None

    def __call__(self, clock: SteppedClock) -> Ledger:
        """Open it, or open it again on the file that it had."""
        return open_planted(self.sabotage, self.store, Path(self.folder) / "ledger", CONFIG, KEYRING, clock)


class ServedStore:
    """A ledger in memory or in an SQLite file, in a process of its own."""

    def __init__(self, store: str, sabotage: str | None = None) -> None:
        """Make room for it; `sabotage` plants an error in it."""
        self._folder = TemporaryDirectory(prefix="kvescrow-store-")
        folder = Path(self._folder.name)
        self._store = store
        self._opener = LedgerOpener(store, str(folder), sabotage)
        self._address = str(folder / "socket")
        clock = SteppedClock(folder / "clock")
        clock.begin()
        self._site = ReferenceSite(clock, SocketOpener(self._address), forgets_the_clock=store != "memory")
        self._process: BaseProcess | None = None

    @property
    def name(self) -> str:
        """By which results name it."""
        return self._store

    @property
    def faults(self) -> frozenset[FaultKind]:
        """Memory forgets everything with its process and has no file."""
        return EVERYWHERE | ({FaultKind.SERVER_KILLED, FaultKind.DISK_FULL} if self._store == "sqlite" else set())

    @property
    def site(self) -> ReferenceSite:
        """What gateways need."""
        return self._site

    def start(self) -> None:
        """Start its process."""
        context = multiprocessing.get_context("forkserver")
        with suppress(FileNotFoundError):
            os.unlink(self._address)
        arguments = (self._address, self._opener, self._site.clock)
        self._process = context.Process(target=_serve, args=arguments, daemon=True)
        self._process.start()
        until = time.monotonic() + _START_SECONDS
        while True:
            try:
                self._site.connect().close()
                return
            except Unreachable as error:
                if self._process.exitcode is not None or time.monotonic() > until:
                    status = self._process.exitcode
                    raise StoreDown(f"its process does not answer (status {status}, {error})") from error
                time.sleep(0.01)

    def kill(self) -> None:
        """Kill its process."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None

    def pause(self) -> None:
        """Stop its process where it is."""
        os.kill(self._pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        os.kill(self._pid, signal.SIGCONT)

    def squeeze(self) -> None:
        """Let no file of the process grow; Python ignores the signal, so its writes fail."""
        _, most = resource.prlimit(self._pid, resource.RLIMIT_FSIZE)
        resource.prlimit(self._pid, resource.RLIMIT_FSIZE, (1, most))

    def relieve(self) -> None:
        """Let them grow again."""
        _, most = resource.prlimit(self._pid, resource.RLIMIT_FSIZE)
        resource.prlimit(self._pid, resource.RLIMIT_FSIZE, (most, most))

    @property
    def _pid(self) -> int:
        if self._process is None or self._process.pid is None:
            raise StoreDown("its process is not running")
        return self._process.pid

    def evidence(self) -> Evidence:
        """Return its journal and its state."""
        connection = self._site.connect()
        return evidence_of(connection.journal(), connection.snapshot())  # type: ignore[attr-defined]  # a RemoteLedger

    def close(self) -> None:
        """End its process and remove its files."""
        self.kill()
        self._folder.cleanup()


def evidence_of(entries: "list[JournalEntry]", final: LedgerSnapshot) -> Evidence:
    """Return the evidence in a ledger's own journal and snapshot."""
    config: Mapping[str, object] = asdict(CONFIG)
    return Evidence([_change_of(entry) for entry in entries], [line_of(entry) for entry in entries], config, final)


def _change_of(entry: JournalEntry) -> Change:
    reply = entry.reply
    answer = Answer(
        reply.decision,
        reply.reason,
        reply.state,
        reply.life,
        reply.generation,
        reply.seq,
        (reply.free_tenant, reply.free_pool),
    )
    return Change(entry.seq, entry.event, answer, entry.now)


def open_store(store: str, sabotage: str | None = None) -> StoreUnderTorture:
    """Return the store called `store`, with a planted error or without. Raises `UserError` for an unknown error."""
    if sabotage is not None:
        check_sabotage(sabotage, store)
    if store in ("memory", "sqlite"):
        return ServedStore(store, sabotage)
    # Their servers and clients are extras.
    from kvescrow.checks.targets.torture_servers import ServerStore

    return ServerStore(store)
