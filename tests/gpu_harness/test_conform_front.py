"""The command line and the bare script: verdicts, exit statuses, absent hardware, a user's mistakes (CON-3)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from attrs import asdict, evolve

from kvescrow.checks.cli.front import main
from kvescrow.checks.monitor import check_journal
from kvescrow.gpu_harness import front
from kvescrow.gpu_harness import run as script
from kvescrow.gpu_harness.conform import Conduct, ConformFault
from kvescrow.gpu_harness.front import Asked
from kvescrow.gpu_harness.options import OPTIONS
from kvescrow.gpu_harness.sabotage import SABOTAGES
from kvescrow.gpu_harness.streams import StreamFailed
from kvescrow.spec.vocabulary import UserError


def status(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["conform", *arguments])
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.fixture
def no_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.mark.usefixtures("no_cuda")
def test_absent_hardware_is_not_run_with_status_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status("--device", "cuda", "--json", str(tmp_path / "result.json")) == 3
    said = json.loads((tmp_path / "result.json").read_text("utf-8"))
    assert (said["verdict"], said["device"], said["cuda"]) == ("not_run", "cuda", "not_run")
    assert "no CUDA device" in said["reason"]
    assert "conform: not_run" in capsys.readouterr().out


@pytest.mark.usefixtures("no_cuda")
def test_auto_runs_on_the_cpu_and_says_that_cuda_did_not_run() -> None:
    report = front.run(Asked(device="auto", requests=2))
    assert (report.json["device"], report.json["cuda"]) == ("cpu", "not_run")
    assert report.summary.startswith("cuda: not_run")


def test_a_caught_sabotage_has_status_0(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    assert status("--device", "cpu", "--sabotage", "scope-without-tenant", "--seeds", "2", "--json", str(file)) == 0
    said = json.loads(file.read_text("utf-8"))
    assert (said["verdict"], said["sabotage"]) == ("caught", "scope-without-tenant")
    assert [run["seed"] for run in said["sabotages"]] == [1, 2]
    assert [(row["runs"], row["caught"]) for row in said["matrix"]] == [(2, 2)]
    assert all(run["evidence"]["scope_mismatch"] > 0 for run in said["sabotages"])
    assert [run["verdict"] for run in said["unsabotaged"]] == ["passed", "passed"]


def test_a_missed_sabotage_has_status_1(monkeypatch: pytest.MonkeyPatch) -> None:
    harmless = {name: evolve(sabotage, conduct=Conduct) for name, sabotage in SABOTAGES.items()}
    monkeypatch.setattr("kvescrow.gpu_harness.sabotage.results.SABOTAGES", harmless)
    assert status("--device", "cpu", "--sabotage", "scope-without-tenant") == 1


def test_a_vacuous_run_has_status_1() -> None:
    assert status("--device", "cpu", "--requests", "1") == 1


@pytest.mark.parametrize("fault", [ConformFault("they disagree"), StreamFailed("it broke")])
def test_a_run_that_breaks_off_has_failed_and_is_never_caught(
    monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise fault

    monkeypatch.setattr(front, "conform", broken)
    monkeypatch.setattr(front, "unsabotaged", broken)
    for asked in (Asked(device="cpu"), Asked(device="cpu", sabotage="all")):
        report = front.run(asked)
        assert report.json["verdict"] == "failed"
        assert str(fault) in report.json["reason"]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (Asked(device="tpu"), "device: 'tpu' is not known"),
        (Asked(device="cpu:1"), "device: 'cpu:1' is not known"),
        (Asked(device="cpu", dtype="float8"), "dtype: 'float8' is not known"),
        (Asked(device="cpu", seed=-1), "seed: -1 is negative"),
        (Asked(device="cpu", requests=5000), "requests: 5000 asked for"),
        (Asked(device="cpu", shape="huge"), "no model shape is called 'huge'"),
        (Asked(device="cpu", trace="absent.jsonl"), "absent.jsonl: no such file"),
        (Asked(device="cpu", sabotage="leak"), "no sabotage is called 'leak'"),
        (Asked(device="cpu", sabotage="all", journal=Path("j")), "journal: a sabotaged run writes none"),
        (Asked(device="cpu", sabotage="all", requests=5), "sabotages have a workload of their own"),
        (Asked(device="cpu", sabotage="all", seeds=0), "seeds: 0 is too few"),
        (Asked(device="cpu", mode="quick"), "mode: 'quick' is not known"),
        (Asked(device="cpu", weights="gpt"), "weights: 'gpt' is not known"),
        (Asked(device="cpu", sabotage="all", mode="fast"), "mode: sabotages are shown by exact arithmetic"),
        (Asked(device="cpu", sabotage="all", minutes=1.0), "minutes: a soak has neither sabotages nor a journal"),
        (Asked(device="cpu", sabotage="all", own_process=True), "own process: sabotage needs memory that it can reach"),
        (Asked(device="cpu", seeds=2), "seeds: only sabotages are run under several"),
    ],
)
def test_a_user_s_mistake_is_said_with_its_remedy(asked: Asked, message: str) -> None:
    with pytest.raises(UserError) as mistake:
        front.run(asked)
    assert message in str(mistake.value)


def test_a_soak_says_what_it_ran_and_ends_in_time() -> None:
    report = front.run(Asked(device="cpu", requests=8, minutes=0.0))
    assert report.json["soak"]["runs"] == 1
    assert report.json["soak"]["requests"] == report.json["requests"] == 10
    assert report.summary.startswith("soak: 1 run(s), 10 requests, ")


def test_every_worker_of_a_run_has_a_journal_that_the_tables_allow(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    report = front.run(Asked(device="cpu", requests=40, journal=file))
    assert report.json["verdict"] == "passed", report.summary
    assert (report.json["workers_killed"], report.json["epochs"]) == (2, 1)
    assert report.json["grown"] > 0 and report.json["lost_in_flight"] > 0
    files = [file, *(tmp_path / f"run.jsonl.{number}" for number in (2, 3))]
    verdicts = [check_journal(each) for each in files]
    assert [verdict.outcome.value for verdict in verdicts] == ["passed"] * 3
    assert sum(verdict.events for verdict in verdicts) == report.json["journal_events"]
    rows = {row.removeprefix("reservation.") for row in verdicts[0].rows}
    # A dead worker's executions are suspect when their leases run out, and only the proof of their own fence ends them.
    assert {"extend.grant", "sweep.running_lapsed", "fence.foreign_owner", "fence.failed"} <= rows
    assert report.json["suspected"] > 0
    assert report.json["length_divisor"] == 16


def test_whatever_can_be_asked_for_is_an_option_of_both_command_lines(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    defaults = Asked()
    assert {each.name: False if each.kind is bool else each.default for each in OPTIONS} == asdict(defaults)
    heard: list[Asked] = []

    def hear(asked: Asked, *_: object) -> front.Report:
        heard.append(asked)
        return front.Report({"verdict": "passed"}, "")

    monkeypatch.setattr(front, "run", hear)
    monkeypatch.setattr(script, "run", hear)
    values: dict[type, str] = {str: "text", int: "7", float: "2.5", Path: str(tmp_path / "new")}
    for option in OPTIONS:
        given = [option.flag] if option.kind is bool else [option.flag, values[option.kind]]
        assert status(*given) == script.main(given) == 0
        by_verb, by_script = heard[-2:]
        changed = evolve(defaults, **{option.name: True if option.kind is bool else option.kind(values[option.kind])})
        assert by_verb == by_script == changed != defaults


BARE = """
import importlib.util, json, runpy, sys
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "kvescrow" else find_spec(name, *rest)
sys.argv[0] = "run"
try:
    runpy.run_path("gpu_harness/run.py", run_name="__main__")
finally:
    print("loaded:", [name for name in ("click", "rich", "z3", "hypothesis") if name in sys.modules])
"""


def test_the_script_runs_from_a_bare_checkout_without_click_rich_and_z3(repository: Path, tmp_path: Path) -> None:
    arguments = ["--device", "cpu", "--sabotage", "scope-without-tenant", "--out", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-c", BARE, *arguments], cwd=repository, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "conform --sabotage scope-without-tenant: caught" in done.stdout
    assert "loaded: []" in done.stdout
    said = json.loads((tmp_path / "sabotage-scope-without-tenant.tiny.float32.json").read_text("utf-8"))
    assert said["verdict"] == "caught"
