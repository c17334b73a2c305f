"""Histories for the tests: threads on a real ledger, each call with its times and its answer."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Barrier, Thread

import pytest
from attrs import frozen

from kvescrow.checks.concurrency import Answer, Call, Change, Terms
from kvescrow.reference.ledger import Ledger, LedgerConfig, LedgerReply, MemoryLedger, SqliteLedger, TenantConfig
from kvescrow.reference.receipts import Keyring
from kvescrow.spec.vocabulary import (
    Cancel,
    Decision,
    Extend,
    Finish,
    Key,
    LedgerEvent,
    LedgerSnapshot,
    Preempt,
    Promote,
    Receipt,
    ReportUsage,
    Reserve,
    Start,
    StopOutcome,
    Sweep,
    Tick,
)
from kvescrow.spec.world.ledger import TenantTerms

FAR = 10**12
RING = Keyring({"first": b"a key of thirty-two random bytes"}, "first")


@frozen
class Recorded:
    """A whole run."""

    calls: tuple[Call, ...]
    journal: tuple[Change, ...]
    final: LedgerSnapshot
    terms: Terms


def answer_of(reply: LedgerReply) -> Answer:
    return Answer(
        reply.decision,
        reply.reason,
        reply.state,
        reply.life,
        reply.generation,
        reply.seq,
        (reply.free_tenant, reply.free_pool),
    )


def changes_of(ledger: Ledger) -> tuple[Change, ...]:
    return tuple(Change(e.seq, e.event, answer_of(e.reply), e.now) for e in ledger.journal())


def receipt(key: Key, owner: str, generation: int, used: int) -> Finish:
    return Finish(RING.sign(Receipt("pool", key, owner, generation, 0, StopOutcome.STOPPED, used, "", b"")))


class Client:
    """Submits events and keeps what came of them."""

    def __init__(self, ledger: Ledger, name: str) -> None:
        self._ledger = ledger
        self._name = name
        self.calls: list[Call] = []

    def submit(self, event: LedgerEvent) -> LedgerReply:
        began = time.monotonic_ns()
        reply = self._ledger.submit(event)
        self.calls.append(Call(self._name, event, began, time.monotonic_ns(), answer_of(reply)))
        return reply

    def live(self, seed: int, lives: int) -> None:
        """Take requests, some of them those of other clients too, through random lives."""
        dice = random.Random(f"{seed} {self._name}")
        for number in range(lives):
            key = Key(dice.choice(["red", "blue"]), str(dice.choice([number, 1000 + number])))
            amount = 5 + len(key.request) + int(key.request) % 17
            reply = self.submit(Reserve(key, amount, "d", FAR, max_wait=dice.choice([0, 50])))
            if dice.random() < 0.3:
                self.submit(Tick(10 * number + dice.randrange(10)))
                self.submit(dice.choice([Promote(key), Sweep(key), Cancel(key, reply.life)]))
            generation = self.submit(Start(key, reply.life, self._name, lease=30)).generation
            self.submit(Extend(key, self._name, generation, amount + dice.randrange(5)))
            self.submit(ReportUsage(key, self._name, generation, dice.randrange(20)))
            if dice.random() < 0.3:
                self.submit(dice.choice([Preempt(key, generation), Cancel(key, reply.life), Sweep(key)]))
            if dice.random() < 0.9:
                self.submit(receipt(key, self._name, generation, dice.randrange(20)))
            for event in [*self._ledger.due(), *map(Promote, self._ledger.waiting())]:
                self.submit(event)


@pytest.fixture
def hasty_switches() -> Iterator[None]:
    """Let threads take turns every few bytecodes, so that calls overlap."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


@pytest.fixture
def terms() -> Terms:
    return Terms(100, {name: TenantTerms(60, 10_000, 3) for name in ("red", "blue")}, 100)


def config_of(terms: Terms) -> LedgerConfig:
    tenants = {name: TenantConfig(t.limit, t.budget, t.queue_limit) for name, t in terms.tenants.items()}
    return LedgerConfig("pool", terms.pool_limit, tenants, terms.retention)


Record = Callable[..., Recorded]


@pytest.fixture
def record(hasty_switches: None, terms: Terms) -> Record:
    """Run so many threads for so many lives each on a ledger in memory, and return the history."""

    def run(threads: int = 4, lives: int = 20, seed: int = 1, ledger: Ledger | None = None) -> Recorded:
        opened = ledger or MemoryLedger(config_of(terms), keyring=RING)
        clients = [Client(opened, f"client-{number}") for number in range(threads)]
        at_once([lambda c=client: c.live(seed, lives) for client in clients])
        calls = tuple(call for client in clients for call in client.calls)
        return Recorded(calls, changes_of(opened), opened.snapshot(), terms)

    return run


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path, terms: Terms) -> Iterator[Ledger]:
    ledger: Ledger
    if request.param == "memory":
        ledger = MemoryLedger(config_of(terms), keyring=RING)
    else:
        ledger = SqliteLedger(tmp_path / "ledger", config_of(terms), keyring=RING)
    yield ledger
    ledger.close()


def at_once(works: Sequence[Callable[[], None]]) -> None:
    """Do all `works` at the same time, each in a thread of its own."""
    gate = Barrier(len(works))

    def run(work: Callable[[], None]) -> None:
        gate.wait()
        work()

    threads = [Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def changes(calls: Sequence[Call], *decisions: Decision) -> list[int]:
    """Return the places of the calls whose answer is one of `decisions`."""
    return [i for i, call in enumerate(calls) if call.answer is not None and call.answer.decision in decisions]
