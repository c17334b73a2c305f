"""Exhaustive search beside TLC, SPIN and rumur on the same system, in one run on one core.

The peers get the system as a modeller would write it by hand: the kept fields, the steps that change something, equal
steps once, and the invariants. They do not check step rules, as the search here does. Their verifiers are compiled for
speed, and compiling is not counted; of the search here everything is counted, the start of the process included.
Seconds are of processor time, so that a busy machine slows no one.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from attrs import frozen

from kvescrow.checks.agreement.answers import Answer, Verdict
from kvescrow.checks.agreement.checkers import run_rumur, run_spin, run_tlc
from kvescrow.checks.agreement.commands import Commands, commands_of, essential
from kvescrow.checks.agreement.languages import murphi, promela
from kvescrow.checks.agreement.tla_model import of_commands
from kvescrow.checks.bench.report import BenchRow
from kvescrow.checks.explore.catalogue import instance_called
from kvescrow.checks.targets.measured import OtherWork
from kvescrow.spec.vocabulary import UserError

UNIT = "states/s"
Peer = Callable[[Commands, int, float], Answer]
"""Takes a system, about how many states it has, and a bound in seconds."""

PEERS: dict[str, Peer] = {
    "SPIN depth-first": lambda system, states, bound: run_spin(promela(system), bound, states=states),
    "SPIN breadth-first": lambda system, states, bound: run_spin(
        promela(system), bound, states=states, breadth_first=True
    ),
    "rumur": lambda system, states, bound: run_rumur(murphi(system), bound, optimised=True),
    "TLC": lambda system, states, bound: run_tlc(of_commands(system), bound),
}


@contextmanager
def one_core() -> Iterator[None]:
    """Keep this process, and every process that it starts, on one core while the block runs."""
    if not hasattr(os, "sched_setaffinity"):
        raise UserError("bench check: this system cannot keep a process on one core; run it on Linux")
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@frozen
class _Searched:
    """One search here, in a process of its own."""

    states: int
    seconds: float
    """Processor seconds, the start of the process included."""
    kept: str
    """How the engine kept the states."""


def search_rows(
    name: str,
    engines: Sequence[str],
    bound: float,
    show: Callable[[str], None] = lambda what: None,
    peers: Collection[str] = (),
) -> list[BenchRow]:
    """Return a row for each engine beside each of `peers`, all by default, on the instance called `name`.

    A peer that meets `bound`, in seconds, is given by its rate so far. Raises `UserError` where there is no such
    instance, and `OtherWork` where counts differ: then it is not the same system.
    """
    instance = instance_called(name)
    ours: dict[str, _Searched] = {}
    for engine in engines:
        show(f"{name}: {engine} engine")
        ours[engine] = _searched(name, engine)
    counts = {found.states for found in ours.values()}
    if len(counts) != 1:
        raise OtherWork(f"{name}: the engines count {sorted(counts)} states")
    (states,) = counts
    system = essential(commands_of(instance))
    rows = []
    for peer_name, peer in PEERS.items():
        if peers and peer_name not in peers:
            continue
        show(f"{name}: {peer_name}")
        answer = peer(system, states, bound)
        if answer.verdict is Verdict.PASSED and answer.states != states:
            raise OtherWork(f"{name}: {peer_name} counts {answer.states} states, the search {states}")
        measured = answer.verdict in (Verdict.PASSED, Verdict.STOPPED) and answer.states
        rate = answer.rate if measured else None
        for engine, found in ours.items():
            title = f"{name} ({states:,} states), {engine}: {found.kept}"
            rows.append(BenchRow(title, states / found.seconds, rate, _called(peer_name, answer), UNIT))
    return rows


def _called(name: str, answer: Answer) -> str:
    if answer.verdict is Verdict.PASSED:
        return name
    if answer.verdict is Verdict.STOPPED and answer.states:
        return f"{name}, stopped after {answer.states:,} states"
    return f"{name}: {answer.why or answer.verdict.value}"


def _searched(name: str, engine: str) -> _Searched:
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "result.json")
        command = [sys.executable, "-m", "kvescrow.checks.cli", "explore", name, "--engine", engine]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run([*command, "--json", str(result)], capture_output=True, text=True, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode:
            raise UserError(f"explore {name} --engine {engine}: {(done.stderr or done.stdout).strip()[-400:]}")
        found = json.loads(result.read_text("utf-8"))
    seconds = (after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime)
    one = found["instances"][0]
    return _Searched(int(one["states"]), seconds, one["kept"])
