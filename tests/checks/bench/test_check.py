"""The measurement of the checks: the same system on both sides, peers that are absent or stopped, one core."""

from __future__ import annotations

import os

import pytest

from kvescrow.checks.agreement.answers import Answer, Verdict
from kvescrow.checks.agreement.checkers import missing_spin
from kvescrow.checks.agreement.commands import Commands
from kvescrow.checks.bench import search
from kvescrow.checks.bench.bare_machine import run_bare_machine
from kvescrow.checks.bench.search import one_core, search_rows
from kvescrow.checks.explore.catalogue import instance_called
from kvescrow.checks.explore.run import explore
from kvescrow.checks.targets.registry import subject_called
from kvescrow.spec.vocabulary import UserError

NAME = "executions"
STATES = explore(instance_called(NAME)).states


def answering(answer: Answer) -> dict[str, search.Peer]:
    def peer(system: Commands, states: int, bound: float) -> Answer:
        assert system.commands and states == STATES and bound == 7.0
        return answer

    return {"peer": peer}


def test_a_peer_that_counts_the_same_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "PEERS", answering(Answer("peer", Verdict.PASSED, STATES, 1, 2.0)))
    (row,) = search_rows(NAME, ("packed",), 7.0)
    assert (row.peer, row.peer_name, row.unit) == (STATES / 2, "peer", "states/s")
    assert row.ours > 0 and f"{STATES:,} states" in row.name


def test_a_peer_that_was_stopped_is_marked_with_its_rate_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "PEERS", answering(Answer("peer", Verdict.STOPPED, 50, None, 2.0, why="bound")))
    (row,) = search_rows(NAME, ("packed",), 7.0)
    assert (row.peer, row.peer_name) == (25.0, "peer, stopped after 50 states")


@pytest.mark.parametrize("verdict", [Verdict.NOT_RUN, Verdict.FAILED])
def test_a_peer_without_a_count_has_no_figure_but_a_reason(monkeypatch: pytest.MonkeyPatch, verdict: Verdict) -> None:
    monkeypatch.setattr(search, "PEERS", answering(Answer("peer", verdict, why="program x is not installed")))
    (row,) = search_rows(NAME, ("packed",), 7.0)
    assert (row.peer, row.ratio, row.peer_name) == (None, None, "peer: program x is not installed")


def test_another_count_is_another_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "PEERS", answering(Answer("peer", Verdict.PASSED, STATES + 1, 1, 2.0)))
    with pytest.raises(RuntimeError, match=f"peer counts {STATES + 1} states, the search {STATES}"):
        search_rows(NAME, ("packed",), 7.0)


def test_an_engine_that_does_not_take_the_instance_says_so() -> None:
    with pytest.raises(UserError, match="dense"):
        search_rows(NAME, ("dense",), 7.0)


def test_the_real_peers_are_asked() -> None:
    rows = {row.peer_name.split(":")[0].split(",")[0]: row for row in search_rows(NAME, ("packed",), 120.0)}
    assert set(rows) == {"SPIN depth-first", "SPIN breadth-first", "rumur", "TLC"}
    assert (rows["SPIN depth-first"].peer is None) is bool(missing_spin())


def test_one_core_is_given_back() -> None:
    before = os.sched_getaffinity(0)
    with one_core():
        assert len(os.sched_getaffinity(0)) == 1
    assert os.sched_getaffinity(0) == before


def test_the_bare_machine_takes_real_steps() -> None:
    tally = run_bare_machine(subject_called("ledger-memory"), examples=5, steps=10, number=1)
    assert 0 < tally.steps <= 50
    assert {row.split(".")[0] for row in tally.rows} <= {"reservation", "account"}
    assert any(row.startswith("reservation.reserve") for row in tally.rows)
