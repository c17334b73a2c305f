"""`kvescrow torture`."""

from typing import TYPE_CHECKING

import click
from attrs import evolve

from kvescrow.checks.cli.output import FiniteRange, columns, conclude, json_option
from kvescrow.checks.cli.progress import progress

if TYPE_CHECKING:
    from kvescrow.checks.torture import TortureResult


@click.command(epilog="Example: kvescrow torture --store sqlite --minutes 3 --seed 1 --json torture.json")
@click.option(
    "--store",
    type=click.Choice(["memory", "sqlite", "postgres", "valkey"]),
    required=True,
    help="memory and sqlite live in one process that gateways call; postgres and valkey need their servers' wheels.",
)
@click.option("--minutes", type=FiniteRange(0, min_open=True), default=2.0, show_default=True, help="How long.")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Decides what happens when.")
@click.option("--gateways", type=click.IntRange(1), default=3, show_default=True, help="Gateway processes at a time.")
@click.option("--sabotage", metavar="NAME", help="Plant this error in the store; the run is good if it is caught.")
@json_option
def command(store: str, minutes: float, seed: int, gateways: int, sabotage: str | None, json_file: str | None) -> int:
    """Let gateways work on a store while processes die, replies vanish, the disk fills up and the clock steps.

    Afterwards no acknowledged change may be lost and none applied twice, the sums must be equal, nothing may have
    been released without a confirmed stop, and commit numbers must have no gap. A run in which some kind of fault
    never happened is not passed.
    """
    from kvescrow.checks.targets.planted_ledgers import SABOTAGES
    from kvescrow.checks.targets.torture import open_store
    from kvescrow.checks.torture import torture

    subject = open_store(store, sabotage)
    with progress(f"torturing {store}") as advance:

        def on_progress(seconds: float, what: str) -> None:
            advance(int(seconds), int(minutes * 60), what)

        result = torture(subject, minutes=minutes, seed=seed, gateways=gateways, progress=on_progress)
    if sabotage is not None:
        caught = SABOTAGES[sabotage].cause in result.causes
        repeat = f"{result.repeat} --sabotage {sabotage}"
        result = evolve(result, verdict="caught" if caught else "failed", repeat=repeat)
    return conclude(result.as_json(), _summary(result), json_file)


def _summary(result: "TortureResult") -> str:
    facts = [
        ("faults", ", ".join(f"{kind} {times}" for kind, times in result.faults.items())),
        ("cannot happen here", ", ".join(result.not_applicable) or "none"),
        ("calls", f"{result.calls}, of them {result.unanswered} unanswered, {result.not_kept} not kept"),
        ("acknowledged", str(result.acknowledged)),
        ("lost, doubled", f"{result.lost}, {result.doubled}"),
        ("other violations", str(result.violations)),
    ]
    lines = [*result.findings, columns(facts), f"torture {result.store}: {result.verdict}", f"repeat: {result.repeat}"]
    return "\n".join(lines)
