"""Every obligation of every table is proved, and the report says exactly what was done (FRM-2)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache

import pytest

from kvescrow.checks.prove import Method, ProofReport, Verdict, count_obligations, prove
from kvescrow.spec.language.compiler import CompiledTable
from kvescrow.spec.language.interpreter import fire
from kvescrow.spec.language.table import Table
from kvescrow.spec.tables.execution import TICKET
from kvescrow.spec.tables.registry import ALL_TABLES


@cache
def proof_of(table: Table) -> ProofReport:
    """The proof of one table, which several tests look at."""
    return prove([table])


@pytest.mark.parametrize("table", ALL_TABLES, ids=lambda table: table.name)
def test_every_obligation_is_proved(table: Table) -> None:
    report = proof_of(table)
    assert not report.failures, "\n".join(map(str, report.failures))
    assert report.passed
    assert report.verdict == "passed"
    assert len(report.results) == count_obligations(table)


@pytest.mark.parametrize("table", ALL_TABLES, ids=lambda table: table.name)
def test_nothing_is_left_out(table: Table) -> None:
    found = {(result.row, result.invariant, result.state) for result in proof_of(table).results}
    wanted = {("initial", "witness", None)}
    wanted |= {("initial", invariant.name, None) for invariant in table.invariants}
    wanted |= {
        (f"{state.name}/{event.name}", "totality", state.name) for state in table.state_type for event in table.events
    }
    wanted |= {("*", promise.name, None) for promise in table.non_interference}
    for row in table.rows:
        wanted |= {(row.id, "witness", state.name) for state in row.sources}
        wanted |= {(row.id, invariant.name, None) for invariant in table.invariants}
        wanted |= {(row.id, a.name, None) for a in table.assumptions if a.events is None}
        wanted |= {(row.id, r.name, None) for r in table.rules if r.events is None or row.event in r.events}
        if row.reply.decision.changes_nothing:
            wanted.add((row.id, "changes_nothing", None))
    assert found == wanted


@pytest.mark.parametrize("table", ALL_TABLES, ids=lambda table: table.name)
def test_interpreter_and_compiler_fire_each_row_on_its_witness(table: Table) -> None:
    compiled = CompiledTable(table)
    witnesses = [result for result in proof_of(table).results if result.witness is not None]
    assert {(result.row, result.state) for result in witnesses} == {
        (row.id, state.name) for row in table.rows for state in row.sources
    }
    for result in witnesses:
        case = result.witness
        assert case is not None and case.event is not None
        interpreted = fire(table, case.view, case.event, case.parameters)
        assert interpreted.row.id == result.row
        assert case.view[table.moves.name]["state"] is table.state_type[result.state or ""]
        fired = compiled.fire(case.view, case.event, case.parameters)
        assert (fired.row, fired.changes) == (interpreted.row, interpreted.changes)


def test_a_frame_is_used_only_where_the_row_writes_nothing_that_is_read() -> None:
    results = {(result.row, result.invariant): result for result in prove([TICKET]).results}
    assert results["ticket.settle.done", "in_flight_is_the_count"].method is Method.SOLVER
    assert results["ticket.settle.done", "executions_are_sound"].method is Method.FRAME
    assert results["ticket.settle.recorded", "changes_nothing"].method is Method.STRUCTURE


def test_no_table_is_no_pass() -> None:
    report = prove([])
    assert not report.passed
    assert report.to_json() == {"verdict": "not_run", "obligations": 0, "seconds": 0.0, "results": []}


def test_the_report_is_plain_json() -> None:
    written = json.loads(json.dumps(prove([TICKET]).to_json()))
    assert written["verdict"] == "passed"
    assert written["obligations"] == len(written["results"])
    first = written["results"][0]
    assert first.pop("seconds") >= 0
    assert first == {
        "table": "ticket",
        "row": "initial",
        "invariant": "witness",
        "state": None,
        "verdict": "proved",
        "method": "solver",
    }


def test_progress_is_told_after_each_obligation() -> None:
    told: list[tuple[int, int, str]] = []
    report = prove(ALL_TABLES[1:3], on_progress=lambda *step: told.append(step))
    total = len(report.results)
    assert [done for done, _, _ in told] == list(range(1, total + 1))
    assert {of for _, of, _ in told} == {total}
    assert [name for _, _, name in told] == [result.table for result in report.results]


def test_a_question_beyond_its_effort_is_unknown_and_no_pass() -> None:
    report = prove([TICKET], effort=1)
    assert report.verdict == "unknown"
    witnesses = {result.verdict for result in report.results if result.invariant == "witness"}
    assert witnesses == {Verdict.UNKNOWN}
    assert {result.verdict for result in report.results if result.method is Method.FRAME} == {Verdict.PROVED}
    assert all(result.detail for result in report.failures)


PROGRAM = """
import json
from attrs import evolve
from kvescrow.checks.prove import prove, render_counterexample
from kvescrow.spec.tables.execution import TICKET as table

rows = tuple(evolve(row, do=()) if row.id == "ticket.settle.done" else row for row in table.rows)
report = prove([table, evolve(table, rows=rows)])
for result in report.results:
    print(json.dumps(result.to_json() | {"seconds": 0}))
    if result.counterexample:
        print(render_counterexample(result.counterexample))
"""


def test_two_hash_seeds_give_the_same_report() -> None:
    def run(seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        return subprocess.run(
            [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True
        ).stdout

    first = run("1")
    assert '"refuted"' in first
    assert first == run("2")
