"""The bench of ledgers runs all its rows beside their ceilings; what it measures is not asserted."""

from __future__ import annotations

import pytest

from kvescrow.checks.bench import ledger
from kvescrow.checks.bench.ledger import measure
from kvescrow.checks.targets.engines import BareDict
from kvescrow.checks.targets.limiters import installed_limiters
from kvescrow.checks.targets.own_ledgers import BATCH, CONFIG, LedgerWork, in_threads
from kvescrow.reference.ledger import MemoryLedger
from kvescrow.spec.vocabulary import SetPoolLimit


@pytest.fixture(autouse=True)
def little_work(monkeypatch: pytest.MonkeyPatch) -> None:
    little = {"WARM_UP": 2 * BATCH, "IN_MEMORY": 200, "ONE_BY_ONE": 4, "BATCHED": 2 * BATCH, "BY_CLIENTS": 32}
    for name, operations in little.items():
        monkeypatch.setattr(ledger, name, operations)


@pytest.mark.parametrize("store", ["sqlite", "postgres", "valkey"])
def test_a_durable_store_is_measured_beside_its_engine(store: str) -> None:
    report = measure(3, [store])
    assert [(row.name, row.peer_name) for row in report.rows] == [
        (f"{store}, one by one", "one count"),
        (f"{store}, one by one", "one grant"),
        (f"{store}, batches of 64", "counts, batched"),
        (f"{store}, batches of 64", "grants, batched"),
        (f"{store}, 4 clients", "grants, 4 clients"),
        (f"{store}, 16 clients", "grants, 16 clients"),
    ]
    assert all(row.ours > 0 and row.peer is not None and row.peer > 0 for row in report.rows)


def test_the_store_in_memory_is_measured_beside_a_dictionary_and_what_is_installed() -> None:
    report = measure(3, ["memory"])
    assert [row.peer_name for row in report.rows] == ["a dictionary under a lock", *installed_limiters()]
    assert {"load", "sync"} <= report.machine.keys()


def test_the_dictionary_keeps_what_the_ledger_keeps() -> None:
    bare, ours = BareDict(), MemoryLedger(CONFIG)
    assert bare.one_by_one(6) == LedgerWork(ours).one_by_one(6) == 6
    said = [(each.event, each.reply.decision, each.reply.life, each.reply.free_pool) for each in ours.journal()]
    assert [(each.event, each.reply.decision, each.reply.life, each.reply.free_pool) for each in bare._history] == said
    assert bare._active == {"tenant": 0, "pool": 0}


def test_other_work_than_is_to_be_measured_stops_the_run() -> None:
    full = MemoryLedger(CONFIG)
    full.submit(SetPoolLimit(0))
    with pytest.raises(RuntimeError, match=r"decided REFUSED, not ADMITTED: this is not the work"):
        LedgerWork(full).one_by_one(2)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_client_that_fails_is_noticed() -> None:
    def work(number: int) -> int:
        return 1 // number

    with pytest.raises(RuntimeError, match="a client failed"):
        in_threads(2, work)
