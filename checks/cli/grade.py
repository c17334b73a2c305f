"""`kvescrow grade`."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kvescrow.checks.cli.output import columns, conclude, json_option

if TYPE_CHECKING:
    from kvescrow.reference.grading.grade import Grade

EXIT_STATUS: Mapping[str, int] = {"PASS": 0, "FAIL": 1, "NO_DATA": 3, "INCONCLUSIVE": 4, "INVALID_RUN": 5}
"""By verdict; 2 is a mistake in the input, as everywhere."""
_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command(
    epilog="Example: kvescrow grade base.jsonl candidate.jsonl --objectives objectives.toml     "
    "Exit status: 0 PASS, 1 FAIL, 2 your input, 3 NO_DATA, 4 INCONCLUSIVE, 5 INVALID_RUN"
)
@click.argument("base", type=_FILE)
@click.argument("candidate", type=_FILE)
@click.option("--objectives", required=True, type=_FILE, help="What runs are graded by, as TOML; see docs/grading.md.")
@json_option
def command(base: Path, candidate: Path, objectives: Path, json_file: str | None) -> int:
    """Grade CANDIDATE against BASE, request by request: may it be shipped?

    Both are records of `kvescrow replay --records` or `conform --records`, results of vLLM's `bench serve` with
    --save-result --save-detailed, or AIPerf's profile_export.jsonl. Shares are of the requests offered, from their
    intended arrival on; a gate without data promotes nothing.
    """
    # scipy takes a while to load.
    from kvescrow.reference.grading.foreign import read_any_run
    from kvescrow.reference.grading.grade import grade
    from kvescrow.reference.grading.objectives import read_objectives

    wanted = read_objectives(objectives)
    result = grade(read_any_run(base), read_any_run(candidate), wanted)
    conclude(result.as_json(), _summary(result), json_file)
    return EXIT_STATUS[result.verdict.value]


def _summary(result: "Grade") -> str:
    rows = [("gate", "verdict", "what it saw")]
    rows += [(gate.name, gate.verdict.value, gate.why) for gate in result.gates]
    lines = [columns(rows)]
    for name, goodput in result.goodput.items():
        share = goodput["share"]
        told = "no request counts" if share is None else f"{share:.2%} of {goodput['counted']} that count"
        lines.append(f"goodput of the {name}: {told}{_causes(result.offered[name])}")
    claim = " (better than the base)" if result.better else ""
    lines.append(f"grade: {result.verdict.value}{claim}, decided by {result.decided_by}: {result.action}")
    return "\n".join(lines)


def _causes(offered: Mapping[str, object]) -> str:
    causes = offered["causes"]
    assert isinstance(causes, Mapping), "a tally has causes"
    counts = {**causes, **{name: offered[name] for name in ("cancelled", "own_refusals", "undecided", "left_out")}}
    told = ", ".join(f"{name} {count}" for name, count in counts.items() if count)
    return f"; {told}" if told else ""
