"""What checkers print is read as it is meant, and a difference in any count or verdict fails an agreement."""

from __future__ import annotations

import pytest
from attrs import evolve

from kvescrow.checks.agreement.answers import Answer, Verdict, read_rumur, read_spin, read_tlc
from kvescrow.checks.agreement.run import Agreement
from kvescrow.checks.explore.catalogue import instance_called
from kvescrow.checks.explore.run import explore

OURS = explore(instance_called("executions"))
EQUAL = Answer("TLC", Verdict.PASSED, OURS.states, OURS.transitions)


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (evolve(EQUAL, states=OURS.states - 1), f"counts {OURS.states - 1} states, the search {OURS.states}"),
        (
            evolve(EQUAL, transitions=OURS.transitions + 1),
            f"counts {OURS.transitions + 1} transitions, the search {OURS.transitions}",
        ),
        (evolve(EQUAL, verdict=Verdict.REFUTED, law="a.b"), "says refuted a.b, the search says passed"),
        (evolve(EQUAL, verdict=Verdict.STOPPED, why="bound"), "did not come to an end: bound"),
        (evolve(EQUAL, verdict=Verdict.FAILED, why="syntax"), "did not come to an end: syntax"),
    ],
)
def test_a_difference_fails(answer: Answer, problem: str) -> None:
    found = Agreement("executions", OURS, (EQUAL, answer))
    assert found.problems == (f"executions: TLC {problem}",)
    assert found.verdict == "failed"
    assert found.to_json()["problems"] == list(found.problems)


def test_an_error_that_neither_side_finds_fails() -> None:
    found = Agreement("executions", OURS, (EQUAL,), planted="a row never fires")
    assert found.verdict == "failed"
    assert found.problems == ("executions (a row never fires): the search missed the error",)


def test_equal_counts_pass_and_nothing_compared_is_not_run() -> None:
    assert Agreement("executions", OURS, (EQUAL, evolve(EQUAL, transitions=None))).verdict == "passed"
    absent = Answer("TLC", Verdict.NOT_RUN, why="program java is not installed")
    assert Agreement("executions", OURS, (absent,)).verdict == "not_run"


def test_progress_of_a_stopped_tlc_is_its_last_count() -> None:
    text = (
        "Starting... (2026-01-01 00:00:00)\n"
        "Progress(6) at 2026-01-01 00:00:00: 2,094 states generated (2 s/min), 80 distinct states found (80 ds/min)\n"
        "Progress(9) at 2026-01-01 00:01:00: 12,094 states generated (9 s/min), 1,080 distinct states found, 39 left\n"
    )
    answer = read_tlc(text, 75.0, {}, ended=False)
    assert (answer.verdict, answer.states, answer.transitions) == (Verdict.STOPPED, 1_080, 12_093)
    assert answer.rate == pytest.approx(18)


def test_tlc_names_the_step_rule_that_a_state_carries() -> None:
    text = (
        "Error: Invariant DomainsAndStepRules is violated.\n"
        'State 1: <Initial predicate>\n/\\ broken = ""\n\nState 2: <Step1>\n/\\ broken = "a.rule"\n/\\ x = 1\n\n'
        "3 states generated, 2 distinct states found, 1 states left on queue.\n"
    )
    answer = read_tlc(text, 1.0, {}, ended=True)
    assert (answer.verdict, answer.law, answer.steps) == (Verdict.REFUTED, "a.rule", 1)


def test_a_spin_search_that_was_cut_short_is_not_passed() -> None:
    full = "depth reached 9, errors: 0\n       12 states, stored\n       30 transitions (= stored+matched)\n"
    assert read_spin(full, 1.0, ended=True) == Answer("SPIN", Verdict.PASSED, 12, 29, 1.0)
    short = f"error: max search depth too small\n{full}"
    assert read_spin(short, 1.0, ended=True).verdict is Verdict.STOPPED
    running = "Depth=  10 States=    1e+06 Transitions= 1.01e+07 Memory=   1.0 t=  1.1 R=   9e+05\n"
    assert read_spin(running, 2.0, ended=False).states == 1_000_000
    assert read_spin("gcc: lost", 1.0, ended=True).verdict is Verdict.FAILED


def test_rumur_names_the_invariant() -> None:
    good = "\tNo error found.\n\nState Space Explored:\n\n\t12 states, 30 rules fired in 0s.\n"
    assert read_rumur(good, 1.0, ended=True) == Answer("rumur", Verdict.PASSED, 12, 30, 1.0)
    bad = 'invariant "3 ticket.law" failed\n\t1 error(s) found.\n\t12 states, 30 rules fired in 0s.\n'
    assert read_rumur(bad, 1.0, ended=True).law == "ticket.law"
    assert read_rumur("\t 7 states explored in 2s, with 20 rules fired", 2.0, ended=False).states == 7
