"""The failures that a check itself can have, and the test that plants each and names the guard that catches it.

| planted | guard | test |
| --- | --- | --- |
| a dead row | proofs: its witness is vacuous | prove/test_planted_errors |
| a dead row | search: it never fired | explore/test_planted_failures |
| a dead row or guard | fuzzing: it was never seen | fuzz/test_runs |
| a hole in what a layer sees | coverage: it is not listed | test_coverage |
| a contradictory assumption | proofs: everything is vacuous | prove/test_planted_errors |
| an empty instance | search: nothing can happen in it | explore/test_planted_failures |
| a truncated journal | journal checking: the terminal line is missing | monitor/test_ledger_journals |
| a journal without events | journal checking: nothing was checked | monitor/test_ledger_journals |
| a guard that is always true | proofs: the rows after it can never fire | prove/test_planted_errors |
| a guard that is always true | search: the rows after it never fired | explore/test_planted_failures |
| a branch of a guard that cannot be | coverage: no view shows it | test_coverage |
| a rule that never fires | proofs: it applies to no event | prove/test_planted_errors |
| a skipped check | verify: not_run is no pass | test_verify |
| a check that says nothing | verify: no result is no pass | test_verify |
| a packed field that overflows | search: it leaves its domain | explore/test_planted_failures |
| records that overflow their bits | search: there are more than it has bits for | explore/test_planted_failures |
| a mutant that takes for ever | mutation: inconclusive, no kill | mutate/test_judge |
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TESTS = {
    "prove/test_planted_errors": (
        "test_a_dead_row_that_no_law_misses_fails_the_report",
        "test_contradictory_assumptions_make_everything_vacuous",
        "test_a_guard_that_is_always_true_starves_the_rows_after_it",
        "test_a_rule_for_no_event_is_not_run",
    ),
    "explore/test_planted_failures": (
        "test_a_dead_row_is_found",
        "test_an_empty_instance_is_refused",
        "test_a_guard_that_is_always_true_is_found_by_the_rows_that_it_starves",
        "test_a_field_that_leaves_its_domain_is_named_with_a_shortest_way",
        "test_a_place_with_more_records_than_bits_is_named",
    ),
    "fuzz/test_runs": ("test_a_run_that_saw_too_little_does_not_pass_and_names_what_it_missed",),
    "monitor/test_ledger_journals": (
        "test_a_journal_without_terminal_line_is_refused",
        "test_a_journal_cut_inside_a_line_is_refused",
        "test_a_journal_without_events_is_refused",
    ),
    "mutate/test_judge": ("test_running_out_of_time_is_no_kill",),
    "test_coverage": (
        "test_a_hole_that_is_not_listed_fails_by_name",
        "test_a_listed_hole_that_is_seen_after_all_fails",
        "test_the_proofs_do_not_see_a_branch_that_cannot_be",
    ),
    "test_verify": (
        "test_a_skipped_check_is_not_run_and_no_pass",
        "test_a_check_without_a_result_is_no_pass",
    ),
}


@pytest.mark.parametrize("module", TESTS)
def test_each_planted_failure_has_its_test(module: str) -> None:
    tree = ast.parse((HERE / f"{module}.py").read_text("utf-8"))
    names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert set(TESTS[module]) <= names


def test_the_table_names_every_module() -> None:
    named = {line.split("|")[3].strip() for line in (__doc__ or "").splitlines() if line.startswith("|")}
    assert named - {"test", "---"} == set(TESTS)
