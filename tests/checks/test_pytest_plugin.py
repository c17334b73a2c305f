"""The plug-in as a user has it: an option, a decorator and a fixture, whose failures say what to do."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path
from xml.etree import ElementTree

import pytest
from attrs import evolve

from kvescrow.checks.cli.front import main
from kvescrow.checks.fuzz.profiles import PROFILES
from kvescrow.checks.new_target import write_target
from kvescrow.spec.vocabulary import UserError

pytest_plugins = "pytester"

ENOUGH = evolve(PROFILES["pr"], least_rounds=1)
LOADED = () if entry_points(group="pytest11", name="kvescrow") else ("-p", "kvescrow.checks.pytest_plugin")
"""An installed wheel brings its plug-in along; a checkout has to name it."""

PUBLISH_AT_LAUNCH = """
from kvescrow_target import ToyTarget, subject as right
from attrs import evolve

class Early(ToyTarget):
    def launch(self, request, tokens):
        super().launch(request, tokens)
        known = self.engine.requests[request]
        known.computed += tokens
        self.engine._publish(known)
        known.computed -= tokens

def subject(): return evolve(right(), open=Early, engine="toy engine 1.1")
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    write_target(pytester.path)
    pytester.makepyfile(early=PUBLISH_AT_LAUNCH)
    monkeypatch.setitem(PROFILES, "pr", ENOUGH)  # type: ignore[arg-type]
    return pytester


def run(project: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return project.runpytest_inprocess(*LOADED, "-p", "no:cacheprovider", *arguments)


def test_a_new_target_passes_its_test(project: pytest.Pytester) -> None:
    result = run(project, "--junit-xml=report.xml")
    result.assert_outcomes(passed=1)
    (case,) = ElementTree.parse(project.path / "report.xml").iter("testcase")
    properties = {one.get("name"): one.get("value") for one in case.iter("property")}
    assert case.get("name") == "test_the_engine_keeps_its_laws"
    assert properties["computed"] == "passed"
    assert properties["kvescrow_seed"] == "20261129"


def test_a_named_target_is_a_test_that_tells_the_law_and_the_steps(project: pytest.Pytester) -> None:
    result = run(
        project, "--kvescrow-target=early:subject", "--kvescrow-seed=3", "--kvescrow-findings=found", "-k", "early"
    )
    result.assert_outcomes(failed=1, deselected=1)
    result.stdout.fnmatch_lines(
        [
            "*Law broken: computed: *",
            "*Least steps:*",
            "*0. open ManagerSetup(*",
            "*Repeat: kvescrow fuzz --target early:subject --seed 3*",
            "FAILED *kvescrow?early:subject?*",
        ]
    )
    found = (project.path / "found" / "early-subject-1-computed.md").read_text()
    assert "toy engine 1.1, new." in found


def test_the_decorator_takes_fixtures_and_the_fixture_returns_the_record(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_more="""
        import pytest
        from kvescrow.checks.pytest_plugin import conforms

        @pytest.fixture
        def mine():
            import early
            return early.subject()

        @conforms(seed=5)
        def test_decorated(mine):
            return mine

        @conforms()
        def test_by_name():
            return "kvescrow_target:subject"

        def test_in_the_middle(kvescrow_check, mine):
            with pytest.raises(pytest.fail.Exception, match="Law broken: computed"):
                kvescrow_check(mine, seed=7)
            result = kvescrow_check("kvescrow_target:subject")
            assert result.verdict == "passed" and result.laws["once"] == "passed"
        """
    )
    result = run(project, "test_more.py")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        [
            "*Law broken: computed*",
            "Repeat: pytest test_more.py::test_decorated --kvescrow-seed 5",
            "FAILED test_more.py::test_decorated*",
        ]
    )


def test_what_cannot_be_opened_here_fails_with_the_remedy(project: pytest.Pytester) -> None:
    project.makepyfile(
        absent="""
        from attrs import evolve
        from kvescrow.spec.vocabulary import UserError
        from kvescrow_target import subject as right

        def opened(setup): raise UserError("no engine: install it")
        def subject(): return evolve(right(), open=opened)
        """
    )
    result = run(project, "--kvescrow-target=absent:subject", "-k", "absent", "-rs")
    result.assert_outcomes(failed=1, deselected=1)
    result.stdout.fnmatch_lines(["*not_run: no engine: install it*"])


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("--kvescrow-target=no_such_module:subject", "*cannot import no_such_module*"),
        ("--kvescrow-target=kvescrow_target:object", "*has no function object*"),
        ("--kvescrow-profile=forever", "*choose one of pr, minute, soak, hour*"),
    ],
)
def test_a_mistake_is_told(project: pytest.Pytester, option: str, told: str) -> None:
    result = run(project, option)
    assert result.ret != 0
    lines = result.stderr if "target" in option else result.stdout
    lines.fnmatch_lines([told])


def test_a_new_ledger_passes_its_test(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PROFILES, "pr", ENOUGH)  # type: ignore[arg-type]
    with pytest.raises(SystemExit) as ended:
        main(["new-target", "--ledger", str(pytester.path)])
    assert ended.value.code == 0
    assert (pytester.path / "kvescrow.yml").exists()
    run(pytester).assert_outcomes(passed=1)


def test_a_new_target_is_not_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "mine"
    with pytest.raises(SystemExit) as ended:
        main(["new-target", str(folder)])
    assert ended.value.code == 0
    assert "next: cd" in capsys.readouterr().out
    (folder / "toy_engine.py").write_text("my own work")
    with pytest.raises(UserError, match="is there already"):
        write_target(folder)
    assert (folder / "toy_engine.py").read_text() == "my own work"
