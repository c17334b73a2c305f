"""Journals of a ledger: the reference's pass, and every planted fault is found or refused with its place (TGT-3)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from kvescrow.checks.monitor import Monitor, check_journal
from kvescrow.checks.monitor.verdict import Outcome
from kvescrow.spec.vocabulary import UserError
from tests.checks.monitor.runs import Line, Write, journal_of, record_ledger_run

FIRST = 2
"""The line of a journal's first event."""


def position(lines: list[Line], **wanted: Any) -> int:
    """The index of the first line that has `wanted`."""
    return next(i for i, line in enumerate(lines) if wanted.items() <= line.items())


def recounted(lines: list[Line]) -> list[Line]:
    """The same events with a terminal line that counts them."""
    return journal_of(lines[0]["config"], lines[1:-1])


@pytest.mark.parametrize("seed", range(4))
def test_the_references_journals_pass(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "journal.jsonl"
    record_ledger_run(path, 1500, seed)
    verdict = check_journal(path, whole_check_every=50)
    assert (verdict.outcome, verdict.findings, verdict.omitted) == (Outcome.PASSED, (), 0)
    assert sum(verdict.rows.values()) == verdict.events >= 1500
    assert len(verdict.rows) > 70


def test_a_verdict_is_a_record(lines: list[Line], write: Write) -> None:
    record = check_journal(write(lines)).as_json()
    assert record == json.loads(json.dumps(record))
    assert list(record) == ["verdict", "events", "rows", "findings", "omitted"]
    assert record["verdict"] == "passed"


def test_a_wrong_decision_is_found_with_its_row(lines: list[Line], write: Write) -> None:
    index = position(lines, decision="ADMITTED", event="reserve")
    lines[index] |= {"decision": "QUEUED", "reason": "POOL_CAPACITY"}
    finding = check_journal(write(lines)).findings[0]
    assert (finding.line, finding.row) == (index + 1, "reservation.reserve.admit")
    assert (finding.expected, finding.found) == ("ADMITTED", "QUEUED POOL_CAPACITY")
    assert finding.event.startswith("reserve key ['")


def test_a_wrong_reason_is_found(lines: list[Line], write: Write) -> None:
    index = position(lines, reason="FORGED")
    lines[index]["reason"] = "NOT_OWNER"
    verdict = check_journal(write(lines))
    assert [str(finding) for finding in verdict.findings] == [
        f"line {index + 1}: finish key {lines[index]['key']}: reservation.finish.forged gives REFUSED FORGED; "
        "found REFUSED NOT_OWNER"
    ]
    assert verdict.outcome is Outcome.REFUTED
    assert verdict.as_json()["verdict"] == "refuted"


@pytest.mark.parametrize(
    ("name", "value", "expected", "found"),
    [
        ("life", 999, "life 1", "life 999"),
        ("life", True, "life 1", "life True"),
        ("generation", 7, "generation 0", "generation 7"),
        ("state", "RUNNING", "state RESERVED", "state RUNNING"),
        ("state", None, "state RESERVED", "state None"),
    ],
)
def test_altered_state_and_identities_are_found(
    lines: list[Line], write: Write, name: str, value: object, expected: str, found: str
) -> None:
    index = position(lines, decision="ADMITTED", life=1)
    lines[index][name] = value
    (finding,) = check_journal(write(lines)).findings
    assert (finding.line, finding.expected, finding.found) == (index + 1, expected, found)


def test_a_tick_that_moved_time_elsewhere_is_found(write: Write) -> None:
    entry = {"event": "tick", "key": None, "parameters": {"now": 9}, "decision": "NOTED", "reason": "NONE"}
    lines = journal_of(
        {"pool_limit": 1, "tenants": {}, "retention": 0},
        [{**entry, "now": 5, "seq": 1, "state": None, "life": 0, "generation": 0}],
    )
    (finding,) = check_journal(write(lines)).findings
    assert (finding.row, finding.expected, finding.found) == ("account.tick.forward", "now 9", "now 5")


def test_findings_are_counted_and_the_first_are_kept(lines: list[Line], write: Write) -> None:
    for line in lines[1:-1]:
        line["life"] = -1
    verdict = check_journal(write(lines), most_findings=3)
    assert [finding.line for finding in verdict.findings] == [FIRST, FIRST + 1, FIRST + 2]
    assert len(verdict.findings) + verdict.omitted == verdict.events


# --- journals that cannot be judged ---------------------------------------------------------------------------------


def refusal(path: Path) -> tuple[int, str]:
    """The line and the message with which the journal is refused."""
    with pytest.raises(UserError) as caught:
        check_journal(path)
    match = re.match(rf"{re.escape(str(path))}:(\d+): (.+)", str(caught.value))
    assert match, str(caught.value)
    return int(match[1]), match[2]


def test_a_missing_change_is_refused(lines: list[Line], write: Write) -> None:
    index = position(lines, decision="ADMITTED", event="promote")
    seq = lines[index]["seq"]
    del lines[index]
    line, message = refusal(write(recounted(lines)))
    # A refusal that follows shows the missing number first, the next change where there is none.
    assert message.startswith(
        (f"seq goes from {seq - 1} to {seq}", f"seq {seq + 1} comes after {seq - 1}: the changes")
    )
    assert lines[line - 1]["seq"] in (seq, seq + 1)


def test_a_missing_refusal_is_refused_by_the_counts(lines: list[Line], write: Write) -> None:
    del lines[position(lines, decision="REFUSED")]
    line, message = refusal(write(lines))
    assert line == len(lines)
    assert message.startswith(f"the terminal line says {len(lines) - 1} events, but there are {len(lines) - 2}")


def test_a_journal_from_the_middle_is_refused(lines: list[Line], write: Write) -> None:
    start = position(lines, seq=5)
    line, message = refusal(write(recounted([lines[0], *lines[start:]])))
    assert (line, message[:19]) == (FIRST, "seq 5 comes after 0")


def test_swapped_lines_are_refused(lines: list[Line], write: Write) -> None:
    index = next(i for i in range(1, len(lines) - 2) if lines[i + 1]["seq"] == lines[i]["seq"] + 1 > 1)
    lines[index], lines[index + 1] = lines[index + 1], lines[index]
    line, message = refusal(write(lines))
    assert line in (index + 1, index + 2)
    assert re.match(r"seq \d+ comes after|seq goes from|now \d+ comes after", message)


def test_a_seq_that_comes_twice_is_refused(lines: list[Line], write: Write) -> None:
    index = position(lines, decision="ADMITTED", event="promote")
    lines[index]["seq"] -= 1
    assert refusal(write(lines)) == (
        index + 1,
        f"seq {lines[index]['seq']} comes twice: each change has its own; restore the journal",
    )


def test_a_seq_that_goes_back_is_refused(lines: list[Line], write: Write) -> None:
    index = next(i for i, line in enumerate(lines[1:], start=1) if line["decision"] == "REFUSED" and line["seq"] > 9)
    seq = lines[index]["seq"]
    lines[index]["seq"] = 3
    line, message = refusal(write(lines))
    assert line == index + 1
    assert message.startswith(f"seq 3 comes after {seq}")


def test_a_seq_that_moves_for_nothing_is_refused(lines: list[Line], write: Write) -> None:
    index = next(i for i, line in enumerate(lines[1:], start=1) if line["decision"] == "REFUSED" and line["seq"] > 9)
    seq = lines[index]["seq"]
    lines[index]["seq"] += 1
    assert refusal(write(lines)) == (
        index + 1,
        f"seq goes from {seq} to {seq + 1}, but nothing changed; restore the journal",
    )


def test_time_that_goes_back_is_refused(lines: list[Line], write: Write) -> None:
    index = position(lines, seq=30)
    lines[index]["now"] = 1
    line, message = refusal(write(lines))
    assert line == index + 1
    assert re.match(r"now 1 comes after \d+: time goes back", message)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"event": "reserved"}, "unknown event 'reserved': the tables know reserve, promote"),
        ({"event": ["reserve"]}, "unknown event ['reserve']"),
        ({"table": "scope_reuse"}, "unknown table 'scope_reuse': a journal may speak of reservation"),
        ({"table": None}, "unknown table None"),
        ({"table": "account"}, "unknown event 'reserve' of account: its table knows set_budget"),
        ({"colour": 1}, "unknown key 'colour' in a line of reservation: take it out"),
        ({"decision": "GIVEN"}, "unknown decision 'GIVEN'"),
        ({"reason": 3}, "unknown reason 3"),
        ({"key": None}, "key of `reserve` must be [tenant, request]"),
        ({"key": "a/r1"}, "key is 'a/r1', neither null nor [tenant, request]"),
        ({"key": ["a", 1]}, "key is ['a', 1], neither null nor"),
        ({"now": -1}, "now is -1, below 0"),
        ({"now": 1.0}, "now is 1.0, not an integer"),
        ({"seq": "1"}, "seq is '1', not an integer"),
        ({"parameters": []}, "parameters is [], not an object"),
        ({"parameters": {}}, "parameters are none; `reserve` has authorised, amount"),
    ],
)
def test_a_malformed_line_is_refused(lines: list[Line], write: Write, change: Line, message: str) -> None:
    index = position(lines, event="reserve")
    lines[index] |= change
    line, said = refusal(write(lines))
    assert line == index + 1
    assert said.startswith(message)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("amount", 1.5, "amount is 1.5, not an integer"),
        ("amount", True, "amount is True, not an integer"),
        ("authorised", 1, "authorised is 1, neither true nor false"),
        ("digest", 0, "digest is 0, not a text"),
    ],
)
def test_a_parameter_of_the_wrong_type_is_refused(
    lines: list[Line], write: Write, name: str, value: object, message: str
) -> None:
    index = position(lines, event="reserve")
    lines[index]["parameters"][name] = value
    assert refusal(write(lines)) == (index + 1, message)


