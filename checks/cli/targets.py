"""`kvescrow targets`."""

import time

import click

from kvescrow.checks.cli.output import columns, conclude, json_option
from kvescrow.checks.cli.progress import progress

OTHERS = (
    *("transformers", "vllm", "vllm-at-return", "vllm-scheduler", "vllm-scheduler-at-return", "sglang"),
    *("limits", "limits-moving", "limits-sliding", "token-throttle", "token-throttle-bounded"),
)
"""Released code that no one here wrote."""


@click.command(epilog="Example: kvescrow targets --install --json targets.json")
@click.option("--install", is_flag=True, help="First install the engines that are missing; says what it downloads.")
@click.option(
    "--profile",
    type=click.Choice(["pr", "minute", "soak", "hour"]),
    default="pr",
    show_default=True,
    help="How long each is fuzzed.",
)
@json_option
def command(install: bool, profile: str, json_file: str | None) -> int:
    """Fuzz the adapters of other people's engines. One that is not installed is not_run, by name.

    Engines are looked for in the folder .engines, or where KVESCROW_ENGINES says.
    """
    from kvescrow.checks.fuzz import run_fuzz
    from kvescrow.checks.targets.installing import install as install_engines

    if install:
        install_engines(lambda line: click.echo(line, err=True))
    started, results = time.monotonic(), []
    with progress("other people's engines") as advance:
        for place, target in enumerate(OTHERS):
            advance(place, len(OTHERS), target)
            results.append(run_fuzz(target, profile))
    lines = [("target", "verdict", "seconds", "what it did")]
    for result in results:
        shown = ", ".join(finding.law for finding in result.findings if finding.listed)
        did = f"{result.steps} steps; known to break: {shown or 'nothing'}"
        told = result.failure.splitlines()[0] if result.failure else did
        lines.append((result.target, result.verdict, f"{result.seconds:.1f}", told))
    verdicts = {result.verdict for result in results}
    verdict = "passed" if verdicts == {"passed"} else "not_run" if verdicts <= {"passed", "not_run"} else "failed"
    seconds = round(time.monotonic() - started, 1)
    record = {"verdict": verdict, "seconds": seconds, "targets": [result.to_json() for result in results]}
    return conclude(record, f"{columns(lines)}\ntargets: {verdict} in {seconds:.0f} s", json_file)
