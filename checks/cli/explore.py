"""`kvescrow explore`."""

import os
import platform
import subprocess
import sys
from collections.abc import Container, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from kvescrow.checks.cli.output import columns, conclude, json_option
from kvescrow.checks.cli.progress import progress
from kvescrow.spec.vocabulary import UserError

if TYPE_CHECKING:
    from kvescrow.checks.explore.result import Exploration

_SORT = "NPY_DISABLE_CPU_FEATURES"
_SLOW_SORT = "X86_V4 AVX512_ICL"
"""numpy's AVX-512 sort takes several times as long as its AVX2 sort on AMD's Zen 4, where it halves the packed search.
numpy reads the variable when it is imported, so the search runs in a process of its own there."""


_HEEDED: Mapping[str, Container[str]] = {
    "listed": (),
    "scenario": ("json_file",),
    "target": ("instances", "jobs", "json_file"),
}
"""Parameter that asks for something else than a search -> those that it heeds."""


@click.command(epilog="Example: kvescrow explore pages-chains lifecycle-1m --json search.json")
@click.argument("instances", nargs=-1, metavar="[INSTANCE]...")
@click.option(
    "--engine",
    type=click.Choice(["auto", "interpreter", "packed", "dense", "bdd"]),
    default="auto",
    show_default=True,
    help="packed takes every instance; dense and bdd take those whose counters follow from their slots.",
)
@click.option("--symmetric", is_flag=True, help="Search one state of each orbit of alike places (packed).")
@click.option(
    "--device", type=click.Choice(["cpu", "cuda"]), help="Search in torch there (packed); in numpy by default."
)
@click.option("--memory", type=click.IntRange(1), metavar="MIB", help="Most memory; what is available by default.")
@click.option(
    "--target", metavar="NAME", help="Try every transition on an implementation: ledger-memory, ledger-sqlite, pages."
)
@click.option("--jobs", type=click.IntRange(1, 64), default=2, show_default=True, help="Processes, with --target.")
@click.option("--list", "listed", is_flag=True, help="List the instances, and search nothing.")
@click.option(
    "--counterexamples",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("counterexamples"),
    show_default=True,
    help="Folder for broken laws as scenarios; made only when there is one.",
)
@click.option("--scenario", type=click.Path(path_type=Path), help="Run a broken law again, and search nothing.")
@json_option
@click.pass_context
def command(
    context: click.Context,
    instances: tuple[str, ...],
    engine: str,
    symmetric: bool,
    device: str | None,
    memory: int | None,
    target: str | None,
    jobs: int,
    listed: bool,
    counterexamples: Path,
    scenario: Path | None,
    json_file: str | None,
) -> int:
    """Visit every reachable state of small instances of the tables.

    Without INSTANCE the gate is searched: one instance or more of each table, which together must fire every row and
    reach every situation that the tables name.
    """
    _refuse_unheeded(context)
    if listed:
        return _list()
    if scenario is not None:
        return _replay(scenario, json_file)
    if target is not None:
        return _conform(target, instances, jobs, json_file)
    if _is_slow_sorter() and _SORT not in os.environ and engine in ("auto", "packed") and device is None:
        options = [*instances, "--engine", engine, *(["--symmetric"] if symmetric else [])]
        options += ["--counterexamples", str(counterexamples)]
        options += ["--memory", str(memory)] if memory is not None else []
        return _without_slow_sort([*options, *(["--json", json_file] if json_file is not None else [])])
    return _explore(instances, engine, symmetric, device, memory, counterexamples, json_file)


