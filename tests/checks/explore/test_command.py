"""`kvescrow explore` from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvescrow.checks.cli import main
from kvescrow.checks.explore import bdd


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["explore", *arguments])
    printed = capsys.readouterr()
    code = ended.value.code
    assert isinstance(code, int)
    return code, printed.out, printed.err


def test_the_verdict_is_written_as_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    result = tmp_path / "search.json"
    status, _, _ = run(capsys, "account", "promises", "--engine", "interpreter", "--json", str(result))
    written = json.loads(result.read_text())
    assert status == 0
    assert (written["verdict"], written["states"]) == ("passed", 256 + 193)
    assert [one["engine"] for one in written["instances"]] == ["interpreter", "interpreter"]


def test_the_packed_engine_runs_in_a_process_of_its_own_where_sorting_is_slow(tmp_path: Path) -> None:
    result = tmp_path / "search.json"
    with pytest.raises(SystemExit) as ended:
        main(["explore", "account", "--json", str(result)])
    assert ended.value.code == 0
    assert json.loads(result.read_text())["instances"][0]["engine"] == "packed"


def test_unknown_names_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    status, _, message = run(capsys, "pond", "--engine", "interpreter")
    assert status == 2
    assert "no instance is called 'pond'" in message


def test_a_device_that_is_not_here_is_not_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    status, output, _ = run(capsys, "account", "--device", "cuda")
    assert (status, output.strip()) == (3, "explore: not_run, torch finds no CUDA device")


def test_an_engine_that_is_not_installed_is_not_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bdd, "installed", lambda: False)
    status, output, _ = run(capsys, "lifecycle-xs", "--engine", "bdd")
    assert status == 3
    assert "kvescrow[explore]" in output


def test_an_implementation_is_tried(capsys: pytest.CaptureFixture[str]) -> None:
    status, output, _ = run(capsys, "lifecycle-xs", "--target", "ledger-memory", "--jobs", "1")
    assert status == 0
    assert "explore --target ledger-memory: passed" in output


def test_a_scenario_that_is_none_is_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "scenario.json"
    path.write_text('{"instance": "account"}')
    status, _, message = run(capsys, "--scenario", str(path))
    assert status == 2
    assert "`kvescrow_search` is missing" in message


@pytest.mark.parametrize(
    ("arguments", "mistake"),
    [
        (("--target", "pages", "--symmetric"), "--symmetric has no effect with --target"),
        (("--target", "pages", "--device", "cpu"), "--device has no effect with --target"),
        (("--list", "--json", "-"), "--json has no effect with --list"),
        (("--scenario", "scenario.json", "account"), "INSTANCE has no effect with --scenario"),
        (("account", "--jobs", "2"), "--jobs has no effect without --target"),
        (("--target", "limits"), "of kind capacity, which has no event for each move"),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], mistake: str
) -> None:
    status, output, message = run(capsys, *arguments)
    assert (status, output) == (2, "")
    assert mistake in message
