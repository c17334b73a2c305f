"""Installing says first what it costs, and installs what is missing; what is not there is not_run by name."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from kvescrow.checks.cli import targets as verb
from kvescrow.checks.cli.front import main
from kvescrow.checks.targets import installing
from kvescrow.checks.targets.installing import PACKAGES, install, missing
from kvescrow.checks.targets.released import FOLDER
from kvescrow.checks.targets.sglang_release import SGLANG
from kvescrow.checks.targets.vllm_release import VLLM
from kvescrow.spec.vocabulary import UserError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(FOLDER, str(tmp_path / "engines"))
    return tmp_path / "engines"


def put(folder: Path, name: str, version: str) -> None:
    record = folder / f"{name}-{version}.dist-info"
    record.mkdir(parents=True)
    (record / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def test_only_what_is_missing_is_installed_and_its_size_is_said_first(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installing.shutil, "disk_usage", lambda path: SimpleNamespace(free=10**12))
    for package in PACKAGES[1:]:
        put(folder, package.name, package.version)
    put(folder, "vllm", "0.32.0")
    said: list[str] = []
    commands: list[list[str]] = []

    def run(command: list[str], **_: object) -> SimpleNamespace:
        assert said[0] == "to download: vllm 0.33.0, 336.4 MB"
        commands.append(command)
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(subprocess, "run", run)
    install(said.append)
    (command,) = commands
    assert command[-3:] == ["--target", str(folder), "vllm==0.33.0"]
    assert "--no-deps" in command
    put(folder, "vllm", "0.33.0")
    assert missing(folder) == []
    install(said.append)
    assert said[-1] == f"all there: {folder}"


def test_a_full_disk_and_a_failing_pip_are_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: SimpleNamespace(returncode=1))
    monkeypatch.setattr(installing.shutil, "disk_usage", lambda path: SimpleNamespace(free=10**12))
    with pytest.raises(UserError, match=r"pip could not install vllm==0\.33\.0"):
        install(lambda line: None)
    monkeypatch.setattr(installing.shutil, "disk_usage", lambda path: SimpleNamespace(free=10**9))
    with pytest.raises(UserError, match="1000 MB are free, 2226 MB are needed"):
        install(lambda line: None)


def test_what_is_installed_is_what_the_adapters_drive() -> None:
    pinned = {package.name: package.version for package in PACKAGES}
    for release in (VLLM, SGLANG):
        assert pinned[release.name] == release.version
        assert {*release.needs} - {"torch"} <= pinned.keys()


ABSENT = """
from kvescrow.checks.targets.subject import Kind, Subject
from kvescrow.spec.vocabulary import UserError

def opened(setup):
    raise UserError("an engine that is not there: run `make targets`")

def subject():
    return Subject(Kind.MANAGER, opened)
"""


def test_an_engine_that_is_not_there_is_not_run_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "absent_engine.py").write_text(ABSENT)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(verb, "OTHERS", ("absent_engine:subject",))
    with pytest.raises(SystemExit) as ended:
        main(["targets", "--json", str(tmp_path / "result.json")])
    assert ended.value.code == 3
    shown = capsys.readouterr().out
    assert "absent_engine:subject  not_run" in shown
    assert "an engine that is not there: run `make targets`" in shown
    (result,) = json.loads((tmp_path / "result.json").read_text())["targets"]
    assert result["verdict"] == "not_run"