def test_an_unknown_outcome_of_a_receipt_is_refused(lines: list[Line], write: Write) -> None:
    index = position(lines, event="finish")
    lines[index]["parameters"]["outcome"] = "DONE"
    assert refusal(write(lines)) == (index + 1, "outcome is 'DONE', not one of COMPLETED, FAILED, STOPPED")


def test_a_tenant_event_with_a_request_is_refused(lines: list[Line], write: Write) -> None:
    index = position(lines, event="set_budget")
    lines[index]["key"] = ["a", "r1"]
    assert refusal(write(lines)) == (index + 1, 'key of `set_budget` must be [tenant, ""]')


def test_a_missing_key_is_refused(lines: list[Line], write: Write) -> None:
    del lines[1]["generation"]
    line, message = refusal(write(lines))
    assert line == FIRST
    assert re.match(r"missing key 'generation' in a line of (reservation|account): add it", message)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({"kvescrow_journal": 2}, "format version 2, but this reads 1: use the kvescrow that wrote it"),
        ({"kvescrow_journal": True}, "format version True"),
        ({"tables": "0" * 64}, "made under tables 000000000000, but these are"),
        ({"tables": None}, "made under tables None"),
        ({"more": 1}, "the header has kvescrow_journal, tables, config, more; it needs"),
        ({"config": 1}, "config is 1, not an object"),
        ({"config": {"pool_limit": 1}}, "tenants is None, not an object"),
        ({"config": {"pool_limit": -1, "tenants": {}, "retention": 0}}, "pool_limit is -1, below 0"),
        ({"config": {"pool_limit": 1, "tenants": {"a": {}}, "retention": 0}}, "tenant 'a' has nothing; it needs limit"),
        ({"config": {"poollimit": 1}}, "unknown key 'poollimit' in config: take it out"),
        ({"config": {"pages": 1, "page_length": 1}}, "pages is 1, below 2"),
    ],
)
def test_a_foreign_header_is_refused(lines: list[Line], write: Write, header: Line, message: str) -> None:
    lines[0] |= header
    line, said = refusal(write(lines))
    assert line == 1
    assert said.startswith(message)


