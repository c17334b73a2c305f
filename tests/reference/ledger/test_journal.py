"""The journal as JSON Lines: whole, in order, in the words of the tables (VIS-3)."""

from __future__ import annotations

import json
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from kvescrow.reference.journal import JournalWriter
from kvescrow.reference.ledger import Ledger, LedgerConfig, MemoryLedger
from kvescrow.reference.receipts import Keyring
from kvescrow.spec.tables.account import ACCOUNT
from kvescrow.spec.tables.reservation import RESERVATION
from kvescrow.spec.vocabulary import (
    Cancel,
    Extend,
    Finish,
    ForceRelease,
    Forget,
    Key,
    LedgerEvent,
    LedgerEventKind,
    Preempt,
    Promote,
    Renew,
    ReportUsage,
    Reserve,
    SetBudget,
    SetPoolLimit,
    SetTenantLimit,
    Start,
    Sweep,
    Tick,
    UserError,
)

Open = Callable[..., Ledger]
KEY = Key("red", "work")
OTHER = Key("red", "lost")


def run(path: Path, open_ledger: Open, config: LedgerConfig, events: list[LedgerEvent]) -> list[dict[str, Any]]:
    """Submit `events` to a recorded ledger and return the lines of its journal."""
    with JournalWriter(path, config, "digest of the tables") as writer:
        ledger = open_ledger(config, recorder=writer)
        for event in events:
            ledger.submit(event)
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


@pytest.fixture
def every_kind(finish: Callable[..., Finish], keyring: Keyring) -> list[LedgerEvent]:
    return [
        Tick(3),
        Reserve(KEY, 100, "digest", 10**9, max_wait=2),
        Start(KEY, 1, "worker"),
        Extend(KEY, "worker", 1, 120),
        ReportUsage(KEY, "worker", 1, 50),
        Renew(KEY, 1, "worker", 1),
        Preempt(KEY, 1, authorised=False),
        Cancel(KEY, 1),
        finish(KEY, "worker", 1, 60),
        Sweep(KEY),
        Forget(KEY),
        Promote(KEY),
        Reserve(OTHER, 5, "digest", 10**9),
        keyring.fence("pool", OTHER, "worker"),
        ForceRelease(OTHER, 1),
        SetPoolLimit(50_000),
        SetTenantLimit("red", 30_000),
        SetBudget("green", 7),
    ]


def test_every_event_has_a_line_with_the_tables_parameters(
    tmp_path: Path, open_ledger: Open, config: LedgerConfig, every_kind: list[LedgerEvent]
) -> None:
    header, *lines, end = run(tmp_path / "journal.jsonl", open_ledger, config, every_kind)

    assert header["kvescrow_journal"] == 1
    assert header["tables"] == "digest of the tables"
    assert header["config"]["tenants"]["blue"] == {"limit": 40_000, "budget": 1_000_000, "queue_limit": 4}
    assert (header["config"]["pool"], header["config"]["pool_limit"]) == ("pool", 40_000)
    assert {line["event"] for line in lines} == {kind.value for kind in LedgerEventKind}
    parameters = {event.name: set(event.parameters) for table in (RESERVATION, ACCOUNT) for event in table.events}
    for line in lines:
        assert set(line["parameters"]) == parameters[line["event"]], line
    assert end == {"kvescrow_journal_end": 1, "events": len(every_kind), "changes": 11}


def test_lines_say_what_was_decided_and_when(
    tmp_path: Path, open_ledger: Open, config: LedgerConfig, every_kind: list[LedgerEvent]
) -> None:
    lines = run(tmp_path / "journal.jsonl", open_ledger, config, every_kind)
    by_event = {line.get("event"): line for line in lines}

    assert by_event["start"] == {
        "event": "start",
        "now": 3,
        "key": ["red", "work"],
        "parameters": {"authorised": True, "life": 1, "owner": "worker", "lease": 10_000_000},
        "decision": "STARTED",
        "reason": "NONE",
        "seq": 3,
        "state": "RUNNING",
        "life": 1,
        "generation": 1,
    }
    forbidden = by_event["preempt"]
    assert (forbidden["decision"], forbidden["reason"]) == ("REFUSED", "FORBIDDEN")
    assert (forbidden["state"], forbidden["life"]) == ("RUNNING", 1), "the journal knows what the caller may not"
    assert by_event["finish"]["parameters"]["outcome"] == "COMPLETED"
    assert by_event["tick"]["key"] is None
    assert by_event["set_budget"]["key"] == ["green", ""]
    assert [by_event[name]["state"] for name in ("tick", "set_pool_limit", "set_budget")] == [None] * 3


def test_what_nobody_may_ask_is_recorded_as_such(
    tmp_path: Path, open_ledger: Open, config: LedgerConfig, finish: Callable[..., Finish]
) -> None:
    stranger = Key("green", "work")
    forged = Finish(evolve(finish(KEY, "worker", 1, 5).receipt, used=6))
    lines = run(
        tmp_path / "journal.jsonl",
        open_ledger,
        config,
        [Reserve(stranger, 5, "d", 9), Cancel(stranger, 1), forged],
    )
    assert [line["parameters"].get("authorised") for line in lines[1:3]] == [False, False]
    assert lines[3]["parameters"]["authentic"] is False
    assert [line["reason"] for line in lines[1:4]] == ["FORBIDDEN", "FORBIDDEN", "FORGED"]


def test_the_same_run_gives_the_same_journal_on_every_store(
    tmp_path: Path, open_ledger: Open, config: LedgerConfig, keyring: Keyring, every_kind: list[LedgerEvent]
) -> None:
    def memory(config: LedgerConfig, **options: Any) -> Ledger:
        return MemoryLedger(config, keyring=keyring, **options)

    first = run(tmp_path / "first.jsonl", memory, config, every_kind)
    assert run(tmp_path / "second.jsonl", open_ledger, config, every_kind) == first


def test_a_run_that_fails_leaves_no_terminal_line(tmp_path: Path, open_ledger: Open, config: LedgerConfig) -> None:
    path = tmp_path / "journal.jsonl"
    with pytest.raises(RuntimeError), JournalWriter(path, config, "digest") as writer:
        open_ledger(config, recorder=writer).submit(Tick(1))
        raise RuntimeError
    assert json.loads(path.read_text("utf-8").splitlines()[-1])["event"] == "tick"


def test_each_line_is_on_file_before_the_reply(tmp_path: Path, open_ledger: Open, config: LedgerConfig) -> None:
    path = tmp_path / "journal.jsonl"
    writer = JournalWriter(path, config, "digest")
    open_ledger(config, recorder=writer).submit(Tick(1))
    assert len(path.read_text("utf-8").splitlines()) == 2
    writer.close()
    writer.close()
    assert len(path.read_text("utf-8").splitlines()) == 3


def test_a_journal_is_never_written_over(tmp_path: Path, config: LedgerConfig) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text("precious")
    with pytest.raises(UserError, match="the file exists: name a new one"):
        JournalWriter(path, config, "digest")
    assert path.read_text() == "precious"
    with pytest.raises(UserError, match="name a file that can be written"):
        JournalWriter(tmp_path / "nowhere" / "journal.jsonl", config, "digest")


def test_a_full_disk_is_said_with_its_file(tmp_path: Path, config: LedgerConfig) -> None:
    path = tmp_path / "journal.jsonl"
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    # A limit on the size of files stands for the full disk; the writer sees the same failed write.
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, usual[1]))
    try:
        with pytest.raises(UserError, match=rf"{path}: .* make room"):
            JournalWriter(path, config, "digest")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
