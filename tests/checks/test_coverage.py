"""What each layer sees of the tables, and the gate over it: holes and lists that do not fit each other are found."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from attrs import evolve

from kvescrow.checks.cli import main
from kvescrow.checks.coverage import Layer, Seen, as_listed, judged
from kvescrow.checks.coverage.driven import fuzzed, shown_by_vectors
from kvescrow.checks.coverage.layers import all_goals, seen_by
from kvescrow.checks.coverage.page import coverage_page
from kvescrow.checks.coverage.proved import proved
from kvescrow.checks.coverage.searched import searched
from kvescrow.checks.explore import instance_called
from kvescrow.checks.explore.interpreter import Oracle, State
from kvescrow.checks.fuzz.coverage import Coverage
from kvescrow.checks.fuzz.profiles import PROFILES
from kvescrow.gpu_harness.conform import ConformFault, Verdict
from kvescrow.spec.tables.account import ACCOUNT
from kvescrow.spec.tables.execution import EXECUTION, TICKET
from kvescrow.spec.tables.promise import PROMISE
from kvescrow.spec.tables.promise import event as promise_event
from kvescrow.spec.tables.registry import ALL_TABLES
from kvescrow.spec.vocabulary import UserError

NAMES = frozenset(goal.name for goal in all_goals([PROMISE]))
GRANT = "promise.grow.grant"
CAPACITY = "promise.grow.pool_capacity without `(pool.free + pool.cached) < (pool.promised + event.units)`"


def saw(*missing: str, layer: Layer = Layer.FUZZ) -> Seen:
    assert NAMES.issuperset(missing)
    return Seen(layer, NAMES - set(missing), 0.0)


# --- the gate ---------------------------------------------------------------------------------------------------------


def test_what_is_all_seen_passes() -> None:
    report = judged([saw()], [PROMISE], {})
    assert (report.verdict, report.problems) == ("passed", ())


def test_a_hole_that_is_not_listed_fails_by_name() -> None:
    report = judged([saw(GRANT, CAPACITY)], [PROMISE], {})
    assert report.verdict == "failed"
    assert {problem.partition(" was never seen")[0] for problem in report.problems} == {
        f"fuzz: {GRANT}",
        f"fuzz: {CAPACITY}",
    }


def test_a_listed_hole_passes_with_its_reason_and_for_its_layer_alone() -> None:
    listed = {Layer.FUZZ: {"it is planted": [GRANT, "promise.grow.pool_capacity without *"]}}
    report = judged([saw(GRANT, CAPACITY), saw(GRANT, layer=Layer.EXPLORE)], [PROMISE], listed)
    assert dict(report.layers[Layer.FUZZ].holes) == {GRANT: "it is planted", CAPACITY: "it is planted"}
    assert report.problems == (f"explore: {GRANT} was never seen: have it seen, or list it with the reason",)


def test_a_listed_hole_that_is_seen_after_all_fails() -> None:
    report = judged([saw()], [PROMISE], {Layer.FUZZ: {"it is planted": [GRANT]}})
    assert report.verdict == "failed"
    assert "promise.grow.grant is listed (it is planted), but was seen" in report.problems[0]


def test_one_name_of_several_that_is_seen_after_all_fails() -> None:
    missing = {name for name in NAMES if name.startswith("promise.grow.")} - {GRANT}
    report = judged([saw(*missing)], [PROMISE], {Layer.FUZZ: {"it is planted": ["promise.grow.*"]}})
    assert [problem.partition(" is listed")[0] for problem in report.problems] == [f"fuzz: {GRANT}"]


def test_a_listed_name_that_nothing_has_fails() -> None:
    report = judged([saw()], [PROMISE], {Layer.FUZZ: {"it is planted": ["promise.shrink.*"]}})
    assert "promise.shrink.* is listed (it is planted), but nothing is called so" in report.problems[0]


def test_a_table_that_a_layer_never_looks_at_is_one_line() -> None:
    report = judged([saw()], [PROMISE, ACCOUNT], {})
    assert [problem.partition(":")[2].strip() for problem in report.problems] == [
        "nothing of table account was ever seen: have it seen, or list account.* with the reason"
    ]


def test_a_layer_that_was_not_run_does_not_pass() -> None:
    report = judged([saw(), Seen(Layer.HARNESS, frozenset(), 0.0, "no device")], [PROMISE], {})
    assert report.verdict == "not_run"
    assert report.to_json()["layers"]["harness"]["not_run"] == "no device"
    assert judged([], [PROMISE], {}).verdict == "not_run"


def test_the_page_has_every_row_with_what_each_layer_sees_of_it() -> None:
    page = coverage_page(judged([saw(GRANT)], [PROMISE], {Layer.FUZZ: {"it is planted": [GRANT]}}))
    assert all(f"`{row.id}`" in page for row in PROMISE.rows)
    assert "| it is planted | 1 |" in page
    assert "| `promise.grow.grant` | - |" in page


def test_the_list_alone_says_what_a_run_that_passes_has_seen() -> None:
    listed = {Layer.FUZZ: {"it is planted": [GRANT]}, Layer.PROVE: {"likewise": ["promise.grow.*"]}}
    said = as_listed([PROMISE], listed)
    assert said.verdict == "passed"
    assert list(said.layers) == list(Layer)
    assert said.layers[Layer.FUZZ].seen.goals == NAMES - {GRANT}
    assert said.layers[Layer.PROVE].seen.goals == {name for name in NAMES if not name.startswith("promise.grow.")}
    run = judged([evolve(said.layers[Layer.FUZZ].seen, seconds=3.0)], [PROMISE], listed)
    assert run.layers[Layer.FUZZ].holes == said.layers[Layer.FUZZ].holes


# --- the layers -------------------------------------------------------------------------------------------------------


def test_the_proofs_see_every_row_and_branch_of_a_sound_table() -> None:
    assert proved([PROMISE]) == NAMES


def test_the_proofs_do_not_see_a_branch_that_cannot_be() -> None:
    row = PROMISE.row_by_id["promise.admit.malformed"]
    idle = evolve(row, when=(promise_event.units <= 0) | (promise_event.units < 0))
    table = evolve(PROMISE, rows=tuple(idle if each is row else each for each in PROMISE.rows))
    missing = {goal.name for goal in all_goals([table])} - proved([table])
    assert missing == {"promise.admit.malformed for `event.units < 0` alone"}


@pytest.mark.parametrize(("name", "tables"), [("account", [ACCOUNT]), ("executions", [EXECUTION, TICKET])])
def test_the_search_sees_what_the_interpreter_sees_in_every_state(name: str, tables: list[object]) -> None:
    instance = instance_called(name)
    oracle, plain = Oracle(instance), Coverage(instance.tables)
    known: set[State] = {oracle.first}
    waiting = [oracle.first]
    while waiting:
        records = oracle.records(waiting.pop())
        for move in instance.moves:
            seen = oracle.before(records, move)
            if seen is not None:
                plain.watch(move.table.name, seen[0], move.event, seen[1])
                after = oracle.step(records, move)[1]
                if after is not None and after not in known:
                    known.add(after)
                    waiting.append(after)
    assert [table.name for table in instance.tables] == [table.name for table in tables]  # type: ignore[attr-defined]
    found = seen_by([searched([instance], instance.tables)])
    assert found == seen_by([plain])
    assert found


def test_the_search_does_not_see_what_its_instances_leave_out() -> None:
    instance = instance_called("promises")
    without = evolve(instance, moves=tuple(move for move in instance.moves if move.event != "forget"))
    missing = seen_by([searched([instance], [PROMISE])]) - seen_by([searched([without], [PROMISE])])
    assert {name.split(".")[1] for name in missing} == {"forget"}


def test_a_vector_that_fails_is_told(repository: Path) -> None:
    with pytest.raises(UserError, match="scenario planted fails"):
        shown_by_vectors("tests.checks.test_coverage:failing", repository, ALL_TABLES)


def test_the_fuzzer_sees_its_target_and_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    short = evolve(PROFILES["pr"], examples=5, most_rounds=1)
    monkeypatch.setattr("kvescrow.checks.coverage.driven.PROFILES", {"pr": short})
    told: list[str] = []
    seen = fuzzed(told.append, ["release"])
    assert "release.grant.admitted" in seen
    assert {name.split(".")[0] for name in seen} == {"release"}
    assert told[-1].startswith("release ")


def failing() -> list[object]:
    """A scenario that fails, in the form that mutation and coverage take."""
    from kvescrow.checks.mutate import Scenario

    def fail(*_: object) -> None:
        raise AssertionError("planted")

    return [Scenario("planted", fail)]


# --- the command ------------------------------------------------------------------------------------------------------


def test_one_layer_is_asked_and_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    result = tmp_path / "coverage.json"
    with pytest.raises(SystemExit) as ended:
        main(["coverage", "--layer", "prove", "--json", str(result)])
    assert ended.value.code == 0
    assert "coverage of prove alone: passed" in capsys.readouterr().out
    written = json.loads(result.read_text())
    assert list(written["layers"]) == ["prove"]
    assert written["goals"][GRANT] == ["prove"]


def breaks_off(*_: object) -> Iterator[object]:
    raise ConformFault("they disagree")


def is_refuted(*_: object) -> Iterator[object]:
    yield SimpleNamespace(name="planted", result=SimpleNamespace(verdict=Verdict.REFUTED, summary="a page was wrong"))


@pytest.mark.parametrize(
    ("courses", "why"),
    [
        (breaks_off, "a run broke off (ConformFault: they disagree)"),
        (is_refuted, "the run planted did not pass:\na page was wrong"),
    ],
)
def test_a_run_of_the_harness_that_does_not_pass_is_no_coverage(
    courses: Callable[..., object], why: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("kvescrow.gpu_harness.conform.courses.courses", courses)
    with pytest.raises(SystemExit) as ended:
        main(["coverage", "--layer", "harness"])
    assert ended.value.code == 3
    assert f"harness was not run: {why}" in capsys.readouterr().out


# --- the gate ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layer", [layer.value for layer in Layer])
def test_a_layer_sees_all_that_is_not_listed_and_nothing_that_is(
    layer: str, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["coverage", "--layer", layer, "--root", str(repository)])
    assert ended.value.code == 0, capsys.readouterr().out
