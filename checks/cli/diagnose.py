"""`kvescrow diagnose`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kvescrow.checks.cli.output import columns, conclude, json_option

if TYPE_CHECKING:
    from kvescrow.reference.grading.diagnosis import Diagnosis

EXIT_INSUFFICIENT = 3
"""As a check that did not run: nothing was concluded."""
SHOWN = 12
"""Parts that people are shown; `--json` has all."""
_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command(
    epilog="Example: kvescrow diagnose base.jsonl candidate.jsonl --json     "
    "Exit status: 0 diagnosed, 2 your input, 3 the evidence is insufficient"
)
@click.argument("base", type=_FILE)
@click.argument("candidate", type=_FILE)
@json_option
def command(base: Path, candidate: Path, json_file: str | None) -> int:
    """Split the time that CANDIDATE lost against BASE, and rank what may have caused it.

    The parts add up to the whole, to the microsecond. Records with spans tell most: `kvescrow replay --records` writes
    them, docs/grading.md says how to write your own.
    """
    # numpy takes a while to load.
    from kvescrow.reference.grading.diagnosis import diagnose
    from kvescrow.reference.grading.foreign import read_any_run

    found = diagnose(read_any_run(base), read_any_run(candidate))
    conclude(found.as_json(), _summary(found), json_file)
    return EXIT_INSUFFICIENT if found.insufficient else 0


def _summary(found: "Diagnosis") -> str:
    losses = found.losses
    lines = [f"lost: {losses.lost / 1e6:.3f} s over {losses.pairs} requests, {losses.base / 1e6:.3f} s in the base"]
    shown = sorted(losses.parts.items(), key=lambda part: -abs(part[1]))[:SHOWN]
    if shown:
        lines.append(columns([(part, f"{amount / 1e6:+.3f} s") for part, amount in shown]))
    for each in found.hypotheses[:5]:
        lines.append(f"{found.score(each):.0%} {each.cause.value}")
        lines += [f"    for: {fact}" for fact in each.for_] + [f"    against: {fact}" for fact in each.against]
    if found.separating:
        lines.append(f"to tell them apart: {found.separating}")
    verdict = f"insufficient: {found.insufficient}" if found.insufficient else found.hypotheses[0].cause.value
    return "\n".join([*lines, f"diagnose: {verdict}"])
