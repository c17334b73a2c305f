"""`kvescrow bench`: measurements against a peer or a floor, in one run."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kvescrow.checks.cli.output import FiniteRange, conclude, json_option

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvescrow.checks.bench.report import BenchReport


@click.group(epilog="Example: kvescrow bench pages --json pages.json")
def command() -> None:
    """Measure on this machine, as ratios against a peer in the same run. More is better in every row."""


def _conclude(measure: "Callable[[], BenchReport]", json_file: str | None, *asked: str) -> int:
    """Measure and conclude. It fails where a subject did other work than is measured.

    A peer that was `asked` for by name and has no figure is a measurement not run.
    """
    from kvescrow.checks.targets.measured import OtherWork

    try:
        report = measure()
    except OtherWork as fault:
        return conclude({"verdict": "failed", "fault": str(fault)}, f"bench: failed: {fault}", json_file)
    missing = [row.name for row in report.rows if row.peer is None and row.peer_name.startswith(asked)] if asked else []
    verdict = "not_run" if missing else "passed"
    return conclude({"verdict": verdict, **report.to_json()}, report.table(), json_file)


@command.command(epilog="Example: kvescrow bench pages --json pages.json")
@click.option("--rounds", type=click.IntRange(3), default=15, show_default=True, help="Rounds behind each median.")
@json_option
def pages(rounds: int, json_file: str | None) -> int:
    """Admit and release 1,000-token requests, beside the paged cache manager of transformers."""
    from kvescrow.checks.bench.pages import measure

    return _conclude(lambda: measure(rounds), json_file)


@command.command(epilog="Example: kvescrow bench ledger --store sqlite --json ledger.json")
@click.option("--rounds", type=click.IntRange(3), default=7, show_default=True, help="Rounds behind each median.")
@click.option(
    "--store",
    "stores",
    type=click.Choice(["memory", "sqlite", "postgres", "valkey"]),
    multiple=True,
    help="Only this store; may be given several times.",
)
@json_option
def ledger(rounds: int, stores: tuple[str, ...], json_file: str | None) -> int:
    """Reserve and cancel in each store, beside what its engine can do at best. Servers are started from wheels."""
    from kvescrow.checks.bench.ledger import STORES, measure

    return _conclude(lambda: measure(rounds, stores or STORES), json_file)


@command.command(epilog="Example: kvescrow bench check --json check.json")
@click.option(
    "--size",
    type=click.Choice(["small", "middle", "large"]),
    default="middle",
    show_default=True,
    help="A lifecycle of 1, 8 or 47 million states, and a composition of 0.8 or 6 million.",
)
@click.option(
    "--bound",
    type=FiniteRange(1),
    default=900.0,
    show_default=True,
    help="Seconds after which TLC, SPIN or rumur is stopped and given by its rate so far.",
)
@click.option("--system", type=click.Choice(["lifecycle", "composition"]), help="Search this system, and nothing else.")
@click.option(
    "--peer",
    "peers",
    type=click.Choice(["SPIN depth-first", "SPIN breadth-first", "rumur", "TLC"]),
    multiple=True,
    help="Only this checker beside the search; may be given several times.",
)
@json_option
def check(size: str, bound: float, system: str | None, peers: tuple[str, ...], json_file: str | None) -> int:
    """Search, prove and fuzz, beside TLC, SPIN, rumur and a hand-written state machine, on one core.

    A peer that is not installed has a row without a figure; one that is named with --peer makes that not_run. Some tens
    of minutes in all. TLC says once a minute how far it is, so a shorter bound leaves its rate out.
    """
    from kvescrow.checks.bench.check import measure

    def show(what: str) -> None:
        click.echo(what, err=True)

    return _conclude(lambda: measure(size=size, system=system, peers=peers, bound=bound, show=show), json_file, *peers)


@command.command(epilog="Example: kvescrow bench replay --json replay.json")
@click.option(
    "--size",
    "sizes",
    type=click.IntRange(1),
    multiple=True,
    help="Requests, the packaged trace repeated; may be given several times.  [default: 1000, 10000, 100000]",
)
@json_option
def replay(sizes: tuple[int, ...], json_file: str | None) -> int:
    """Replay a trace and the same repeated, beside its own time span and beside public simulators, on one core.

    A replay must be a hundred times faster than its trace, and time and memory must grow no faster than the number of
    requests. A profile says where the time goes. Some minutes in all.
    """
    from kvescrow.checks.bench.replay import SIZES, measure

    def show(what: str) -> None:
        click.echo(what, err=True)

    found = measure(sizes or SIZES, show)
    return conclude(found.to_json(), found.text(), json_file)


@command.command(epilog="Example: kvescrow bench policies --plot policies.png --json policies.json")
@click.option("--requests", type=click.IntRange(1), help="Only the first so many requests.")
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="Draw what each came to into this file.")
@json_option
def policies(requests: int | None, plot: Path | None, json_file: str | None) -> int:
    """Replay a saturated workload under each reservation policy: ours, and the published rules of engines.

    It passes where ours meets as many objectives as every other, without preempting and without a broken promise.
    """
    from kvescrow.checks.bench.policies import measure
    from kvescrow.checks.cli.output import columns, refuse_unknown_picture

    if plot is not None:
        refuse_unknown_picture(plot)
    found = measure(requests, lambda what: click.echo(what, err=True))
    if plot is not None:
        from kvescrow.checks.cli.plots import draw_policies

        draw_policies(found.figures, plot)
    verdict = "passed" if found.holds else "failed"
    return conclude({"verdict": verdict, **found.to_json()}, columns(found.rows()), json_file)


@command.command(epilog="Example: kvescrow bench decode --weights smollm2 --plot decode.svg --json decode.json")
@click.option("--device", default="cpu", show_default=True, help="cpu, cuda or cuda:N.")
@click.option("--weights", default="seeded", show_default=True, help="seeded, or smollm2.")
@click.option(
    "--shape", default="small", show_default=True, help="Shape of seeded weights: tiny, small, llama-1b or another."
)
@click.option("--dtype", default="float32", show_default=True, help="float32 or bfloat16.")
@click.option("--batch", "batches", type=int, multiple=True, help="Only this batch size; may be given several times.")
@click.option(
    "--context", type=click.IntRange(1), default=128, show_default=True, help="Prompt tokens of each request."
)
@click.option("--steps", type=click.IntRange(1), default=8, show_default=True, help="Decode steps in each round.")
@click.option(
    "--prefill", type=click.IntRange(1), default=512, show_default=True, help="Tokens of the prefilled prompt."
)
@click.option("--rounds", type=click.IntRange(3), default=5, show_default=True, help="Rounds behind each median.")
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="Draw the rates into this file.")
@json_option
def decode(plot: Path | None, json_file: str | None, **asked: Any) -> int:
    """Decode and prefill, fast and exact, beside `generate` of transformers and the speed of memory, on one thread.

    Every engine has the same weights. Exact is compared with fast, and steps that take evidence with ones that do not.
    """
    from kvescrow.checks.bench.decode import report
    from kvescrow.gpu_harness.device import lack_of
    from kvescrow.gpu_harness.throughput import Asked, measured

    if reason := lack_of(asked["device"]):
        return conclude({"verdict": "not_run", "reason": reason}, f"bench decode: not_run: {reason}", json_file)
    batches = asked.pop("batches") or (1, 8, 32)
    options = Asked(**asked, batches=batches)
    found = measured(options, lambda what: click.echo(what, err=True))
    table = report(
        found.rates, batches, context=options.context, prefill=options.prefill, floor=found.floor, about=found.about
    )
    if plot is not None:
        from kvescrow.checks.bench.decode_plot import write_plot

        write_plot(plot, found.rates, found.about)
    said = {"verdict": "passed", **table.to_json(), "decode": found.to_json()}
    return conclude(said, table.table(), json_file)


@command.command(epilog="Example: kvescrow bench pressure --target vllm-scheduler --json pressure.json")
@click.option("--target", required=True, help="A cache manager or a scheduler: a name, or package.module:factory.")
@click.option("--runs", type=click.IntRange(1), default=1000, show_default=True, help="Histories of each side.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@json_option
def pressure(target: str, runs: int, seed: int, json_file: str | None) -> int:
    """Count findings per thousand runs, with the fuzzer's pressure and with uniform draws.

    It passes where pressure finds as much as uniform draws, or more. Where neither side finds anything, nothing was
    measured, and it is vacuous.
    """
    from kvescrow.checks.bench.pressure import absent, measure
    from kvescrow.checks.cli.output import columns
    from kvescrow.checks.targets.registry import subject_called

    subject = subject_called(target)
    if reason := absent(subject):
        return conclude({"verdict": "not_run", "reason": reason}, f"bench pressure: not_run: {reason}", json_file)
    report = measure(target, subject, runs, seed, lambda what: click.echo(what, err=True))
    summary = f"{columns(report.rows())}\nbench pressure: {report.verdict}"
    return conclude(report.to_json(), summary, json_file)
