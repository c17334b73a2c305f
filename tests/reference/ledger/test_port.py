"""Configurations and calls that cannot work are refused with the field and the remedy."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from attrs import evolve

from kvescrow.reference.ledger import Ledger, LedgerConfig, TenantConfig
from kvescrow.reference.ledger.records import Reservation
from kvescrow.reference.ledger.timetable import Timetable
from kvescrow.spec.vocabulary import Key, ReservationState, Reserve, Start, Tick, UserError

Open = Callable[..., Ledger]


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda: TenantConfig(-1, 0, 0), r"TenantConfig.limit is -1: set it to"),
        (lambda: TenantConfig(0, 1.5, 0), r"TenantConfig.budget is 1.5"),  # type: ignore[arg-type]  # what is tested
        (lambda: TenantConfig(0, 0, True), r"TenantConfig.queue_limit is True"),
        (lambda: LedgerConfig("", 1, {}, 0), r"LedgerConfig.pool is '': give it a name"),
        (lambda: LedgerConfig("p", -1, {}, 0), r"LedgerConfig.pool_limit is -1"),
        (lambda: LedgerConfig("p", 1, {}, -1), r"LedgerConfig.retention is -1"),
        (lambda: LedgerConfig("p", 1, {"": TenantConfig(0, 0, 0)}, 0), r"LedgerConfig.tenants: the empty name"),
        (lambda: LedgerConfig("p", 1, {"a": 5}, 0), r"LedgerConfig.tenants: give a mapping"),  # type: ignore[dict-item]  # what is tested
    ],
)
def test_a_configuration_out_of_its_domain_is_refused(make: Callable[[], object], names: str) -> None:
    with pytest.raises(UserError, match=names):
        make()


def test_a_closed_ledger_refuses_every_call(open_ledger: Open, config: LedgerConfig) -> None:
    ledger = open_ledger(config)
    ledger.close()
    ledger.close()
    calls: list[Callable[[], object]] = [
        lambda: ledger.submit(Tick(1)),
        lambda: ledger.submit_many([Tick(1)]),
        ledger.journal,
        ledger.snapshot,
        ledger.waiting,
        ledger.due,
    ]
    for call in calls:
        with pytest.raises(UserError, match="closed"):
            call()


def test_an_owner_without_a_name_is_refused(open_ledger: Open, config: LedgerConfig) -> None:
    ledger = open_ledger(config)
    key = Key("red", "work")
    ledger.submit(Reserve(key, 1, "d", 9))
    before = ledger.snapshot()
    with pytest.raises(UserError, match=r"Start\.owner is empty"):
        ledger.submit(Start(key, 1, ""))
    assert ledger.snapshot() == before
    with pytest.raises(UserError, match=r"Start\.owner is empty"):
        ledger.submit_many([Start(key, 1, "worker"), Start(key, 1, ""), Tick(5)])
    assert len(ledger.journal()) == 2, "what came before it stays decided, what comes after it is not"


def test_an_error_of_the_recorder_reaches_the_caller_and_undoes_nothing(
    open_ledger: Open, config: LedgerConfig
) -> None:
    def fail(_: object) -> None:
        raise UserError("the journal's disk is full")

    ledger = open_ledger(config, recorder=fail)
    with pytest.raises(UserError, match="journal's disk"):
        ledger.submit(Tick(5))
    assert ledger.snapshot().clock == 5
    assert len(ledger.journal()) == 1


def test_two_stores_of_one_configuration_begin_alike(open_ledger: Open, config: LedgerConfig) -> None:
    assert open_ledger(config).snapshot() == open_ledger(config).snapshot()
    assert open_ledger(evolve(config, pool_limit=7)).snapshot().pool_limit == 7


def test_a_timetable_stays_small_and_right_under_many_changes() -> None:
    table = Timetable()
    records = [
        Reservation(Key("t", str(life)), ReservationState.RESERVED, 1, "", 0, 0, 1, life) for life in range(1, 6)
    ]
    for moment in range(10_000):
        table.set(records[moment % 5], moment)
    assert len(table._heap) <= 2 * 5 + 64
    assert table.earliest() == 9_995
    assert table.due(9_996) == table.due(9_996) == [records[0].key, records[1].key]
    table.set(records[0], None)
    table.set(records[0], None)
    assert table.earliest() == 9_996
    table.set(records[3], 9_996)
    table.set(records[3], 9_998)
    table.set(records[3], 9_996)
    assert table.due(9_996) == [records[1].key, records[3].key]
    for record in records:
        table.set(record, None)
    assert (table.earliest(), table.due(10**9)) == (None, [])


def test_no_event_changes_nothing(open_ledger: Open, config: LedgerConfig) -> None:
    ledger = open_ledger(config)
    ledger.submit(Reserve(Key("red", "work"), 10, "d", 10**12))
    assert ledger.submit_many([]) == []
    assert ledger.snapshot().pool_active == 10
