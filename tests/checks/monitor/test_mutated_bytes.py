"""Whatever byte of a journal is changed: it is refused, or found, or what it says is a run that the tables allow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kvescrow.checks.monitor import check_journal
from kvescrow.checks.monitor.verdict import Outcome
from kvescrow.spec.tables.registry import TABLE_BY_NAME, digest
from kvescrow.spec.vocabulary import Key, StopOutcome, UserError
from kvescrow.spec.world.ledger import LedgerWorld, TenantTerms

Line = dict[str, Any]


def allowed(lines: list[Line]) -> bool:
    """Whether the world, asked directly, answers every event as the journal says; written without the monitor."""
    header, *entries, end = lines
    if header["tables"] != digest() or end["events"] != len(entries):
        return False
    config = header["config"]
    terms = {name: TenantTerms(**each) for name, each in config["tenants"].items()}
    world = LedgerWorld(config["pool_limit"], terms, config["retention"])
    seq = 0
    for entry in entries:
        parameters = dict(entry["parameters"])
        if entry["event"] == "finish":
            parameters["outcome"] = StopOutcome(parameters["outcome"])
        if entry["event"] != "tick" or entry["decision"] == "RECORDED" or entry["now"] > parameters["now"]:
            world.pool["clock"] = entry["now"]
        key = Key(*entry["key"]) if entry["key"] else None
        outcome = world.apply_named(entry["event"], key, parameters)
        seq += not outcome.decision.changes_nothing
        record = world.reservations.get(key) if key else None
        limits = entry["event"] in {event.name for event in TABLE_BY_NAME["account"].events}
        state = record["state"].value if record else None if limits else "ABSENT"  # type: ignore[attr-defined]
        facts = (record["life"], record["generation"]) if record else (0, 0)
        if (entry["decision"], entry["reason"]) != (outcome.decision.value, outcome.reason.value):
            return False
        if (entry["seq"], entry["state"], entry["life"], entry["generation"]) != (seq, state, *facts):
            return False
    return True


@settings(
    max_examples=300,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(place=st.integers(0, 20_000), byte=st.integers(0, 255))
@example(place=0, byte=ord("["))
@example(place=20_000, byte=ord(" "))
def test_one_changed_byte_never_slips_through(tmp_path: Path, ledger_text: str, place: int, byte: int) -> None:
    whole = ledger_text.splitlines(keepends=True)
    entries = [json.loads(line) for line in whole[1:80]]
    changes = max(entry["seq"] for entry in entries)
    end = json.dumps({"kvescrow_journal_end": 1, "events": len(entries), "changes": changes}) + "\n"
    content = bytearray("".join([*whole[:80], end]).encode())
    place %= len(content)
    same = content[place] == byte
    content[place] = byte
    path = tmp_path / "journal.jsonl"
    path.write_bytes(content)
    try:
        verdict = check_journal(path)
    except UserError as error:
        assert str(error).startswith(f"{path}:")
        assert not same
        return
    if verdict.outcome is Outcome.PASSED:
        assert allowed([json.loads(line) for line in content.decode().splitlines()])
    else:
        assert not same


def test_the_unchanged_journal_is_allowed(ledger_text: str) -> None:
    assert allowed([json.loads(line) for line in ledger_text.splitlines()])


def test_a_changed_decision_is_not_allowed(ledger_text: str) -> None:
    lines = [json.loads(line) for line in ledger_text.splitlines()]
    lines[1]["decision"] = "STOP"
    assert not allowed(lines)
