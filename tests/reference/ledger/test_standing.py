"""Books that a gateway left: it decides over them without asking, and the store keeps nothing where they have aged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Thread

import psycopg
import pytest
from attrs import evolve

from kvescrow.checks.targets.servers import PostgresServer, ValkeyServer
from kvescrow.reference.ledger import JournalEntry, LedgerConfig, OutcomeUnknown, StorageError, StoreClock
from kvescrow.reference.ledger.books import Books
from kvescrow.reference.ledger.port import key_of
from kvescrow.reference.ledger.reckoning import Reckoning
from kvescrow.reference.ledger.shared import STALEST, ConnectionLost, SharedLedger, absent_keys
from kvescrow.reference.receipts import Keyring
from kvescrow.spec.vocabulary import (
    Cancel,
    Decision,
    Forget,
    Key,
    LedgerEvent,
    Promote,
    Reason,
    Reserve,
    SetBudget,
    SetPoolLimit,
    Start,
    Tick,
)
from tests.reference.ledger.sharing import Place, PostgresPlace, ValkeyPlace

LONG_AFTER = 10**17
HOUR = 3_600 * 10**6
Opened = Callable[..., SharedLedger]


def ask(request: str, amount: int = 10, tenant: str = "red", max_wait: int = 0) -> Reserve:
    return Reserve(Key(tenant, request), amount, "digest", LONG_AFTER, max_wait=max_wait)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> int:
    """Let a reckoned clock lag by an hour, however slow the machine is; return it in microseconds."""
    for module in ("postgres.database", "valkey.store"):
        monkeypatch.setattr(f"kvescrow.reference.ledger.{module}.STALEST", HOUR)
    return HOUR


@contextmanager
def counted_loads(ledger: SharedLedger) -> Iterator[list[Sequence[LedgerEvent]]]:
    """Collect the events of each load that `ledger` makes."""
    store, found = ledger._store, []
    load = store.load

    def counted(events: Sequence[LedgerEvent], defeats: int) -> tuple[Books, int]:
        found.append(events)
        return load(events, defeats)

    store.load = counted  # type: ignore[method-assign]  # looks on
    yield found
    store.load = load  # type: ignore[method-assign]  # as it was


# --- when nothing is asked --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clock", [None, StoreClock.STORE])
def test_a_gateway_that_writes_alone_asks_only_for_what_it_does_not_know(
    gateway: Opened, patient: int, clock: StoreClock | None
) -> None:
    ledger = gateway(clock=clock)
    ledger.submit(ask("first"))
    with counted_loads(ledger) as loads:
        assert ledger.submit(ask("second")).decision is Decision.ADMITTED
        assert ledger.submit(Start(Key("red", "second"), 2, "worker")).decision is Decision.STARTED
        assert ledger.submit(Cancel(Key("red", "first"), 1)).decision is Decision.RELEASED
        replies = ledger.submit_many([ask("third"), ask("fourth")])
        assert [reply.seq for reply in replies] == [5, 6]
        assert not loads
        assert ledger.submit(ask("third")).decision is Decision.RECORDED
        assert len(loads) == 1, "what changes nothing is decided over loaded books"


def test_a_group_that_is_too_large_for_a_reckoned_clock_is_loaded(gateway: Opened, patient: int) -> None:
    ledger = gateway(clock=StoreClock.STORE)
    ledger.submit(ask("first"))
    with counted_loads(ledger) as loads:
        ledger.submit_many([ask(f"a {number}", 1) for number in range(64)])
        assert not loads
        ledger.submit_many([ask(f"b {number}", 1) for number in range(65)])
        assert len(loads) == 1
        ledger.submit(Cancel(Key("red", "first"), 1))
        assert len(loads) == 1, "what was known stays known"


def test_a_gateway_does_not_count_on_books_while_another_writes(gateway: Opened) -> None:
    one, other = gateway(), gateway()
    one.submit(ask("first"))
    with counted_loads(one) as loads:
        for number in range(3):
            other.submit(ask(f"theirs {number}"))
            assert one.submit(ask(f"ours {number}")).seq == 3 + 2 * number
        assert len(loads) == 3
        assert one.submit(ask("alone")).seq == 8
        assert one.submit(ask("alone again")).seq == 9
        assert len(loads) == 4, "since it was alone for one group"


def test_what_was_known_stays_known_when_something_else_is_asked_for(gateway: Opened) -> None:
    ledger = gateway()
    keys = [Key("red", str(number)) for number in range(8)]
    lives = [ledger.submit(Reserve(key, 10, "digest", LONG_AFTER)).life for key in keys]
    with counted_loads(ledger) as loads:
        for key, life in zip(keys, lives, strict=True):
            assert ledger.submit(ask("too much", 40_001)).reason is Reason.NEVER_FITS
            assert ledger.submit(Cancel(key, life)).decision is Decision.RELEASED
        assert len(loads) == 8, "for the refusals"


def test_a_group_of_which_a_part_changes_nothing_is_decided_once(gateway: Opened) -> None:
    ledger = gateway()
    ledger.submit(ask("first"))
    replies = ledger.submit_many([ask("second"), ask("first"), Cancel(Key("red", "first"), 1), ask("third")])
    assert [reply.seq for reply in replies] == [2, 2, 3, 4]
    assert ledger.snapshot().pool_active == 20
    assert ledger.submit(Start(Key("red", "third"), 3, "worker")).seq == 5


def test_a_key_that_was_forgotten_over_loaded_books_is_not_remembered(gateway: Opened, config: LedgerConfig) -> None:
    ledger = gateway(evolve(config, retention=0))
    life = ledger.submit(ask("work")).life
    ledger.submit(Cancel(Key("red", "work"), life))
    # The first forgets and the second is refused, so both are decided over loaded books.
    ledger.submit_many([Forget(Key("red", "work")), Forget(Key("red", "work"))])
    assert ledger.submit(Cancel(Key("red", "work"), life)).reason is Reason.UNKNOWN_KEY
    assert ledger.submit(ask("work")).life == life + 1


def test_of_too_many_records_the_live_ones_are_remembered(gateway: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvescrow.reference.ledger.shared.MOST_STANDING", 4)
    ledger = gateway()
    life = ledger.submit(ask("live")).life
    with counted_loads(ledger) as loads:
        for number in range(6):
            ended = ledger.submit(ask(str(number))).life
            ledger.submit(Cancel(Key("red", str(number)), ended))
        ledger.submit(Start(Key("red", "live"), life, "worker"))
        assert not loads
        for number in range(6, 12):
            ledger.submit(ask(str(number)))
        assert loads, "live ones are bounded too"


@pytest.mark.parametrize(
    ("events", "absent"),
    [
        ([ask("new"), ask("known")], ["new"]),
        ([ask("new"), ask("new")], ["new"]),
        ([ask("new"), Cancel(Key("red", "new"), 1)], ["new"]),
        ([Cancel(Key("red", "known"), 1)], []),
        ([Cancel(Key("red", "new"), 1)], None),
        ([ask("new", tenant="nobody")], None),
        ([ask("new"), SetBudget("red", 5)], None),
        ([Tick(5)], None),
    ],
)
def test_books_are_enough_for_what_they_hold_and_what_is_new(
    config: LedgerConfig, events: list[LedgerEvent], absent: list[str] | None
) -> None:
    books = Books.opened(config, None)
    books.handle(ask("known"))
    assert absent_keys(events, books) == (None if absent is None else [Key("red", name) for name in absent])


# --- when the books have aged -----------------------------------------------------------------------------------------


def test_capacity_that_another_took_is_not_granted(gateway: Opened) -> None:
    one, other = gateway(), gateway()
    one.submit(ask("first"))
    one.submit(ask("second"))
    other.submit(ask("all", 39_980))
    assert one.submit(ask("third")).reason is Reason.TENANT_CAPACITY


def test_a_key_that_another_bound_is_not_bound_again(gateway: Opened) -> None:
    one, other = gateway(), gateway()
    one.submit(ask("first"))
    other.submit(ask("work"))
    assert one.submit(ask("work")).decision is Decision.RECORDED


def test_a_key_that_is_there_unloaded_is_not_bound_again(gateway: Opened) -> None:
    """Nobody else writes, but the books hold only what the last groups spoke of, and the live work that ends first."""
    gateway().submit_many([ask("old 1"), ask("old 2"), ask("old 3")])
    ledger = gateway()
    ledger.submit(ask("first"))
    with counted_loads(ledger) as loads:
        assert ledger.submit(ask("second")).seq == 5
        assert not loads
        for request in ("old 1", "old 2", "old 3"):
            assert ledger.submit(ask(request)).decision is Decision.RECORDED
            assert ledger.submit(ask(request, 11)).reason is Reason.CONFLICT_AMOUNT
        assert len(loads) == 6


def test_a_key_that_was_forgotten_is_free(gateway: Opened, config: LedgerConfig) -> None:
    ledger = gateway(evolve(config, retention=0))
    life = ledger.submit(ask("work")).life
    ledger.submit(Cancel(Key("red", "work"), life))
    ledger.submit(Forget(Key("red", "work")))
    with counted_loads(ledger) as loads:
        assert ledger.submit(ask("work")).life == life + 1
        assert not loads


def test_who_came_first_at_another_gateway_goes_first(gateway: Opened) -> None:
    one, other = gateway(), gateway()
    life = one.submit(ask("live", 40_000)).life
    one.submit(Cancel(Key("red", "live"), life))
    one.submit(ask("again", 30_000))
    other.submit(ask("waits", 20_000, "blue", max_wait=9))
    one.submit(Start(Key("red", "again"), 2, "worker"))
    assert one.submit(ask("small", 5, "blue")).reason is Reason.BEHIND_OTHERS
    assert one.submit(Promote(Key("blue", "waits"))).reason is Reason.POOL_CAPACITY


def test_a_recovery_that_another_began_is_obeyed(gateway: Opened) -> None:
    one, other = gateway(), gateway()
    one.submit(ask("first"))
    other.begin_recovery()
    assert one.submit(ask("second")).reason is Reason.RECOVERING
    other.confirm_recovered()
    assert one.submit(ask("second")).decision is Decision.ADMITTED


def test_a_queue_limit_that_another_brought_counts(gateway: Opened, config: LedgerConfig) -> None:
    one = gateway()
    one.submit(ask("all", 40_000))
    one.submit(Start(Key("red", "all"), 1, "worker"))
    tenants = {name: evolve(tenant, queue_limit=0) for name, tenant in config.tenants.items()}
    gateway(evolve(config, tenants=tenants))
    assert one.submit(ask("too much", 40_001)).reason is Reason.NEVER_FITS
    assert one.submit(ask("waits", max_wait=9)).reason is Reason.QUEUE_FULL


def test_books_do_not_outlive_an_answer_that_was_lost_after_others_wrote(gateway: Opened) -> None:
    one, other = gateway(), gateway()
    one.submit(ask("first", 10, "blue"))
    save, store = one._store.save, one._store

    def save_and_lose(changes: Sequence[JournalEntry], books: Books) -> bool:
        save(changes, books)
        store.save = save  # type: ignore[method-assign]  # once
        other.submit(ask("theirs", 39_000, "blue"))
        store.close()
        raise ConnectionLost("the answer is lost")

    store.save = save_and_lose  # type: ignore[method-assign]  # at the worst moment
    one.submit(SetPoolLimit(80_000))
    assert one.submit(ask("too much", 80_001)).reason is Reason.NEVER_FITS
    assert one.submit(ask("ours", 2_000, "blue")).reason is Reason.TENANT_CAPACITY


def test_books_do_not_outlive_a_load_that_failed(gateway: Opened) -> None:
    one, other = gateway(), gateway()
    life = one.submit(ask("work")).life
    other.submit(Cancel(Key("red", "work"), life))
    load, store = one._store.load, one._store

    def load_and_fail(events: Sequence[LedgerEvent], defeats: int) -> tuple[Books, int]:
        load(events, defeats)
        store.release()
        store.load = load  # type: ignore[method-assign]  # once
        raise StorageError("after it was answered")

    store.load = load_and_fail  # type: ignore[method-assign]  # at the worst moment
    with pytest.raises(StorageError):
        one.submit(SetBudget("blue", 5))
    assert one.submit(ask("too much", 40_001)).reason is Reason.NEVER_FITS
    assert one.submit(Start(Key("red", "work"), life, "worker")).reason is Reason.CLOSED


def test_an_older_copy_with_as_many_changes_is_another_one(gateway: Opened, place: Place) -> None:
    """It came back while the connection stayed, and another gateway has written to it since."""
    one, other = gateway(), gateway()
    one.submit(ask("first"))
    restore = place.backup()
    one.submit(ask("lost"))
    restore()
    gateway().submit(ask("theirs"))
    assert one.submit(ask("second")).reason is Reason.RECOVERING
    assert other.recovering


def test_a_change_that_valkey_refuses_in_part_is_not_there_at_all(
    valkey: ValkeyServer, schema: str, keyring: Keyring, config: LedgerConfig
) -> None:
    place = ValkeyPlace(valkey.url, schema, keyring)
    ledger = place.open(config)
    ledger.submit(ask("first"))
    with place.client() as client:
        client.xadd(f"{{{schema}}}:journal", {"writer": "nobody", "change": ""}, id="99-0")
        with pytest.raises(StorageError, match="nothing was applied"):
            ledger.submit(ask("second"))
        client.xdel(f"{{{schema}}}:journal", "99-0")
    assert ledger.snapshot().pool_active == 10
    ledger.close()


def test_changes_that_nobody_knows_of_never_come_later(gateway: Opened) -> None:
    """The line is down for longer than patience lasts; when it is back, what was on its way is put out of date."""
    ledger = gateway(patience=0.05)
    ledger.submit(ask("first"))
    store, connect, looked_for = ledger._store, ledger._store.connect, list[Sequence[JournalEntry]]()

    def lose(*_: object) -> int:
        store.close()
        raise ConnectionLost("down")

    def look(changes: Sequence[JournalEntry]) -> bool:
        looked_for.append(changes)
        return False

    with pytest.MonkeyPatch.context() as down:
        down.setattr(store, "save_standing", lose)
        down.setattr(store, "connect", lose)
        with pytest.raises(OutcomeUnknown):
            ledger.submit(ask("second"))
    assert store.connect == connect
    store.kept = look  # type: ignore[method-assign]  # looks on
    assert ledger.submit(ask("third")).seq == 2
    assert [[key_of(entry.event) for entry in changes] for changes in looked_for] == [[Key("red", "second")]]
    ledger.submit(ask("fourth"))
    assert len(looked_for) == 1


def test_a_refusal_over_standing_books_makes_no_indexes(gateway: Opened) -> None:
    """They would be made for a hint that nobody is given, over all that the gateway remembers."""
    ledger = gateway()
    ledger.submit(ask("first"))
    ledger.submit(ask("second"))
    assert ledger._standing is not None
    books, _ = ledger._standing
    reply = ledger.submit(ask("third", 39_990))
    assert reply.reason is Reason.TENANT_CAPACITY and reply.retry_after == LONG_AFTER
    assert ledger._standing is not None and ledger._standing[0] is books
    assert not books._is_indexed


@pytest.mark.parametrize("held", ["UPDATE {s}.pool SET recovering = true", "SELECT FROM {s}.tenant FOR UPDATE"])
def test_a_version_that_changes_while_a_lock_is_waited_for_counts(
    postgres: PostgresServer, schema: str, keyring: Keyring, config: LedgerConfig, held: str
) -> None:
    """The server looks at the row anew once it has the lock, not as it was when the statement began."""
    place = PostgresPlace(postgres.url, schema, keyring)
    ledger = place.open(config)
    ledger.submit(ask("first"))
    with (
        psycopg.connect(postgres.url) as session,
        psycopg.connect(postgres.url, autocommit=True) as other,
        counted_loads(ledger) as loads,
    ):
        session.execute(held.format(s=schema))
        found: list[Reason] = []
        caller = Thread(target=lambda: found.append(ledger.submit(ask("second")).reason))
        caller.start()
        while other.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchone() == (0,):
            pass
        if "tenant" in held:
            other.execute(f"UPDATE {schema}.pool SET recovering = true")
        session.commit()
        caller.join()
        assert found == [Reason.RECOVERING]
        assert len(loads) == 1
    ledger.close()


# --- the clock that is not asked --------------------------------------------------------------------------------------


def test_a_reckoned_clock_that_is_off_is_not_decided_by(gateway: Opened, patient: int) -> None:
    ledger = gateway(clock=StoreClock.STORE)
    ledger.submit(ask("first"))
    for error in (2 * patient, -2 * patient):
        clock = ledger._reckoning._clock
        assert clock is not None
        ledger._reckoning._clock = clock + error
        with counted_loads(ledger) as loads:
            ledger.submit(ask(f"off by {error}"))
            assert len(loads) == 1
            ledger.submit(ask(f"after {error}"))
            assert len(loads) == 1, "the load has set it right"
    first, *_, last = ledger.journal()
    assert 0 < last.now - first.now < patient


def test_a_clock_is_reckoned_from_the_answer_that_does_not_wait_for_the_disk(
    gateway: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = gateway(clock=StoreClock.STORE)
    store, timer = ledger._store, [1_000]
    save = store.save

    def save_slowly(changes: Sequence[JournalEntry], books: Books) -> bool:
        timer[0] += 30_000
        return save(changes, books)

    store.save = save_slowly  # type: ignore[method-assign]  # as a slow disk
    monkeypatch.setattr("kvescrow.reference.ledger.shared._timer", lambda: timer[0])
    ledger.submit(ask("first"))
    assert timer == [31_000]
    assert ledger._reckoning._timer == 1_000


def test_a_lease_that_ran_out_meanwhile_is_not_honoured(gateway: Opened) -> None:
    ledger = gateway(clock=StoreClock.STORE)
    ledger.submit(ask("first"))
    life = ledger.submit(Reserve(Key("red", "work"), 10, "d", LONG_AFTER, lease=1)).life
    began = ledger.snapshot().reservations[Key("red", "work")].lease
    while ledger._read_clock() < began + STALEST:
        pass
    assert ledger.submit(Start(Key("red", "work"), life, "worker")).reason is Reason.LEASE_EXPIRED


def test_a_clock_is_reckoned_from_the_quickest_answer_and_never_too_late() -> None:
    reckoning = Reckoning()
    assert reckoning.now(10) is None
    reckoning.saw(1_000_000, 10)
    assert reckoning.now(10) == 1_000_000
    assert reckoning.now(1_000_010) == 1_999_800
    reckoning.saw(1_999_000, 1_000_010)
    assert reckoning.now(1_000_010) == 1_999_800, "a slow answer says less than what is known"
    reckoning.saw(2_000_000, 1_000_020)
    assert reckoning.now(1_000_020) == 2_000_000
    reckoning.forget()
    assert reckoning.now(1_000_020) is None