def test_a_ledger_event_without_a_ledger_is_refused(lines: list[Line], write: Write) -> None:
    lines[0]["config"] = {}
    line, message = refusal(write(lines))
    assert (line, message[:43]) == (FIRST, "an event of a ledger, but config names none")


def test_a_file_that_is_no_journal_is_refused(write: Write) -> None:
    line, message = refusal(write([{"timestamp": 1, "input_length": 2}]))
    assert (line, message[:21]) == (1, "this is no journal: i")


def test_an_empty_file_is_refused(write: Write) -> None:
    line, message = refusal(write([]))
    assert (line, message[:17]) == (0, "the file is empty")


def test_a_journal_without_events_is_refused(lines: list[Line], write: Write) -> None:
    line, message = refusal(write(recounted([lines[0], lines[-1]])))
    assert (line, message[:17]) == (2, "there is no event")


def test_a_journal_without_terminal_line_is_refused(lines: list[Line], write: Write) -> None:
    line, message = refusal(write(lines[:-1]))
    assert (line, message[:28]) == (len(lines) - 1, "the terminal line is missing")


def test_a_journal_cut_inside_a_line_is_refused(lines: list[Line], write: Write) -> None:
    path = write(lines)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    line, message = refusal(path)
    assert (line, message[:20]) == (content[: len(content) // 2].count(b"\n") + 1, "the line was cut off")


def test_lines_after_the_end_are_refused(lines: list[Line], write: Write) -> None:
    line, message = refusal(write([*lines, lines[-1]]))
    assert (line, message[:41]) == (len(lines) + 1, "there are lines after the terminal line: ")


@pytest.mark.parametrize(
    ("end", "message"),
    [
        ({"changes": 1}, "the terminal line says 1 changes, but there are"),
        ({"events": None}, "events is None, not an integer"),
        ({"kvescrow_journal_end": 2}, "a terminal line is"),
        ({"decisions": {}}, "a terminal line is"),
    ],
)
def test_a_wrong_terminal_line_is_refused(lines: list[Line], write: Write, end: Line, message: str) -> None:
    lines[-1] |= end
    line, said = refusal(write(lines))
    assert line == len(lines)
    assert said.startswith(message)


@pytest.mark.parametrize(
    "content",
    [
        b"\x00\xff\xfe",
        b"not a journal",
        b"[1, 2]\n",
        b"3\n",
        b"\n",
        b"[" * 100_000,
        b"{}\n",
        b'"' + b"9" * 5000,
        b"9" * 5000,
    ],
    ids=repr,
)
def test_garbage_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(content)
    assert refusal(path)[0] == 1


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="No such file or directory: name a journal that can be read"):
        check_journal(tmp_path / "gone")
    with pytest.raises(UserError, match="name a journal that can be read"):
        check_journal(tmp_path)


# --- in a running process -------------------------------------------------------------------------------------------


def test_events_are_judged_as_they_come(lines: list[Line]) -> None:
    monitor = Monitor(lines[0]["config"])
    index = position(lines, decision="ADMITTED")
    for line in lines[1:index]:
        assert monitor.feed(line) == []
    (finding,) = monitor.feed({**lines[index], "generation": 5})
    assert (finding.line, finding.found) == (index + 1, "generation 5")
    assert monitor.findings == [finding]
    assert (monitor.events, monitor.finish().events) == (index, index)


def test_a_run_without_events_has_no_verdict() -> None:
    with pytest.raises(UserError, match="there is no event, so nothing was checked"):
        Monitor({"pool_limit": 1, "tenants": {}, "retention": 0}).finish()
