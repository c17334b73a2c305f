"""Lines of a worker's executions and tickets: the reference's pass, and unsound ones are found."""

from __future__ import annotations

import re

import pytest

from kvescrow.checks.monitor import Monitor, check_journal
from kvescrow.checks.monitor.verdict import Outcome
from kvescrow.spec.vocabulary import UserError
from tests.checks.monitor.runs import Line, Write, journal_of, record_execution_run


def line(event: str, answer: str, number: int | None = None, **parameters: object) -> Line:
    """A line of the execution a/r1."""
    decision, _, reason = answer.partition(" ")
    return {
        "table": "execution" if number is None else "ticket",
        "event": event,
        "key": ["a", "r1"],
        **({} if number is None else {"number": number}),
        "parameters": parameters,
        "decision": decision,
        "reason": reason or "NONE",
    }


BEGUN = [line("begin", "STARTED", generation=1), line("launch", "LAUNCHED", 1, generation=1)]


def found(*entries: Line) -> list[str]:
    """What the monitor finds after an execution has begun and launched its first step."""
    monitor = Monitor({}, whole_check_every=1)
    for entry in (*BEGUN, *entries):
        monitor.feed(entry)
    return [f"{finding.row} gives {finding.expected}; found {finding.found}" for finding in monitor.finish().findings]


@pytest.mark.parametrize("seed", range(3))
def test_the_references_executions_pass(write: Write, seed: int) -> None:
    verdict = check_journal(write(journal_of({}, record_execution_run(400, seed))), whole_check_every=20)
    assert (verdict.outcome, verdict.findings) == (Outcome.PASSED, ())
    assert len(verdict.rows) > 15


def test_a_receipt_while_a_step_is_in_flight_is_found() -> None:
    assert found(line("close", "ACCEPTED"), line("certify", "CERTIFIED")) == [
        "execution.certify.in_flight gives REFUSED IN_FLIGHT; found CERTIFIED"
    ]


def test_a_launch_after_a_stop_was_asked_for_is_found() -> None:
    assert found(line("close", "ACCEPTED"), line("launch", "LAUNCHED", 2, generation=1)) == [
        "ticket.launch.stopping gives REFUSED STOPPING; found LAUNCHED"
    ]


def test_a_ticket_that_ends_twice_is_found() -> None:
    settled = line("settle", "SETTLED", 1, ok=True)
    assert found(settled, settled) == ["ticket.settle.recorded gives RECORDED; found SETTLED"]


def test_a_wrong_state_or_generation_is_found() -> None:
    assert found({**line("close", "ACCEPTED"), "state": "STOPPED", "generation": 2}) == [
        "execution.close.closing gives state CLOSING, generation 1; found state STOPPED, generation 2"
    ]


def test_a_whole_life_passes() -> None:
    assert (
        found(
            line("close", "ACCEPTED"),
            line("certify", "REFUSED IN_FLIGHT"),
            {**line("settle", "SETTLED", 1, ok=False), "state": "DONE"},
            {**line("certify", "CERTIFIED"), "state": "STOPPED"},
            line("acknowledge", "FORGOTTEN"),
            line("begin", "STARTED", generation=2),
        )
        == []
    )


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({**BEGUN[0], "key": None}, "key of `begin` must be [tenant, request]"),
        ({**BEGUN[0], "parameters": {}}, "parameters are none; `begin` has generation"),
        ({**BEGUN[0], "parameters": {"generation": 0}}, "generation is 0, below 1"),
        ({**BEGUN[0], "seq": 1}, "unknown key 'seq' in a line of execution"),
        ({**BEGUN[1], "number": 0}, "number is 0, below 1"),
        (line("settle", "SETTLED", 1, ok=1), "ok is 1, neither true nor false"),
    ],
)
def test_a_malformed_line_is_refused(entry: Line, message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        Monitor({}).feed(entry)


def test_a_count_that_drifts_is_found() -> None:
    monitor = Monitor({})
    for entry in BEGUN:
        monitor.feed(entry)
    next(iter(monitor._executions._world.executions.values()))["in_flight"] = 2
    laws = [finding.expected for finding in monitor.feed(line("close", "ACCEPTED"))]
    assert laws == ["in_flight_is_the_count of ('a', 'r1')"]
