"""Stores that several gateways share: one truth, whatever breaks between a gateway and its store (SCA-1, SCA-2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Barrier, Thread

import pytest
from attrs import evolve

from kvescrow.reference.ledger import (
    JournalEntry,
    Ledger,
    LedgerConfig,
    LedgerReply,
    MemoryLedger,
    OutcomeUnknown,
    StorageError,
    StoreClock,
    TenantConfig,
)
from kvescrow.reference.ledger.shared import SharedLedger
from kvescrow.reference.receipts import Keyring
from kvescrow.spec.vocabulary import (
    Cancel,
    Decision,
    Finish,
    Forget,
    Key,
    Promote,
    Reason,
    Reserve,
    SetBudget,
    SetPoolLimit,
    Start,
    Sweep,
    Tick,
    UserError,
)
from tests.reference.ledger.sharing import Cutter, Place

FAR = 10**12
Opened = Callable[..., SharedLedger]


def ask(request: str, amount: int = 10, tenant: str = "red", max_wait: int = 0) -> Reserve:
    return Reserve(Key(tenant, request), amount, "digest", FAR, max_wait=max_wait)


@pytest.fixture
def cutter(tmp_path_factory: pytest.TempPathFactory, place: Place) -> Iterator[Cutter]:
    # PostgreSQL's clients look for a socket of this name; the others do not mind.
    found = Cutter(tmp_path_factory.mktemp("c") / ".s.PGSQL.5432", place.socket())
    yield found
    found.close()


def replayed(ledger: Ledger, config: LedgerConfig, keyring: Keyring) -> None:
    """Check that the journal alone comes to the same replies and state, with no gap in its numbers."""
    history = ledger.journal()
    assert [entry.seq for entry in history] == list(range(1, len(history) + 1))
    again = MemoryLedger(config, keyring=keyring)
    assert [again.submit(entry.event) for entry in history] == [entry.reply for entry in history]
    assert again.snapshot() == ledger.snapshot()


# --- one truth --------------------------------------------------------------------------------------------------------


def test_everything_survives_closing(gateway: Opened, config: LedgerConfig) -> None:
    ledger = gateway()
    ledger.submit(ask("live", 39_000))
    ledger.submit(SetPoolLimit(39_500))
    for request in ("first", "second"):
        assert ledger.submit(ask(request, 900, max_wait=50)).reason is Reason.POOL_CAPACITY
    ledger.submit(Start(Key("red", "live"), 1, "worker", lease=20))
    ledger.submit(SetPoolLimit(45_000))
    ledger.submit(SetBudget("blue", 77))
    ledger.submit(Tick(30))
    left, history, due = ledger.snapshot(), ledger.journal(), ledger.due()
    ledger.close()

    again = gateway()
    assert again.snapshot() == left
    assert again.journal() == history
    assert again.due() == due == [Sweep(Key("red", "live"))]
    assert again.submit(ask("live", 39_000)).decision is Decision.RECORDED
    assert again.submit(ask("new", 1, "blue")).reason is Reason.BEHIND_OTHERS, "the queue is still there"
    assert again.submit(Tick(31)).seq == history[-1].seq + 1


def test_what_one_gateway_did_another_sees_at_once(gateway: Opened, config: LedgerConfig, keyring: Keyring) -> None:
    first, second = gateway(), gateway()
    assert first.submit(ask("work", 30_000)).seq == 1
    assert second.submit(ask("work", 30_000)).decision is Decision.RECORDED
    assert second.submit(ask("more", 20_000, "blue", max_wait=9)).decision is Decision.QUEUED
    assert first.waiting() == (Key("blue", "more"),)
    assert first.submit(ask("small", 5)).reason is Reason.BEHIND_OTHERS
    assert first.submit(Cancel(Key("red", "work"), 1)).decision is Decision.RELEASED
    assert second.submit(Promote(Key("blue", "more"))).decision is Decision.ADMITTED
    assert first.snapshot() == second.snapshot()
    replayed(second, config, keyring)


def test_gateways_that_race_decide_one_after_the_other(gateway: Opened, config: LedgerConfig, keyring: Keyring) -> None:
    """Each of four gateways has two threads; their events interleave, and replay as one history."""
    gateways = [gateway() for _ in range(4)]
    gate = Barrier(8)

    def work(ledger: Ledger, name: str) -> None:
        gate.wait()
        for number in range(15):
            key = Key("red", f"{name}.{number % 4}")
            reply = ledger.submit(Reserve(key, 9_000, "d", FAR, max_wait=number % 2))
            ledger.submit(Cancel(key, reply.life))

    threads = [
        Thread(target=work, args=(ledger, f"{index}{half}")) for index, ledger in enumerate(gateways) for half in "ab"
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    replayed(gateways[0], config, keyring)


def test_many_gateways_may_open_a_ledger_for_the_first_time(gateway: Opened) -> None:
    gate, found = Barrier(5), []

    def open_one() -> None:
        gate.wait()
        found.append(gateway().snapshot())

    threads = [Thread(target=open_one) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 5 and all(each == found[0] for each in found)


def test_the_servers_clock_is_the_ledgers(gateway: Opened) -> None:
    one, other = gateway(clock=StoreClock.STORE), gateway(clock=StoreClock.STORE)
    life = one.submit(Reserve(Key("red", "work"), 10, "d", 10**17, lease=1)).life
    began = one.snapshot().clock
    assert began > 1_600_000_000 * 10**6, "microseconds since 1970"
    assert other.due() == [Sweep(Key("red", "work"))]
    assert other.submit(Start(Key("red", "work"), life, "worker")).reason is Reason.LEASE_EXPIRED
    assert other.snapshot().clock > began


def test_the_clock_goes_back_neither_between_gateways_nor_over_a_restart(gateway: Opened) -> None:
    ahead = gateway(clock=lambda: 500)
    ahead.submit(Sweep(Key("red", "nothing")))
    assert ahead.snapshot().clock == 500
    ahead.close()
    behind = gateway(clock=lambda: 20)
    behind.submit(ask("work"))
    assert behind.snapshot().clock == 500


def test_a_new_configuration_adds_tenants_and_undoes_no_event(gateway: Opened) -> None:
    gateway().submit(SetPoolLimit(10))
    tenants = {"green": TenantConfig(5, 5, 5), "red": TenantConfig(1, 1, 0)}
    ledger = gateway(LedgerConfig("pool", 99, tenants, 0))
    snapshot = ledger.snapshot()
    assert snapshot.pool_limit == 10
    assert {name: account.limit for name, account in snapshot.tenants.items()} == {
        "blue": 40_000,
        "green": 5,
        "red": 40_000,
    }
    ledger.submit(ask("a", 10))
    assert ledger.submit(ask("b", max_wait=9)).reason is Reason.QUEUE_FULL, "the new queue limit counts"


def test_lives_and_generations_go_on_after_forgetting_and_reopening(gateway: Opened, config: LedgerConfig) -> None:
    at_once = evolve(config, retention=0)
    ledger = gateway(at_once)
    life = ledger.submit(ask("work")).life
    ledger.submit(Cancel(Key("red", "work"), life))
    assert ledger.submit(Forget(Key("red", "work"))).decision is Decision.FORGOTTEN
    assert ledger.snapshot().reservations == {}
    assert gateway(at_once).submit(ask("work")).life == life + 1


def test_another_pools_ledger_is_refused(gateway: Opened, config: LedgerConfig) -> None:
    gateway()
    with pytest.raises(StorageError, match=r"this is the ledger of pool 'pool', not of 'loop': correct LedgerConfig"):
        gateway(evolve(config, pool="loop"))


def test_a_hint_is_that_of_the_whole_ledger(gateway: Opened) -> None:
    """What a batch does not touch counts for its hints as well: the soonest deadline of pool and of tenant."""
    ledger = gateway()
    ledger.submit(Reserve(Key("red", "late"), 20_000, "d", 900_000))
    ledger.submit(Reserve(Key("blue", "soon"), 10_000, "d", 500_000))
    ledger.submit(SetBudget("red", 20_000))
    assert ledger.submit(ask("pool", 20_000, "blue")).retry_after == 500_000
    assert ledger.submit(ask("budget", 10)).retry_after == 900_000
    _, refused = ledger.submit_many([Cancel(Key("blue", "soon"), 2), ask("pool", 30_000, "blue")])
    assert refused.retry_after == 900_000


# --- what breaks ------------------------------------------------------------------------------------------------------


def test_a_connection_that_broke_is_made_anew(gateway: Opened, place: Place) -> None:
    ledger = gateway()
    ledger.submit(ask("before"))
    place.cut_connections()
    assert ledger.submit(ask("after")).seq == 2
    place.cut_connections()
    assert ledger.snapshot().pool_active == 20


@pytest.fixture(params=["loaded", "standing"])
def before(request: pytest.FixtureRequest) -> int:
    """So many events before the one that meets trouble: none, so that it loads the books, or one that leaves them."""
    return ["loaded", "standing"].index(request.param)


@pytest.mark.parametrize("after_answer", [False, True])
def test_a_commit_whose_answer_is_lost_takes_place_once(
    cutter: Cutter, place: Place, config: LedgerConfig, keyring: Keyring, before: int, after_answer: bool
) -> None:
    ledger = place.open_through(cutter.path, config)
    for number in range(before):
        ledger.submit(ask(f"before {number}"))
    cutter.arm(place.commit_standing if before else place.commit, after_answer=after_answer)
    reply = ledger.submit(ask("work"))
    assert cutter.cuts == 1
    assert (reply.decision, reply.seq) == (Decision.ADMITTED, 1 + before)
    assert ledger.snapshot().pool_active == 10 * (1 + before)
    replayed(ledger, config, keyring)
    ledger.close()


def test_a_commit_that_arrives_after_it_was_looked_for_comes_too_late(
    cutter: Cutter, place: Place, config: LedgerConfig, keyring: Keyring
) -> None:
    ledger = place.open_through(cutter.path, config)
    ledger.submit(ask("before"))
    kept = ledger._store.kept

    def kept_and_then_delivered(changes: Sequence[JournalEntry]) -> bool:
        found = kept(changes)
        cutter.deliver()
        return found

    ledger._store.kept = kept_and_then_delivered  # type: ignore[method-assign]  # at the worst moment
    cutter.arm(place.commit_standing, after_answer=False, holds_back=True)
    reply = ledger.submit(ask("work"))
    assert cutter.cuts == 1
    assert (reply.decision, reply.seq) == (Decision.ADMITTED, 2)
    assert ledger.snapshot().pool_active == 20
    replayed(ledger, config, keyring)
    ledger.close()


@pytest.mark.parametrize("after_answer", [False, True])
def test_where_the_store_stays_away_the_key_tells_later(
    cutter: Cutter, place: Place, config: LedgerConfig, before: int, after_answer: bool
) -> None:
    ledger = place.open_through(cutter.path, config, patience=0.1)
    for number in range(before):
        ledger.submit(ask(f"before {number}"))
    cutter.arm(place.commit_standing if before else place.commit, after_answer=after_answer, stay_down=True)
    with pytest.raises(OutcomeUnknown, match=r"lost while committing: submit the event again, its key tells"):
        ledger.submit(ask("work"))
    with pytest.raises(StorageError, match="connection"):
        ledger.snapshot()
    cutter.is_down = False
    assert ledger.submit(ask("work")).decision is (Decision.RECORDED if after_answer else Decision.ADMITTED)
    assert ledger.snapshot().pool_active == 10 * (1 + before)
    ledger.close()


def test_a_store_that_is_not_there_is_named(place: Place, config: LedgerConfig, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"^(PostgreSQL schema|Valkey keys) 'ledger_\d+': .*: check"):
        place.open_through(tmp_path / "nothing" / "socket", config)


# --- a store that went back in time -----------------------------------------------------------------------------------


def test_lost_grants_are_noticed_and_stop_new_ones(
    gateway: Opened, place: Place, finish: Callable[..., Finish]
) -> None:
    told: list[JournalEntry] = []
    ledger = gateway(recorder=told.append)
    known = ledger.submit(ask("known")).life
    waits = ledger.submit(ask("waits")).life
    generation = ledger.submit(Start(Key("red", "known"), known, "worker")).generation
    restore = place.backup()
    lost = ledger.submit(ask("lost")).life
    ledger.submit(Start(Key("red", "lost"), lost, "worker"))

    restore()
    refused = ledger.submit(ask("new"))
    assert (refused.decision, refused.reason) == (Decision.REFUSED, Reason.RECOVERING)
    assert ledger.recovering
    assert told[-1].reply.reason is not Reason.RECOVERING, "no table speaks of it"

    newcomer = gateway()
    assert newcomer.submit(ask("new")).reason is Reason.RECOVERING, "every gateway is told"
    assert newcomer.submit(Start(Key("red", "waits"), waits, "worker")).reason is Reason.RECOVERING
    assert newcomer.submit(ask("known")).decision is Decision.RECORDED, "retries are answered"
    stopped = newcomer.submit(finish(Key("red", "known"), "worker", generation, 4))
    assert stopped.decision is Decision.RELEASED, "stops go on"
    assert newcomer.submit(Reserve(Key("green", "x"), 1, "d", FAR)).reason is Reason.FORBIDDEN

    assert newcomer.confirm_recovered()
    assert not newcomer.confirm_recovered()
    assert not ledger.recovering
    again = ledger.submit(ask("lost"))
    assert again.decision is Decision.ADMITTED
    assert again.life > lost, "a life that was lost is not drawn again"
    assert newcomer.submit(Start(Key("red", "waits"), waits, "worker")).generation > generation + 1


def test_a_witness_remembers_over_a_joint_restart(gateway: Opened, place: Place, tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    ledger = gateway(witness=witness)
    restore = place.backup()
    ledger.submit(ask("lost"))
    ledger.close()
    restore()
    assert not gateway().recovering, "nobody who was there has looked"
    assert gateway(witness=witness).recovering


def test_a_witness_notices_a_history_that_went_another_way(gateway: Opened, place: Place, tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    ledger = gateway(witness=witness)
    restore = place.backup()
    ledger.submit(ask("lost"))
    ledger.close()
    restore()
    other = gateway()
    for request in ("one", "two", "three"):
        other.submit(ask(request))
    assert gateway(witness=witness).recovering
    other.confirm_recovered()
    assert not gateway(witness=witness).recovering, "what was confirmed is not doubted again"


def test_an_operator_may_begin_a_recovery(gateway: Opened) -> None:
    ledger, other = gateway(), gateway()
    ledger.begin_recovery()
    assert other.submit(ask("work")).reason is Reason.RECOVERING
    assert other.confirm_recovered()
    assert ledger.submit(ask("work")).decision is Decision.ADMITTED


def test_a_file_that_is_no_witness_is_refused(gateway: Opened, tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("milk and bread\n")
    with pytest.raises(UserError, match=r"notes: this is not a witness of a ledger: name another file"):
        gateway(witness=tmp_path / "notes")
    with pytest.raises(UserError, match=r"name a file that can be written"):
        gateway(witness=tmp_path)


def test_both_kinds_of_reply_agree_with_a_ledger_in_memory(gateway: Opened, config: LedgerConfig) -> None:
    """The very replies, hints included, of one sequence that queues, refuses, expires and forgets."""
    events = [
        ask("a", 30_000),
        ask("b", 20_000, max_wait=5),
        ask("c", 20_000),
        ask("d", 1, "blue"),
        Tick(6),
        Sweep(Key("red", "b")),
        ask("d", 1, "blue"),
        Cancel(Key("red", "a"), 1),
        Forget(Key("red", "a")),
    ]
    expected: list[LedgerReply] = MemoryLedger(config).submit_many(events)
    assert gateway().submit_many(events) == expected
