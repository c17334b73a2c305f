"""Gateways on lines that break at random: before a message, after it, or so that it arrives when nobody waits any more.

What they were told is then checked against the journal: nothing acknowledged is lost, nothing is applied that was said
not to be, and whatever was decided is what the model decides (SCA-2).
"""

from __future__ import annotations

import logging
import random
import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from enum import Enum
from pathlib import Path
from threading import Event, Thread

import pytest

from kvescrow.checks.concurrency import Call, Change, Terms, check_history
from kvescrow.checks.torture.caller import answer_of
from kvescrow.reference.ledger import JournalEntry, LedgerConfig, OutcomeUnknown, StorageError
from kvescrow.reference.ledger.shared import SharedLedger
from kvescrow.spec.vocabulary import Cancel, Forget, Key, LedgerEvent, Promote, Reserve
from kvescrow.spec.world.ledger import TenantTerms
from tests.reference.ledger.sharing import Place

GATEWAYS = 2
EVENTS = 150
SHARE_BROKEN = 0.06
FIRST = 8
"""Messages of each connection that always pass, so that it is opened."""
FAR = 10**17


class Break(Enum):
    """How a line breaks at a message."""

    BEFORE = "before"
    """It never arrives."""
    AFTER = "after"
    """It arrives, and its answer does not."""
    LATE = "late"
    """It arrives some time after the line was given up."""


class BrokenLines:
    """A socket before a server's, each line through which breaks at random."""

    def __init__(self, path: Path, server: Path, seed: int) -> None:
        self._server, self._dice = server, random.Random(seed)
        self.breaks: Counter[Break] = Counter()
        self.is_over = False
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        server = socket.socket(socket.AF_UNIX)
        mute = Event()
        with client, server, suppress(OSError):
            server.connect(str(self._server))
            Thread(target=_answer, args=(server, client, mute), daemon=True).start()
            for number, message in enumerate(iter(lambda: client.recv(1 << 20), b"")):
                if number < FIRST or self.is_over or self._dice.random() > SHARE_BROKEN:
                    server.sendall(message)
                    continue
                self._break(self._dice.choice(list(Break)), client, server, message, mute)
                break
            # A plain close would wait for whoever still reads from it.
            for end in (client, server):
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def _break(self, kind: Break, client: socket.socket, server: socket.socket, message: bytes, mute: Event) -> None:
        self.breaks[kind] += 1
        mute.set()
        if kind is Break.LATE:
            client.shutdown(socket.SHUT_RDWR)
            time.sleep(self._dice.random() * self._dice.choice((0.001, 0.005, 0.03)))
        if kind is not Break.BEFORE:
            server.sendall(message)
            time.sleep(0.1 if kind is Break.LATE else self._dice.random() * 0.003)


def _answer(server: socket.socket, client: socket.socket, mute: Event) -> None:
    with suppress(OSError):
        while answer := server.recv(1 << 20):
            if not mute.is_set():
                client.sendall(answer)
        client.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def lines(tmp_path_factory: pytest.TempPathFactory, place: Place) -> Iterator[tuple[Path, BrokenLines]]:
    path = tmp_path_factory.mktemp("b") / ".s.PGSQL.5432"
    found = BrokenLines(path, place.socket(), seed=7)
    yield path, found
    found.close()


def change_of(entry: JournalEntry) -> Change:
    return Change(entry.seq, entry.event, answer_of(entry.reply), entry.now)


def drawn(dice: random.Random, lives: dict[Key, int]) -> LedgerEvent:
    key = Key(dice.choice(("red", "blue")), f"request {dice.randrange(6)}")
    ask = Reserve(key, dice.choice((100, 15_000)), "digest", FAR, max_wait=dice.choice((0, FAR)))
    return dice.choice((ask, Cancel(key, lives.get(key, 1)), Forget(key), Promote(key)))


def work(ledger: SharedLedger, name: str, calls: list[Call]) -> None:
    dice, lives = random.Random(name), dict[Key, int]()
    for _ in range(EVENTS):
        event, began = drawn(dice, lives), time.monotonic_ns()
        try:
            reply = ledger.submit(event)
        except OutcomeUnknown:
            calls.append(Call(name, event, began))
        except StorageError:
            calls.append(Call(name, event, began, failed=True))
        else:
            calls.append(Call(name, event, began, time.monotonic_ns(), answer_of(reply)))
            if isinstance(event, Reserve) and reply.life:
                lives[event.key] = reply.life


def test_what_gateways_on_broken_lines_were_told_is_what_the_journal_has(
    lines: tuple[Path, BrokenLines], place: Place, config: LedgerConfig
) -> None:
    logging.getLogger("psycopg").setLevel(logging.CRITICAL)
    path, broken = lines
    at_once = LedgerConfig(config.pool, config.pool_limit, config.tenants, retention=0)
    place.open(at_once).close()
    broken.is_over = True
    gateways = [place.open_through(path, at_once, patience=0.5) for _ in range(GATEWAYS)]
    broken.is_over = False
    calls: list[Call] = []
    threads = [Thread(target=work, args=(ledger, f"gateway {n}", calls)) for n, ledger in enumerate(gateways)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    broken.is_over = True
    assert len(calls) == GATEWAYS * EVENTS, "a gateway raised what is no answer"
    assert set(broken.breaks) == set(Break)
    for ledger in gateways:
        with suppress(StorageError):
            ledger.close()
    ledger = place.open(at_once)
    tenants = {name: TenantTerms(t.limit, t.budget, t.queue_limit) for name, t in config.tenants.items()}
    verdict = check_history(
        calls,
        Terms(config.pool_limit, tenants, 0),
        journal=list(map(change_of, ledger.journal())),
        final=ledger.snapshot(),
    )
    ledger.close()
    assert not verdict.findings
    assert verdict.verdict == "passed" and verdict.changes > EVENTS // 8
