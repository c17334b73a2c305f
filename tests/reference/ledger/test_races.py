"""Threads that meet in one ledger: each event is one step, whatever the store (ADM-2)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from threading import Barrier, Thread

import pytest

from kvescrow.reference.ledger import Ledger, LedgerConfig, LedgerReply, TenantConfig
from kvescrow.spec.vocabulary import Cancel, Decision, Finish, Key, Reason, Reserve, SetPoolLimit, Start

FAR = 10**12
ROUNDS = 100
RACES = 1_000
"""Races for the last capacity."""
Open = Callable[..., Ledger]


@pytest.fixture(autouse=True)
def hasty_switches() -> Iterator[None]:
    """Let threads take turns every few bytecodes, so that a step that is not one step shows."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


def at_once(*calls: Callable[[], LedgerReply]) -> list[LedgerReply]:
    """Make all `calls` at the same time, each in a thread of its own, and return what they returned."""
    gate = Barrier(len(calls))
    replies: list[LedgerReply | None] = [None] * len(calls)

    def run(index: int, call: Callable[[], LedgerReply]) -> None:
        gate.wait()
        replies[index] = call()

    threads = [Thread(target=run, args=item) for item in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert None not in replies, "a call raised"
    return [reply for reply in replies if reply is not None]


@pytest.mark.parametrize("open_ledger", ["memory", "sqlite"], indirect=True)
def test_of_two_gateways_that_see_six_thousand_free_one_wins(open_ledger: Open, config: LedgerConfig) -> None:
    """In stores that live in one process; those that gateways share are raced for by processes, as often."""
    ledger = open_ledger(config)
    ledger.submit(SetPoolLimit(6_000))
    for number in range(RACES):
        keys = [Key(tenant, str(number)) for tenant in ("red", "blue")]
        replies = at_once(*(lambda key=key: ledger.submit(Reserve(key, 4_000, "d", FAR)) for key in keys))
        assert sorted((reply.decision.value, reply.reason.value) for reply in replies) == [
            ("ADMITTED", "NONE"),
            ("REFUSED", "POOL_CAPACITY"),
        ]
        assert ledger.snapshot().pool_active == 4_000
        won = next(i for i, reply in enumerate(replies) if reply.decision is Decision.ADMITTED)
        ledger.submit(Cancel(keys[won], replies[won].life))


def test_a_retry_beside_its_request_charges_once(open_ledger: Open, config: LedgerConfig) -> None:
    ledger = open_ledger(config)
    for number in range(ROUNDS):
        event = Reserve(Key("red", str(number)), 10, "d", FAR)
        first, second = at_once(lambda e=event: ledger.submit(e), lambda e=event: ledger.submit(e))
        assert {first.decision, second.decision} == {Decision.ADMITTED, Decision.RECORDED}
        assert first.life == second.life
    assert ledger.snapshot().pool_active == 10 * ROUNDS


def test_a_cancel_races_a_start(open_ledger: Open, config: LedgerConfig) -> None:
    """Either the start comes first and the work must be stopped, or it never runs (LIF-2)."""
    ledger = open_ledger(config)
    for number in range(ROUNDS):
        key = Key("red", str(number))
        life = ledger.submit(Reserve(key, 10, "d", FAR)).life
        cancelled, started = at_once(
            lambda k=key, n=life: ledger.submit(Cancel(k, n)),
            lambda k=key, n=life: ledger.submit(Start(k, n, "worker")),
        )
        expected = {
            Decision.ACCEPTED: (Decision.STARTED, Reason.NONE),
            Decision.RELEASED: (Decision.REFUSED, Reason.CLOSED),
        }
        assert (started.decision, started.reason) == expected[cancelled.decision]


def test_one_stop_delivered_by_many_releases_once(
    open_ledger: Open, config: LedgerConfig, finish: Callable[..., Finish]
) -> None:
    ledger = open_ledger(config)
    for number in range(ROUNDS // 4):
        key = Key("red", str(number))
        life = ledger.submit(Reserve(key, 10, "d", FAR)).life
        generation = ledger.submit(Start(key, life, "worker")).generation
        stop = finish(key, "worker", generation, 4)
        replies = at_once(*[lambda e=stop: ledger.submit(e)] * 4)
        assert sorted(reply.decision.value for reply in replies) == ["RECORDED"] * 3 + ["RELEASED"]
    snapshot = ledger.snapshot()
    assert (snapshot.pool_active, snapshot.tenants["red"].spent) == (0, 4 * (ROUNDS // 4))


@pytest.mark.parametrize("threads", [8])
def test_the_journal_of_many_threads_replays_to_the_same_state(open_ledger: Open, threads: int) -> None:
    """Commit numbers order the history: replayed one after the other, it comes to the same replies and state."""
    tenants = {str(n): TenantConfig(60, 10_000, 5) for n in range(threads)}
    config = LedgerConfig("pool", 200, tenants, 0)
    ledger, again = open_ledger(config), open_ledger(config)

    def work(tenant: str) -> LedgerReply:
        for number in range(40):
            key = Key(tenant, str(number % 7))
            reply = ledger.submit(Reserve(key, 10 + number % 3, "d", FAR, max_wait=number % 2))
            ledger.submit(Cancel(key, reply.life))
        return reply

    at_once(*(lambda name=name: work(name) for name in tenants))

    history = ledger.journal()
    assert [entry.seq for entry in history] == list(range(1, len(history) + 1))
    assert [again.submit(entry.event) for entry in history] == [entry.reply for entry in history]
    assert again.snapshot() == ledger.snapshot()