def _refuse_unheeded(context: click.Context) -> None:
    """Raise `UserError` for an option that has no effect beside another of the same command."""
    names = {parameter.name: parameter.opts[0] for parameter in context.command.params}
    names["instances"] = "INSTANCE"
    given = [name for name in context.params if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    for way, heeded in _HEEDED.items():
        if way in given:
            unheeded = [names[name] for name in given if name != way and name not in heeded]
            if unheeded:
                raise UserError(f"{unheeded[0]} has no effect with {names[way]}; leave one of the two out")
            return
    if "jobs" in given:
        raise UserError("--jobs has no effect without --target; name one, or leave it out")


def _is_slow_sorter() -> bool:
    """Return whether this machine's AVX-512 sort is the slow one (AMD family 25 with AVX-512)."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return False
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return False
    first = text.split("\n\n", maxsplit=1)[0]
    family = any(line.replace("\t", "").replace(" ", "") == "cpufamily:25" for line in first.splitlines())
    return "AuthenticAMD" in first and "avx512f" in first and family


def _without_slow_sort(options: list[str]) -> int:
    """Run the same search in a child process with the slow sort turned off."""
    command_line = [sys.executable, "-m", "kvescrow.checks.cli", "explore", *options]
    return subprocess.run(command_line, env={**os.environ, _SORT: _SLOW_SORT}, check=False).returncode


def _list() -> int:
    from kvescrow.checks.explore import GATE, INSTANCES

    rows = [("instance", "gate", "what"), *(_described(name, name in GATE) for name in INSTANCES)]
    click.echo(columns(rows))
    return 0


def _described(name: str, gate: bool) -> tuple[str, ...]:
    from kvescrow.checks.explore import instance_called

    instance = instance_called(name)
    return (name, "yes" if gate else "", " ".join(instance.note.split("\n\n", maxsplit=1)[0].split()))


def _replay(scenario: Path, json_file: str | None) -> int:
    from kvescrow.checks.explore import instance_called
    from kvescrow.checks.explore.scenario import named_in, replay_scenario

    replay = replay_scenario(scenario, instance_called(named_in(scenario)))
    verdict = "refuted" if replay.violated else "passed"
    return conclude({"verdict": verdict, "scenario": str(scenario)}, replay.why, json_file)


def _explore(
    names: tuple[str, ...],
    engine: str,
    symmetric: bool,
    device: str | None,
    memory: int | None,
    folder: Path,
    json_file: str | None,
) -> int:
    from kvescrow.checks.explore import GATE, EngineName, EngineNotInstalled, coverage, explore, instance_called
    from kvescrow.checks.explore.memory import shown_bytes
    from kvescrow.checks.explore.scenario import write_scenario
    from kvescrow.spec.tables.registry import ALL_TABLES

    chosen = [instance_called(name) for name in names or GATE]
    limit = None if memory is None else memory << 20
    found: list[Exploration] = []
    try:
        with progress("exploring") as advance:
            for number, instance in enumerate(chosen):

                def show(name: str, depth: int, states: int, newest: int, number: int = number) -> None:
                    advance(
                        number, len(chosen), f"{name}: {states:,} states, depth {depth}, {shown_bytes(_resident())}"
                    )

                found.append(
                    explore(instance, EngineName(engine), symmetric=symmetric, device=device, memory=limit, show=show)
                )
    except EngineNotInstalled as error:
        not_run = {"verdict": "not_run", "engine": engine, "reason": str(error)}
        return conclude(not_run, f"explore: not_run, {error}", json_file)
    problems = coverage(found, ALL_TABLES).problems if not names and engine in ("auto", "packed", "interpreter") else ()
    for one in found:
        if one.breach is not None:
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"{one.instance}.{one.breach.law.split(' ')[0]}.json"
            write_scenario(instance_called(one.instance), one.breach, path)
            click.echo(f"{one.instance}: {one.breach}\nreplay: kvescrow explore --scenario {path}", err=True)
    for problem in problems:
        click.echo(problem, err=True)
    refuted = any(one.verdict != "passed" for one in found)
    verdict = "refuted" if refuted else "vacuous" if problems else "passed"
    result: dict[str, Any] = {
        "verdict": verdict,
        "states": sum(one.states for one in found),
        "transitions": sum(one.transitions for one in found),
        "seconds": round(sum(one.seconds for one in found), 1),
        "problems": list(problems),
        "instances": [one.to_json() for one in found],
    }
    lines: list[tuple[str, ...]] = [("instance", "engine", "verdict", "states", "transitions", "depth", "seconds")]
    lines += [_line(one) for one in found]
    summary = f"{columns(lines)}\nexplore: {verdict}, {result['states']:,} states in {result['seconds']} s"
    return conclude(result, summary, json_file)


def _line(one: "Exploration") -> tuple[str, ...]:
    depth = "-" if one.depth is None else str(one.depth)
    figures = (f"{one.states:,}", f"{one.transitions:,}", depth, f"{one.seconds:.1f}")
    return (one.instance, one.engine, one.verdict, *figures)


def _resident() -> int:
    from kvescrow.checks.explore.memory import peak_bytes

    return peak_bytes()


def _conform(target: str, names: tuple[str, ...], jobs: int, json_file: str | None) -> int:
    from kvescrow.checks.explore.conformance import conform
    from kvescrow.checks.targets.registry import subject_called

    subject = subject_called(target)
    with progress(f"trying {target}") as advance:
        found = [
            conform(
                target, subject, name, jobs, lambda depth, states: advance(0, 0, f"{states:,} states, depth {depth}")
            )
            for name in names or (None,)
        ]
    for one in found:
        if one.disagreement is not None:
            click.echo(f"{one.instance}:\n{one.disagreement}", err=True)
    verdicts = {one.verdict for one in found}
    verdict = next((worst for worst in ("failed", "incomplete") if worst in verdicts), "passed")
    result: dict[str, Any] = {
        "verdict": verdict,
        "target": target,
        "states": sum(one.states for one in found),
        "transitions": sum(one.transitions for one in found),
        "instances": [one.to_json() for one in found],
    }
    lines: list[tuple[str, ...]] = [
        ("instance", "verdict", "states", "never reached", "transitions", "not tried", "seconds")
    ]
    for one in found:
        figures = (one.states, one.unreached, one.transitions, one.unrealised)
        lines.append((one.instance, one.verdict, *(f"{figure:,}" for figure in figures), f"{one.seconds:.1f}"))
    reasons = [
        f"{one.instance}: {count:,} moves exist in the instance alone: {why}"
        for one in found
        for why, count in one.impossible.items()
    ]
    summary = "\n".join((columns(lines), *reasons, f"explore --target {target}: {verdict}"))
    return conclude(result, summary, json_file)
