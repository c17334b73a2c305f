"""Where results go: devices and pipes are written to, links and permissions stay, and a full disk is told."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Event

import click
import pytest

from kvescrow.checks.cli import verify
from kvescrow.checks.cli.front import kvescrow, main
from kvescrow.checks.cli.output import refuse_unwritable, write_atomically


def test_a_device_is_written_to_and_not_replaced() -> None:
    refuse_unwritable(Path(os.devnull))
    write_atomically(Path(os.devnull), "{}\n")
    assert Path(os.devnull).is_char_device()


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(
        [sys.executable, "-c", f"print(open({str(pipe)!r}).read())"], stdout=subprocess.PIPE
    ) as reader:
        refuse_unwritable(pipe)
        write_atomically(pipe, "ü")
        assert reader.communicate()[0].decode() == "ü\n"
    assert pipe.is_fifo()


def test_a_link_stays_a_link_and_a_file_keeps_its_permissions(tmp_path: Path) -> None:
    kept = tmp_path / "elsewhere" / "kept.json"
    kept.parent.mkdir()
    kept.write_text("old")
    kept.chmod(0o640)
    link = tmp_path / "link.json"
    link.symlink_to(kept)
    write_atomically(link, "new")
    assert (link.is_symlink(), kept.read_text(), kept.stat().st_mode & 0o777) == (True, "new", 0o640)
    assert [file.name for file in (*tmp_path.iterdir(), *kept.parent.iterdir())].count("kept.json") == 1


def test_a_new_file_has_the_permissions_of_any_new_file(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")
    write_atomically(tmp_path / "result", "")
    assert (tmp_path / "result").stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            OSError(errno.ENOSPC, "No space left on device"),
            "a file of this verb, or its output: cannot be written (No space",
        ),
        (OSError(errno.EFBIG, "File too large", "run.jsonl"), "run.jsonl: cannot be written (File too large)"),
    ],
)
def test_a_file_that_the_system_refuses_is_told_wherever_it_is_written(
    error: OSError, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*arguments: object, **named: object) -> None:
        raise error

    monkeypatch.setattr(kvescrow, "main", fails)
    with pytest.raises(SystemExit) as left:
        main(["explore", "--list"])
    assert left.value.code == 2
    assert f"kvescrow: {told}" in capsys.readouterr().err


def test_another_error_of_the_system_is_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*arguments: object, **named: object) -> None:
        raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")

    monkeypatch.setattr(kvescrow, "main", fails)
    with pytest.raises(ConnectionRefusedError):
        main(["explore", "--list"])


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_an_output_that_is_full_is_told() -> None:
    command = [sys.executable, "-m", "kvescrow.checks.cli", "explore", "--list"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("kvescrow: ") and len(done.stderr.splitlines()) == 1


class Running:
    """A check that runs until it is terminated."""

    def __init__(self) -> None:
        self.over = Event()

    def terminate(self) -> None:
        self.over.set()


def test_an_interrupted_verify_ends_what_runs_and_begins_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []
    both = Event()

    def run_one(check: verify.Check, running: set[Running]) -> verify.Finished:
        process = Running()
        running.add(process)
        begun.append(check.name)
        if len(begun) == verify.PARALLEL:
            both.set()
        process.over.wait()
        return verify.Finished(check, "passed", 0.0, {}, "")

    def interrupted(*arguments: object, **named: object) -> None:
        both.wait()
        raise KeyboardInterrupt

    monkeypatch.setattr(verify, "_run_one", run_one)
    monkeypatch.setattr(verify, "wait", interrupted)
    run: Callable[[object], object] = vars(verify)["_run"]
    with pytest.raises(KeyboardInterrupt):
        run([verify.Check(f"c{number}", (), ()) for number in range(5)])
    assert begun == ["c0", "c1"]


def test_an_interrupt_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(*arguments: object, **named: object) -> None:
        raise click.Abort

    monkeypatch.setattr(kvescrow, "main", interrupted)
    with pytest.raises(SystemExit) as left:
        main([])
    assert (left.value.code, capsys.readouterr().err.strip()) == (130, "kvescrow: interrupted")
