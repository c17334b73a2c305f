"""Every store against the tables, step by step, on random walks that reach every row."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from attrs import evolve

from kvescrow.reference.ledger import Ledger, LedgerConfig, MemoryLedger, SqliteLedger, TenantConfig
from kvescrow.reference.receipts import Keyring
from kvescrow.spec.tables.account import ACCOUNT
from kvescrow.spec.tables.reservation import RESERVATION
from kvescrow.spec.vocabulary import (
    Cancel,
    Extend,
    Fence,
    Finish,
    ForceRelease,
    Forget,
    Key,
    LedgerEvent,
    LedgerSnapshot,
    Preempt,
    Promote,
    Receipt,
    Renew,
    ReportUsage,
    ReservationState,
    Reserve,
    SetBudget,
    SetPoolLimit,
    SetTenantLimit,
    Start,
    StopOutcome,
    Sweep,
    Tick,
)
from kvescrow.spec.world.ledger import LedgerWorld, TenantTerms
from tests.reference.ledger.sharing import PostgresPlace, ValkeyPlace

KEYS = [Key(tenant, str(number)) for tenant in ("red", "blue") for number in range(3)] + [Key("green", "0")]
TERMS = {"red": (6, 60, 2), "blue": (7, 80, 1)}
POOL_LIMIT, RETENTION = 10, 5
WALKS, STEPS = 90, 400


def next_event(dice: random.Random, snapshot: LedgerSnapshot, keyring: Keyring) -> LedgerEvent:
    """Draw an event that often speaks of what is there, and sometimes errs in one respect."""
    key = dice.choice(KEYS)
    known = snapshot.reservations.get(key)
    life = (known.life if known else 1) + dice.choice([0] * 8 + [1])
    generation = (known.generation if known else 1) + dice.choice([0] * 8 + [-1])
    owner = known.owner if known and known.owner and dice.random() < 0.85 else dice.choice(["one", "two"])
    authorised = dice.random() > 0.03
    lease, now = dice.choice([1, 2, 5, 10, 50]), snapshot.clock
    bound = (known.bound if known else 1) + dice.choice([0, 1, 2, 6])
    if dice.random() < 0.35:
        # Live work is the rarer case, so what can only happen to it is drawn more often.
        return dice.choice(
            [
                Start(key, life, owner, lease, authorised),
                Renew(key, life, owner, generation, lease, authorised),
                Extend(key, owner, generation, bound, authorised),
                Promote(dice.choice([key, *snapshot.queue]), lease),
                Sweep(key),
            ]
        )
    choices: list[Callable[[], LedgerEvent]] = [
        lambda: Reserve(
            key,
            dice.choice([0, 1, 2, 3, 4, 5, 8]) if known is None or dice.random() < 0.2 else known.amount,
            dice.choice("dddde"),
            now + dice.choice([4, 20, 20, 200]),
            dice.choice([0, 1, 5]),
            dice.choice([0, 3, 10, 30, -1]),
            lease,
            authorised,
        ),
        lambda: ReportUsage(key, owner, generation, dice.randrange(8), authorised),
        lambda: Cancel(key, life, authorised),
        lambda: Preempt(key, generation, authorised),
        lambda: Finish(_receipt(dice, keyring, key, owner, max(generation, 1))),
        lambda: keyring.fence(dice.choice(["pool"] * 5 + ["loop"]), key, dice.choice([owner] * 4 + ["three"])),
        lambda: Forget(key),
        lambda: Tick(now + dice.choice([-1, 1, 1, 2, 4])),
        lambda: SetPoolLimit(dice.choice([-1, 3, 10, 10, 10])),
        lambda: SetTenantLimit(dice.choice(["red", "blue", "green"]), dice.choice([-1, 4, 7])),
        lambda: _budget(dice, snapshot),
        lambda: ForceRelease(key, generation, authorised),
    ]
    weights = [6, 1, 1, 1, 1, 0.5, 2, 2, 0.6, 0.5, 0.8, 0.4]
    return dice.choices(choices, weights)[0]()


def _budget(dice: random.Random, snapshot: LedgerSnapshot) -> SetBudget:
    """Set a budget that is wide, or that what is spent and held nearly fills."""
    tenant = dice.choice(["red", "blue", "green"])
    account = snapshot.tenants.get(tenant)
    filled = account.spent + account.held if account else 0
    return SetBudget(tenant, dice.choice([-1, filled + dice.randrange(4), 10_000, 10_000]))


def _receipt(dice: random.Random, keyring: Keyring, key: Key, owner: str, generation: int) -> Receipt:
    outcome = dice.choice(list(StopOutcome))
    signed = keyring.sign(Receipt("pool", key, owner, generation, 0, outcome, dice.randrange(8), "", b""))
    return evolve(signed, used=signed.used + dice.choice([0] * 9 + [1]))


def authentic(event: LedgerEvent, keyring: Keyring) -> bool:
    match event:
        case Finish():
            return keyring.vouches_for_receipt(event.receipt, "pool")
        case Fence():
            return keyring.vouches_for_fence(event, "pool")
        case _:
            return True


def walk(ledger: Ledger, keyring: Keyring, seed: int) -> set[str]:
    """Compare `ledger` with the tables along one random walk; return the rows that fired."""
    dice = random.Random(seed)
    terms = {name: TenantTerms(*numbers) for name, numbers in TERMS.items()}
    world = LedgerWorld(POOL_LIMIT, terms, RETENTION)
    fired = set()
    for step in range(STEPS):
        event = next_event(dice, world.snapshot(), keyring)
        expected = world.apply(event, authentic=authentic(event, keyring))
        reply = ledger.submit(event)
        where = f"walk {seed}, step {step}: {event} fires {expected.row}"
        assert (reply.decision, reply.reason) == (expected.decision, expected.reason), where
        assert ledger.snapshot() == world.snapshot(), where
        if reply.state is not None and not isinstance(event, Tick):
            record = world.snapshot().reservations.get(event.key)  # type: ignore[union-attr]  # only these have a state
            assert reply.state is (record.state if record else ReservationState.ABSENT), where
        fired.add(expected.row)
    return fired


@pytest.fixture
def config() -> LedgerConfig:
    tenants = {name: TenantConfig(*terms) for name, terms in TERMS.items()}
    return LedgerConfig("pool", POOL_LIMIT, tenants, RETENTION)


def test_every_row_of_the_tables_is_answered_alike(config: LedgerConfig, keyring: Keyring) -> None:
    fired: set[str] = set()
    for seed in range(WALKS):
        fired |= walk(MemoryLedger(config, keyring=keyring), keyring, seed)
    rows = {row.id for table in (RESERVATION, ACCOUNT) for row in table.rows}
    assert rows - fired == set()


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "valkey"])
def test_a_durable_store_answers_alike(
    request: pytest.FixtureRequest, tmp_path: Path, schema: str, config: LedgerConfig, keyring: Keyring, kind: str
) -> None:
    """It decides by the same functions, so a few walks suffice; what it keeps is compared after each."""

    def opened(seed: int) -> Ledger:
        match kind:
            case "sqlite":
                return SqliteLedger(tmp_path / str(seed), config, keyring=keyring)
            case "postgres":
                return PostgresPlace(request.getfixturevalue(kind).url, f"{schema}_{seed}", keyring).open(config)
            case _:
                return ValkeyPlace(request.getfixturevalue(kind).url, f"{schema}_{seed}", keyring).open(config)

    for seed in range(3):
        ledger = opened(seed)
        walk(ledger, keyring, seed)
        left, history = ledger.snapshot(), ledger.journal()
        ledger.close()
        found = opened(seed)
        assert found.snapshot() == left
        assert found.journal() == history
        found.close()
