"""What a gateway remembers of a version that the store has says nothing that the store does not.

Two gateways draw events, lose answers while the other writes, take new configurations and recover; after every step the
books that each remembers are compared with the whole store, if they are of its version.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import pytest
from attrs import evolve, frozen

from kvescrow.reference.ledger import JournalEntry, LedgerConfig, LedgerReply, TenantConfig
from kvescrow.reference.ledger.books import Books
from kvescrow.reference.ledger.postgres import PostgresLedger
from kvescrow.reference.ledger.shared import ConnectionLost, SharedLedger
from kvescrow.spec.vocabulary import (
    Cancel,
    Extend,
    Forget,
    Key,
    LedgerEvent,
    Promote,
    Reserve,
    SetBudget,
    SetPoolLimit,
    SetTenantLimit,
    Start,
    Sweep,
    Tick,
)
from tests.reference.ledger.sharing import Place

STEPS = 90
TENANTS = ("red", "blue", "green")


def terms(queue_limit: int, retention: int) -> LedgerConfig:
    tenant = TenantConfig(limit=40, budget=400, queue_limit=queue_limit)
    return LedgerConfig("pool", 60, dict.fromkeys(TENANTS, tenant), retention)


class Events:
    """Draws events that are apt to be accepted, by what was answered before."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._known: dict[Key, LedgerReply] = {}
        self._time = 0

    def some(self) -> list[LedgerEvent]:
        return [self._one() for _ in range(self._dice.choice((1, 1, 1, 2, 4)))]

    def learn(self, events: Sequence[LedgerEvent], replies: Sequence[LedgerReply]) -> None:
        for event, reply in zip(events, replies, strict=True):
            if hasattr(event, "key") and reply.life:
                self._known[event.key] = reply

    def _one(self) -> LedgerEvent:
        dice = self._dice
        tenant = dice.choice(TENANTS)
        key = Key(tenant, dice.choice("abcdef"))
        known = self._known.get(key)
        life, generation, bound = (known.life, known.generation, known.bound) if known else (1, 1, 1)
        self._time += dice.choice((0, 0, 1, 20))
        wait, lease = dice.choice((0, 40)), dice.choice((5, 999))
        return dice.choices(
            (
                Reserve(key, dice.randint(1, 30), "d", 10**6, max_wait=wait, lease=lease),
                Promote(key),
                Start(key, life, "worker"),
                Cancel(key, life),
                Sweep(key),
                Forget(key),
                Extend(key, "worker", generation, bound + dice.randint(0, 9)),
                Tick(self._time),
                SetTenantLimit(tenant, dice.choice((20, 40))),
                SetPoolLimit(dice.choice((40, 60))),
                SetBudget(tenant, dice.choice((10, 400))),
            ),
            (35, 10, 10, 8, 8, 12, 5, 5, 3, 2, 2),
        )[0]


@frozen
class Loss:
    """An answer that one gateway does not get; the other one writes before it looks for it."""

    after: bool
    """Whether its change is kept."""
    meddle: Callable[[], object]

    @contextmanager
    def of(self, ledger: SharedLedger) -> Iterator[None]:
        store = ledger._store
        with pytest.MonkeyPatch.context() as patched:
            for name in ("save", "save_standing"):
                patched.setattr(store, name, self._losing(patched, store, getattr(store, name)))
            yield

    def _losing(self, patched: pytest.MonkeyPatch, store: object, save: Callable[..., object]) -> Callable[..., object]:
        def lose(changes: Sequence[JournalEntry], *rest: object) -> object:
            patched.undo()
            if self.after:
                save(changes, *rest)
            store.close()  # type: ignore[attr-defined]  # a store
            self.meddle()
            raise ConnectionLost("the answer is lost")

        return lose


def version_in(ledger: SharedLedger, schema: str) -> str:
    store = ledger._store
    if isinstance(ledger, PostgresLedger):
        return str(store._one(f"SELECT xmin::text FROM {schema}.pool")[0])  # type: ignore[attr-defined]  # its own
    return str(store._connected.hget(store._keys[0], "version"))  # type: ignore[attr-defined]  # its own


def is_part_of(books: Books, whole: Books) -> bool:
    return (
        evolve(books.pool, clock=0) == evolve(whole.pool, clock=0)
        and books.recovering == whole.recovering
        and [(key, books.queue.place(key)) for key in books.queue] == [(k, whole.queue.place(k)) for k in whole.queue]
        and all(whole.tenants[name] == account for name, account in books.tenants.items())
        and all(whole.records.get(key) == record for key, record in books.records.items())
        and all(key in books.records and key.tenant in books.tenants for key in books.queue)
    )


@pytest.mark.parametrize("seed", range(6))
def test_what_is_remembered_of_the_stores_version_is_what_the_store_has(
    place: Place, schema: str, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr("kvescrow.reference.ledger.shared.MOST_STANDING", 12)
    dice = random.Random(seed)
    events, gateways = Events(dice), [place.open(terms(2, 50)) for _ in range(2)]
    compared = 0
    for step in range(STEPS):
        first = dice.random() < 0.8
        ledger, other = gateways if first else gateways[::-1]
        asked = events.some()
        chance = dice.random()
        if chance < 0.04:
            place.open(terms(dice.choice((0, 1, 2)), dice.choice((0, 50)))).close()
        elif chance < 0.07:
            other.begin_recovery()
            ledger.submit_many(asked)
            other.confirm_recovered()
        elif chance < 0.15:
            meddling = events.some()
            with Loss(dice.random() < 0.5, partial(other.submit_many, meddling)).of(ledger):
                events.learn(asked, ledger.submit_many(asked))
        else:
            events.learn(asked, ledger.submit_many(asked))
        for each in gateways:
            if each._standing is not None and each._standing[1] == version_in(each, schema):
                compared += 1
                assert is_part_of(each._standing[0], each._store.read()), f"after step {step}"
    assert compared > STEPS // 2
    for each in gateways:
        each.close()
    place.open(terms(2, 50)).close()
