"""A caller that gives up nothing: it submits an event until it is answered, and logs each try as a call."""

import random
import time
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import TypeVar

from kvescrow.checks.concurrency import Answer, Call
from kvescrow.checks.torture.log import Log
from kvescrow.checks.torture.site import Connection, NotApplied, Reply, Site, Unreachable
from kvescrow.spec.vocabulary import Key, LedgerEvent, LedgerSnapshot

T = TypeVar("T")

LOST_REPLIES = 0.02
REPEATS = 0.02
"""Shares of all events whose reply is thrown away, and that are sent twice."""
_PAUSE = 0.02
"""Seconds before the next try."""


class Over(Exception):
    """The campaign is over, and the store cannot be reached."""


class Caller:
    """One thread's caller; it looks like the ledger, so a front can stand before it."""

    def __init__(self, site: Site, log: Log, process: str, until: int, dice: random.Random) -> None:
        """Try each event until `until`, a reading of the monotonic clock in nanoseconds."""
        self._site = site
        self._log = log
        self._process = process
        self._until = until
        self._dice = dice
        self._connection: Connection | None = None
        self._echo: Echo | None = None

    def with_faults(self, echo: "Echo") -> "Caller":
        """Lose replies and repeat events from now on, by `echo`."""
        self._echo = echo
        return self

    def submit(self, event: LedgerEvent) -> Reply:
        """Return the answer to `event`, however many tries that takes. Raises `Over`."""
        return self.submit_proof(event, authentic=True)

    def submit_proof(self, event: LedgerEvent, *, authentic: bool) -> Reply:
        """Do the same with an event whose proof is authentic or forged."""
        if self._echo is not None and self._dice.random() < REPEATS:
            self._echo.send(event, authentic=authentic)
        while self._echo is not None and self._dice.random() < LOST_REPLIES:
            if self._try(lambda: self._once(event, authentic, keep=False)) is not None:
                self._log.lost_reply()
        return self._patiently(lambda: self._once(event, authentic, keep=True))

    def due(self) -> list[LedgerEvent]:
        """Return the events that time has made due."""
        return self._patiently(lambda: self._connected().due())

    def waiting(self) -> tuple[Key, ...]:
        """Return the queued keys."""
        return self._patiently(lambda: self._connected().waiting())

    def snapshot(self) -> LedgerSnapshot:
        """Return the whole projected state."""
        return self._patiently(lambda: self._connected().snapshot())

    def close(self) -> None:
        """Hang up."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _patiently(self, ask: Callable[[], T]) -> T:
        while time.monotonic_ns() < self._until:
            answer = self._try(ask)
            if answer is not None:
                return answer
            time.sleep(_PAUSE)
        raise Over

    def _try(self, ask: Callable[[], T]) -> T | None:
        try:
            return ask()
        except NotApplied:
            return None
        except Unreachable:
            self.close()
            return None

    def _once(self, event: LedgerEvent, authentic: bool, *, keep: bool) -> Reply:
        connection = self._connected()
        number = self._log.sent(Call(self._process, event, time.monotonic_ns(), authentic=authentic))
        try:
            reply = connection.submit(event)
        except NotApplied:
            self._log.failed(number)
            raise
        if keep:
            self._log.answered(number, time.monotonic_ns(), answer_of(reply))
        return reply

    def _connected(self) -> Connection:
        if self._connection is None:
            self._connection = self._site.connect()
        return self._connection


class Echo:
    """Sends events a second time on a connection of its own, and never looks at the answers."""

    def __init__(self, site: Site, log: Log, process: str, until: int) -> None:
        self._caller = Caller(site, log, f"{process}-echo", until, random.Random(0))
        self._log = log
        self._events: SimpleQueue[tuple[LedgerEvent, bool]] = SimpleQueue()
        Thread(target=self._run, daemon=True).start()

    def send(self, event: LedgerEvent, *, authentic: bool) -> None:
        """Send `event` soon."""
        self._events.put((event, authentic))

    def _run(self) -> None:
        while True:
            event, authentic = self._events.get()
            try:
                self._caller.submit_proof(event, authentic=authentic)
            except Over:
                return
            self._log.repeat()


def answer_of(reply: Reply) -> Answer:
    """Return what of `reply` is checked."""
    return Answer(
        reply.decision,
        reply.reason,
        reply.state,
        reply.life,
        reply.generation,
        reply.seq,
        (reply.free_tenant, reply.free_pool),
    )
