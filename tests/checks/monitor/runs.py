"""Journals of random runs of the reference, for the monitor to pass and for tests to spoil."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kvescrow.checks.monitor import page_line
from kvescrow.reference.executions import Executions, Share, Step
from kvescrow.reference.journal import JournalWriter
from kvescrow.reference.ledger import Admission, LedgerConfig, MemoryLedger, TenantConfig
from kvescrow.reference.pages import Acquired, PagePool, PageUse
from kvescrow.reference.receipts import Keyring
from kvescrow.spec.tables.registry import digest
from kvescrow.spec.vocabulary import (
    Cancel,
    Extend,
    Finish,
    Key,
    LedgerEvent,
    Preempt,
    PrefixScope,
    Receipt,
    Renew,
    ReportUsage,
    Reserve,
    SetBudget,
    SetPoolLimit,
    SetTenantLimit,
    Start,
    StopOutcome,
    Tick,
)

Line = dict[str, Any]
Write = Callable[[Sequence[Mapping[str, Any]]], Path]

LEDGER = LedgerConfig(
    pool="p",
    pool_limit=40,
    tenants={"a": TenantConfig(30, 4000, 3), "b": TenantConfig(20, 4000, 2)},
    retention=2000,
)
RING = Keyring({"k": b"0123456789abcdef"}, "k")


def record_ledger_run(path: Path, events: int, seed: int = 1) -> None:
    """Write the journal of a random run of the reference ledger with at least `events` events."""
    choices = random.Random(seed)
    now = 0
    with JournalWriter(path, LEDGER, digest()) as writer:
        count = 0

        def record(entry: Any) -> None:
            nonlocal count
            count += 1
            writer(entry)

        ledger = MemoryLedger(LEDGER, keyring=RING, clock=lambda: now, recorder=record)
        front = Admission(ledger)
        while count < events:
            now += choices.randrange(120)
            tenant = "stranger" if choices.random() < 0.03 else choices.choice(["a", "b"])
            key = Key(tenant, f"r{choices.randrange(4)}")
            front.submit(random_event(choices, key, ledger, now))


def random_event(choices: random.Random, key: Key, ledger: MemoryLedger, now: int) -> LedgerEvent:
    """An event that is likely to mean something to the record of `key`."""
    record = ledger.snapshot().reservations.get(key)
    life, generation = (record.life, record.generation) if record else (1, 1)
    if choices.random() < 0.05:
        life, generation = life + 1, generation + 1
    owner, good = choices.choice(["w1", "w1", "w1", "w2"]), choices.random() < 0.95
    receipt = Receipt(
        "p", key, owner, generation, 1, choices.choice(list(StopOutcome)), choices.randrange(20), "k", b""
    )
    wait = choices.choice([0, 1000])
    return choices.choice(
        [
            Reserve(key, choices.randrange(1, 15), "d", now + 5000 - now % 5000, 100, wait, 900, good),
            Reserve(key, choices.randrange(0, 45), "d", now + choices.randrange(300), 100, wait, 900, good),
            *[Reserve(key, choices.randrange(1, 15), "d", now + 5000, 100, wait, 900, good)] * 3,
            *[Start(key, life, owner, 800, good)] * 3,
            Extend(key, owner, generation, choices.randrange(20), good),
            ReportUsage(key, owner, generation, choices.randrange(20), good),
            Cancel(key, life, good),
            Preempt(key, generation, good),
            Finish(RING.sign(receipt) if good else receipt),
            Finish(RING.sign(receipt)),
            Renew(key, life, owner, generation, 800, good),
            RING.fence("p", key, owner),
            Tick(now - 50 + choices.randrange(100)),
            SetPoolLimit(choices.choice([30, 40])),
            SetTenantLimit(key.tenant, choices.choice([-1, 20, 30])),
            SetBudget(key.tenant, choices.choice([1000, 4000, 100_000])),
        ]
    )


PAGES, LENGTH, SCOPE_LIMIT = 12, 2, 6
SCOPES = (PrefixScope("a", page_length=LENGTH, media=("m",)), PrefixScope("b", page_length=LENGTH))


def record_page_run(events: int, seed: int = 1) -> list[Line]:
    """The lines of a random run of the reference page pool with at least `events` events.

    As on a worker, a holder gets its pages from the first on and gives them back from the last on, and a step reads
    all of them.
    """
    choices = random.Random(seed)
    lines: list[Line] = []
    pool = PagePool(PAGES, LENGTH, SCOPE_LIMIT, recorder=lambda event: lines.append(page_line(event)))
    prompts: dict[str, tuple[int, ...]] = {}
    steps: list[PageUse] = []
    while len(lines) < events:
        holder = choices.choice([*prompts, f"h{len(lines)}"])
        match choices.randrange(8):
            case 0 | 1:
                tokens = tuple(choices.choices([1, 2], k=choices.randrange(1, 8)))
                taken = pool.acquire(holder, choices.choice(SCOPES), tokens, len(tokens) + choices.randrange(3))
                if isinstance(taken, Acquired):
                    prompts[holder] = tokens
            case 2 | 3:
                for page in pool.pages_of(holder):
                    pool.touch(holder, page, True)
                    pool.settle(page, True, choices.random() < 0.9, True)
                pool.publish(holder, prompts.get(holder, (1,)))
            case 4:
                pool.release(holder)
                prompts.pop(holder, None)
            case 5:
                steps.append(PageUse(holder, pool.pages_of(holder)))
                pool.launch(steps[-1:])
            case 6 if steps:
                pool.finish([steps.pop(choices.randrange(len(steps)))], True)
            case _:
                disturb(choices, pool, holder)
    return lines


def disturb(choices: random.Random, pool: PagePool, holder: str) -> None:
    """Do something that is mostly refused, or undone at once."""
    page = choices.randrange(PAGES)
    held = page in pool.pages_of(holder)
    match choices.randrange(8):
        case 0:
            pool.grow(holder, choices.randrange(3))
        case 6:
            pool.forget(choices.choice([holder, *sorted(pool._closed)]))
        case 7:
            pool.park(page)
        case 1 if choices.random() < 0.1:
            pool.retire_scope(SCOPES[1])
        case 2:
            parent = choices.choice([None, pool.chain(choices.randrange(PAGES))])
            pool.share(holder, page, choices.choices([1, 2], k=LENGTH), parent)
            if page in pool.pages_of(holder) and not held:
                pool.drop(holder, page)
        case 3:
            pool.evict(page)
        case 4 if not held:
            pool.drop(holder, page)
        case _:
            if pool.snapshot().pages[page].readers == 0:
                pool.settle(page, False, True, False)


def record_execution_run(events: int, seed: int = 1) -> list[Line]:
    """The lines of a random run of the reference's executions, each step with one share."""
    choices = random.Random(seed)
    pool = PagePool(4, 1)
    worker = Executions(pool)
    lines: list[Line] = []

    def line(table: str, event: str, key: Key, parameters: Line, reply: Any, **more: Any) -> None:
        lines.append(
            {
                "table": table,
                "event": event,
                "key": [key.tenant, key.request],
                **more,
                "parameters": parameters,
                "decision": reply.decision.value,
                "reason": reply.reason.value,
            }
        )

    for number in range(1, events + 1):
        key, generation = Key("a", f"r{choices.randrange(3)}"), choices.choice([1, 1, 2])
        event = choices.choice(["begin", "close", "certify", "acknowledge", "launch", "launch", "settle"])
        match event:
            case "begin":
                reply = worker.begin(key, generation)
                line("execution", event, key, {"generation": generation}, reply)
            case "launch":
                reply = worker.launch(Step(number, (Share(key, generation),)))
                line("ticket", event, key, {"generation": generation}, reply, number=number)
            case "settle":
                launched = [each for each in lines if each["event"] == "launch" and each["decision"] == "LAUNCHED"]
                if launched:
                    chosen = choices.choice(launched)
                    key = Key(*chosen["key"])
                    if worker.in_flight(key):
                        ok = choices.random() < 0.5
                        reply = worker.settle(chosen["number"], ok=ok)
                        line("ticket", event, key, {"ok": ok}, reply, number=chosen["number"])
            case _:
                reply = getattr(worker, event)(key)
                line("execution", event, key, {}, reply, state=worker.state(key).value)
    return lines


def journal_of(config: Mapping[str, Any], entries: Sequence[Line]) -> list[Line]:
    """A whole journal around `entries`."""
    changing = {"RECORDED", "REFUSED", "MISS", "STOP", "NOTHING_DUE"}
    changes = sum(entry["decision"] not in changing for entry in entries)
    return [
        {"kvescrow_journal": 1, "tables": digest(), "config": dict(config)},
        *entries,
        {"kvescrow_journal_end": 1, "events": len(entries), "changes": changes},
    ]
