"""`kvescrow verify` passes only where each of its checks has run and passed: one that is skipped is never a pass."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest

from kvescrow.checks.cli import main, verify
from kvescrow.checks.cli.front import kvescrow
from kvescrow.checks.cli.verify import CHECKS, Check

SEARCH = Check("explore", ("explore", "account", "--engine", "interpreter"), ("states",))
SKIPPED = Check("conform", ("conform", "--device", "cuda:99"), ())
SILENT = Check("help", ("explore", "--help"), ())
WRONG = Check("typo", ("explore", "pond", "--engine", "interpreter"), ())


def run(monkeypatch: pytest.MonkeyPatch, folder: Path, *checks: Check) -> tuple[object, dict[str, str]]:
    monkeypatch.setattr(verify, "CHECKS", checks)
    file = folder / "verdict.json"
    with pytest.raises(SystemExit) as ended:
        main(["verify", "--json", str(file)])
    written = json.loads(file.read_text())
    assert (written["verdict"] == "passed") == (ended.value.code == 0)
    return ended.value.code, {check["name"]: check["verdict"] for check in written["checks"]}


def test_checks_that_pass_are_a_pass(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert run(monkeypatch, tmp_path, SEARCH) == (0, {"explore": "passed"})


def test_a_skipped_check_is_not_run_and_no_pass(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert run(monkeypatch, tmp_path, SEARCH, SKIPPED) == (1, {"explore": "passed", "conform": "not_run"})


@pytest.mark.parametrize(("check", "verdict"), [(SILENT, "died with 0"), (WRONG, "bad input")])
def test_a_check_without_a_result_is_no_pass(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, check: Check, verdict: str
) -> None:
    assert run(monkeypatch, tmp_path, check) == (1, {check.name: verdict})


def test_every_check_is_a_command_that_exists() -> None:
    for check in CHECKS:
        verb, *options = check.arguments
        command = kvescrow.get_command(click.Context(kvescrow), verb)  # type: ignore[attr-defined]  # a group
        assert command is not None, check.name
        command.make_context(verb, options)


def test_a_store_behind_a_server_is_checked_where_it_can_be() -> None:
    assert [check.name for check in verify._with_server("ledger-valkey", "json")] == ["fuzz ledger-valkey"]
    assert verify._with_server("ledger-valkey", "json", "no_such_wheel") == ()
    # The development environment has both, so here neither may be left out.
    assert {"fuzz ledger-postgres", "fuzz ledger-valkey"} <= {check.name for check in CHECKS}
