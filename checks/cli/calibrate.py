"""`kvescrow calibrate`."""

from pathlib import Path

import click

from kvescrow.checks.cli.output import conclude, json_option, refuse_unknown_picture
from kvescrow.checks.cli.progress import progress


@click.command(epilog="Example: kvescrow calibrate --device cpu --plot calibration.png --json calibration.json")
@click.option(
    "--device", default="auto", show_default=True, help="auto (cuda where there is one), cpu, cuda or cuda:N."
)
@click.option(
    "--shape", default="tiny", show_default=True, help="Shape of the model: tiny, small, llama-1b or another."
)
@click.option("--dtype", default="float32", show_default=True, help="float32 or bfloat16.")
@click.option(
    "--seed", type=click.IntRange(0, 2**62), default=1, show_default=True, help="Seed of weights, tokens and sizes."
)
@click.option(
    "--gap",
    type=click.IntRange(1),
    metavar="MICROSECONDS",
    help="Token-gap budget; where left out, one that leaves room for a small chunk.",
)
@click.option(
    "--clock",
    type=click.Choice(["auto", "wall", "processor"]),
    default="auto",
    show_default=True,
    help="auto: processor time on a CPU, so that other programs on the machine are not measured; wall time on a GPU.",
)
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="Write a picture, .png or .svg.")
@json_option
def command(
    device: str,
    shape: str,
    dtype: str,
    seed: int,
    gap: int | None,
    clock: str,
    plot: Path | None,
    json_file: str | None,
) -> int:
    """Measure steps of the real decoder, fit the cost model, and show the chunk rule at work.

    Steps of many sizes are measured. A robust fit gives the coefficients, other steps the band around them, and steps
    of sizes that neither has seen decide whether the model is trusted. Then prompts are computed beside decodes: with
    the chunk rule the 99th percentile of the token gap must lie within the budget, with a fixed large chunk it must
    not, and of a budget that cannot be kept the rule must say so.

    The coefficients have the names and units of `[cost]` in a replay's configuration.
    """
    if plot is not None:
        refuse_unknown_picture(plot)
    # torch takes seconds to load.
    from kvescrow.gpu_harness.calibration.front import Asked, run

    with progress("calibrate") as advance:
        report = run(Asked(device, shape, dtype, seed, gap, clock, plot), advance)
    return conclude(report.json, report.summary, json_file)
