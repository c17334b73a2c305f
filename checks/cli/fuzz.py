"""`kvescrow fuzz`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kvescrow.checks.cli.output import conclude, json_option, make_folder
from kvescrow.checks.cli.progress import progress
from kvescrow.checks.targets.registry import TARGETS

if TYPE_CHECKING:
    from kvescrow.checks.fuzz.result import FuzzResult, Progress


@click.command(epilog="Example: kvescrow fuzz --target ledger-sqlite --json fuzz.json")
@click.option("--target", required=True, help=f"One of {', '.join(TARGETS)}, or your own package.module:factory.")
@click.option(
    "--profile",
    type=click.Choice(["pr", "minute", "soak", "hour"]),
    default="pr",
    show_default=True,
    help="pr: bounded, the same on every machine. The others draw anew for a minute, ten or sixty, and keep failures.",
)
@click.option("--seed", type=click.IntRange(0), help="Repeats a run; the result names it.")
@click.option(
    "--database",
    metavar="PLACE",
    help="Where failures are kept and replayed first: a folder, or valkey://HOST:PORT/0 shared by several machines.",
)
@click.option("--findings", type=click.Path(path_type=Path), help="Write each finding to this folder.")
@json_option
def command(
    target: str, profile: str, seed: int | None, database: str | None, findings: Path | None, json_file: str | None
) -> int:
    """Drive an implementation beside the tables and compare reply, reason and whole state after every step.

    A run passes only if it also reached every row and every false guard of the tables that it drives.
    """
    # Hypothesis takes a while to load.
    from kvescrow.checks.fuzz import run_fuzz
    from kvescrow.checks.fuzz.findings import write_findings
    from kvescrow.checks.fuzz.profiles import DATABASE

    # Before the run, so that what it finds is not lost.
    if findings is not None:
        make_folder(findings)
    if database is not None and "://" not in database:
        make_folder(Path(database))
    with progress(f"fuzzing {target}") as advance:

        def on_progress(now: "Progress") -> None:
            seen = now.seen
            goals = seen.rows + seen.guards
            advance(seen.rows_hit + seen.guards_hit, goals, f"{now.steps} steps, rows and guards")

        result = run_fuzz(target, profile, seed, on_progress, database or DATABASE)
    if findings is not None:
        for path in write_findings(findings, result.findings):
            click.echo(f"written: {path}", err=True)
    return conclude(result.to_json(), _summary(result), json_file)


def _summary(result: "FuzzResult") -> str:
    lines = [result.failure] if result.failure else []
    lines += [f"not reached: {hole}" for hole in result.holes]
    lines += [f"listed as unreachable: {place}" for place in result.unreachable]
    lines += [f"not applicable: {law.law} (the target declares {law.capability})" for law in result.not_applicable]
    for deviation in result.deviations:
        shown = "shown" if deviation.exercised else "NO LONGER SHOWN: take it off the list"
        lines += [f"known deviation {deviation.name}: {deviation.law}; {deviation.note}; {shown}"]
        lines += [f"    {step}" for step in deviation.scenario]
    lines.append(
        f"fuzz {result.target}: {result.verdict}, {result.steps} steps in {result.examples} runs, "
        f"rows {result.rows_hit} of {result.rows}, false guards {result.guards_hit} of {result.guards}, "
        f"{result.seconds:.1f} s"
    )
    lines.append(f"repeat: {result.repeat}")
    return "\n".join(lines)
