"""The asyncio front: the same replies, no blocked loop, and nothing undecided by a cancelled task."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from threading import Event

import pytest

from kvescrow.reference.ledger import Ledger, LedgerConfig, LedgerReply, MemoryLedger
from kvescrow.reference.ledger.aio import AsyncLedger
from kvescrow.spec.vocabulary import Cancel, Decision, Key, LedgerEvent, Reserve, Start, Sweep, Tick, UserError

FAR = 10**12
Open = Callable[..., Ledger]


class Held(MemoryLedger):
    """A ledger whose store takes its time."""

    def __init__(self, config: LedgerConfig) -> None:
        super().__init__(config)
        self.began, self.let_go = Event(), Event()

    def submit(self, event: LedgerEvent) -> LedgerReply:
        self.began.set()
        assert self.let_go.wait(30)
        return super().submit(event)


def ask(request: str, amount: int = 10) -> Reserve:
    return Reserve(Key("red", request), amount, "d", FAR, lease=5)


def test_every_call_answers_as_the_ledger_does(open_ledger: Open, config: LedgerConfig) -> None:
    ledger, plain = open_ledger(config), MemoryLedger(config)
    events: Sequence[LedgerEvent] = [ask("a"), ask("b", 50_000), Cancel(Key("red", "a"), 1), ask("c"), Tick(9)]

    async def run() -> None:
        async with AsyncLedger(ledger) as front:
            assert await front.submit(events[0]) == plain.submit(events[0])
            assert await front.submit_many(events[1:]) == plain.submit_many(events[1:])
            assert await front.journal(1) == plain.journal(1)
            assert await front.snapshot() == plain.snapshot()
            assert await front.waiting() == ()
            assert await front.due() == [Sweep(Key("red", "c"))]

    asyncio.run(run())


def test_many_tasks_share_the_pool_without_over_granting(open_ledger: Open, config: LedgerConfig) -> None:
    async def run() -> list[LedgerReply]:
        async with AsyncLedger(open_ledger(config)) as front:
            replies = await asyncio.gather(*(front.submit(ask(str(number), 1_000)) for number in range(60)))
            assert (await front.snapshot()).pool_active == 40_000
            return replies

    decisions = [reply.decision for reply in asyncio.run(run())]
    assert (decisions.count(Decision.ADMITTED), decisions.count(Decision.REFUSED)) == (40, 20)


def test_the_loop_goes_on_while_the_store_takes_its_time(config: LedgerConfig) -> None:
    ledger = Held(config)

    async def run() -> None:
        async with AsyncLedger(ledger) as front:
            waiting = asyncio.create_task(front.submit(ask("a")))
            while not ledger.began.is_set():
                await asyncio.sleep(0)
            assert not waiting.done()
            ledger.let_go.set()
            assert (await waiting).decision is Decision.ADMITTED

    asyncio.run(run())


@pytest.mark.parametrize("ahead", [0, 1])
def test_a_cancelled_task_leaves_its_event_decided(config: LedgerConfig, ahead: int) -> None:
    """Whether its call is under way or waits for a thread."""
    ledger = Held(config)

    async def run() -> None:
        async with AsyncLedger(ledger, threads=1) as front:
            tasks = [asyncio.create_task(front.submit(ask(str(number)))) for number in range(ahead + 1)]
            while not ledger.began.is_set():
                await asyncio.sleep(0)
            tasks[-1].cancel()
            with pytest.raises(asyncio.CancelledError):
                await tasks[-1]
            ledger.let_go.set()
            assert (await front.submit(ask(str(ahead)))).decision is Decision.RECORDED
            await asyncio.gather(*tasks[:-1])

    asyncio.run(run())


def test_errors_and_closing_are_those_of_the_ledger(config: LedgerConfig) -> None:
    async def run() -> None:
        front = AsyncLedger(MemoryLedger(config))
        with pytest.raises(UserError, match="owner is empty"):
            await front.submit(Start(Key("red", "a"), 1, ""))
        await front.close()
        await front.close()
        with pytest.raises(UserError, match="this ledger is closed: open another"):
            await front.submit(ask("a"))

    asyncio.run(run())
    with pytest.raises(UserError, match=r"AsyncLedger.threads is 0: give at least 1"):
        AsyncLedger(MemoryLedger(config), threads=0)
