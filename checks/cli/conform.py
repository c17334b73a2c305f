"""`kvescrow conform`."""

from pathlib import Path

import click

from kvescrow.checks.cli.output import FiniteRange, conclude, json_option, new_file
from kvescrow.checks.cli.progress import progress


@click.command(epilog="Example: kvescrow conform --device cpu --sabotage all")
@click.option(
    "--device", default="auto", show_default=True, help="auto (cuda where there is one), cpu, cuda or cuda:N."
)
@click.option(
    "--sabotage",
    metavar="NAME",
    help="Make one known mistake and pass only where the evidence that must show it does. `all` makes every one, and "
    "the printed matrix names them.",
)
@click.option("--requests", type=int, help="Requests of the trace; 100 where left out.")
@click.option(
    "--seed", type=click.IntRange(0, 2**62), default=1, show_default=True, help="Seed of weights, tokens and cancels."
)
@click.option("--seeds", type=int, default=1, show_default=True, help="Run sabotages under so many seeds.")
@click.option("--dtype", default="float32", show_default=True, help="float32 or bfloat16.")
@click.option("--shape", default="tiny", show_default=True, help="Shape of the model: tiny, small, llama-1b, ...")
@click.option("--trace", help="A packaged trace, or a file in a known format; mooncake where left out.")
@click.option(
    "--journal",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the journal of every decision to this new file, for `kvescrow check-journal`.",
)
@click.option(
    "--records",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=new_file,
    help="Write a record of each request to this new file, for `kvescrow grade`.",
)
@click.option(
    "--weights", default="seeded", show_default=True, help="seeded, or smollm2: a real model, prompts of text."
)
@click.option("--mode", default="exact", show_default=True, help="exact (compared bit for bit), or fast.")
@click.option("--calm", is_flag=True, help="No growth, no change of weights, no killed worker.")
@click.option(
    "--own-process",
    is_flag=True,
    help="Run the worker's device in a process of its own; killing the worker is then SIGKILL of that process.",
)
@click.option("--minutes", type=FiniteRange(0), help="Run after run for so long, each with another seed.")
@json_option
def command(
    device: str,
    sabotage: str | None,
    requests: int | None,
    seed: int,
    seeds: int,
    dtype: str,
    shape: str,
    trace: str | None,
    journal: Path | None,
    records: Path | None,
    weights: str,
    mode: str,
    calm: bool,
    own_process: bool,
    minutes: float | None,
    json_file: str | None,
) -> int:
    """Run a recorded workload on a real paged-KV decoder under the reference, and watch its memory.

    Every step checks the pages that it reads and writes against their stamps, on the device. Reclaimed pages are
    poisoned, shared ones fingerprinted, and what is sampled and written must equal an independent dense decode. Cancels
    come while steps are in flight, outputs grow beyond what was reserved, the weights change, and the worker is killed
    and replaced; one that takes a dead one's place has a journal of its own, FILE.2 and so on. A device that is not in
    this machine is not_run, never passed.
    """
    # torch takes seconds to load.
    from kvescrow.gpu_harness.front import Asked, run

    asked = Asked(
        device=device,
        sabotage=sabotage,
        requests=requests,
        seed=seed,
        seeds=seeds,
        dtype=dtype,
        shape=shape,
        trace=trace,
        journal=journal,
        weights=weights,
        mode=mode,
        calm=calm,
        minutes=minutes,
        records=records,
        own_process=own_process,
    )
    with progress("conform") as advance:
        report = run(asked, lambda done, total: advance(done, total, ""))
    return conclude(report.json, report.summary, json_file)
