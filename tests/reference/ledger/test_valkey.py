"""The ledger in Valkey: settings that would lose grants, races that are lost, and what keys may hold (SCA-1, LEA-7)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from attrs import evolve

from kvescrow.checks.targets.servers import ValkeyServer
from kvescrow.reference.ledger import LedgerConfig, StorageError, StorageFull
from kvescrow.reference.ledger.shared import SharedLedger
from kvescrow.reference.ledger.valkey import ValkeyLedger, drop
from kvescrow.reference.ledger.valkey.store import PATIENT_DEFEATS
from kvescrow.reference.receipts import Keyring
from kvescrow.spec.vocabulary import Decision, Key, Reserve, Start, Sweep, Tick, UserError
from tests.reference.ledger.sharing import ValkeyPlace

FAR = 10**12


def ask(request: str, amount: int = 10, digest: str = "digest") -> Reserve:
    return Reserve(Key("red", request), amount, digest, FAR)


@pytest.fixture
def place(valkey: ValkeyServer, schema: str, keyring: Keyring) -> ValkeyPlace:
    return ValkeyPlace(valkey.url, schema, keyring)


@contextmanager
def opened(place: ValkeyPlace, config: LedgerConfig) -> Iterator[SharedLedger]:
    ledger = place.open(config)
    try:
        yield ledger
    finally:
        ledger.close()


@contextmanager
def setting(place: ValkeyPlace, name: str, value: str) -> Iterator[None]:
    with place.client() as client:
        usual = client.config_get(name)[name]
        client.config_set(name, value)
        try:
            yield
        finally:
            client.config_set(name, usual)


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("appendonly", "no", "set appendonly yes in the server's configuration and restart it"),
        ("appendfsync", "everysec", "set appendfsync always"),
        ("maxmemory-policy", "allkeys-lru", "set maxmemory-policy noeviction"),
    ],
)
def test_a_server_that_may_lose_what_it_confirmed_is_refused(
    place: ValkeyPlace, config: LedgerConfig, name: str, value: str, remedy: str
) -> None:
    with setting(place, name, value), pytest.raises(UserError, match=rf"{name} is '{value}', so .*: {remedy}"):
        place.open(config)


def test_a_server_that_hides_its_settings_is_refused(place: ValkeyPlace, config: LedgerConfig) -> None:
    with place.client() as client:
        client.acl_setuser("blind", enabled=True, nopass=True, keys="*", commands=["+@all", "-config"])
        try:
            with pytest.raises(UserError, match=r"cannot read the server's setting appendonly .*: allow CONFIG GET"):
                ValkeyLedger(place.url.replace("unix://", "unix://blind:x@"), config, prefix=place.prefix)
        finally:
            client.acl_deluser("blind")


def test_a_full_memory_applies_nothing_and_recovers(place: ValkeyPlace, config: LedgerConfig) -> None:
    with opened(place, config) as ledger:
        ledger.submit(ask("first"))
        before = ledger.snapshot()
        full = pytest.raises(StorageFull, match=r"the server's memory is full, nothing was applied: make room")
        with setting(place, "maxmemory", "1"), full:
            ledger.submit(ask("second"))
        assert ledger.snapshot() == before
        assert ledger.submit(ask("second")).seq == 2


def test_a_change_that_rests_on_old_books_is_refused(place: ValkeyPlace, config: LedgerConfig) -> None:
    with opened(place, config) as slow, opened(place, config) as fast:
        event = ask("slow")
        books, _ = slow._store.load([event], 0)
        entry = books.handle(event)
        assert fast.submit(ask("fast")).seq == 1
        assert not slow._store.save([entry], books)
        assert fast.snapshot().pool_active == 10
        assert slow.submit(event).seq == 2


def test_a_gateway_that_lost_often_gets_its_turn(place: ValkeyPlace, config: LedgerConfig) -> None:
    with opened(place, config) as poor, opened(place, config) as rich:
        event = ask("poor")
        books, _ = poor._store.load([event], PATIENT_DEFEATS)
        entry = books.handle(event)
        rival, _ = rich._store.load([ask("rich")], 0)
        assert not rich._store.save([rival.handle(ask("rich"))], rival), "it stands back"
        assert poor._store.save([entry], books)
        assert rich.submit(ask("rich")).seq == 2, "the turn was given back"


def test_a_commit_that_comes_too_late_finds_its_books_aged(place: ValkeyPlace, config: LedgerConfig) -> None:
    """Once a gateway was told that its change is not there, the change must never appear."""
    with opened(place, config) as ledger:
        books, _ = ledger._store.load([ask("work")], 0)
        entry = books.handle(ask("work"))
        assert not ledger._store.kept([entry])
        assert not ledger._store.save([entry], books)
        assert ledger.snapshot().pool_active == 0


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({"active": "11"}, r"pool\.active is 11, but its reservations add up to 10"),
        ({"next_life": "1"}, r"pool\.next_life is 1, but life 1 was drawn"),
        ({"seq": "7"}, r"pool\.seq is 7, but the journal ends at 2"),
    ],
)
def test_counters_that_do_not_add_up_are_named(
    place: ValkeyPlace, config: LedgerConfig, fields: dict[str, str], names: str
) -> None:
    with opened(place, config) as ledger:
        ledger.submit(ask("work"))
        ledger.submit(Start(Key("red", "work"), 1, "worker"))
    with place.client() as client:
        client.hset(f"{{{place.prefix}}}:pool", mapping=fields)
    with pytest.raises(StorageError, match=rf"the ledger is damaged \(.*{names}.*\): restore it from a backup"):
        place.open(config)


def test_a_ledger_of_another_version_is_refused(place: ValkeyPlace, config: LedgerConfig) -> None:
    with opened(place, config):
        pass
    with place.client() as client:
        client.hset(f"{{{place.prefix}}}:pool", "format", "9")
    with pytest.raises(StorageError, match=r"its keys have version 9, this program writes version 1"):
        place.open(config)


def test_keys_that_are_gone_are_named(place: ValkeyPlace, config: LedgerConfig) -> None:
    with opened(place, config) as ledger:
        ledger.submit(ask("work"))
        drop(place.url, place.prefix)
        with pytest.raises(StorageError, match=r"the ledger is damaged \(it has no pool\)"):
            ledger.submit(ask("more"))


def test_text_of_any_kind_comes_back_as_it_was(place: ValkeyPlace, config: LedgerConfig) -> None:
    keys = [Key("red", text) for text in ("", "a\0b", "a\0c", "ключ", "'; --", '"]', "🗝")]
    with opened(place, config) as ledger:
        for key in keys:
            assert ledger.submit(Reserve(key, 5, "\0", FAR)).decision is Decision.ADMITTED
        left = ledger.snapshot()
    with opened(place, config) as ledger:
        assert ledger.snapshot() == left
        assert [entry.event.key for entry in ledger.journal()] == keys  # type: ignore[union-attr]  # all are reserves


def test_moments_beyond_53_bits_are_exact(place: ValkeyPlace, config: LedgerConfig) -> None:
    """Scores of sorted sets are rounded there; what is due is not."""
    moment = 2**60 + 1
    with opened(place, evolve(config)) as ledger:
        ledger.submit(Tick(2**60 - 9))
        ledger.submit(Reserve(Key("red", "work"), 5, "d", 2**62 - 1, lease=10))
        ledger.submit(Tick(moment - 1))
        assert ledger.due() == []
        ledger.submit(Tick(moment))
        assert ledger.due() == [Sweep(Key("red", "work"))]
        assert ledger.submit(Sweep(Key("red", "work"))).decision is Decision.EXPIRED


def test_an_address_that_is_none_is_refused(config: LedgerConfig) -> None:
    with pytest.raises(UserError, match=r"give an address like valkey://"):
        ValkeyLedger("nowhere", config)
