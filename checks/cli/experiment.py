"""`kvescrow experiment`."""

import subprocess
import sys
from importlib import resources, util
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kvescrow.checks.cli.output import columns, conclude, json_option, refuse_unknown_picture
from kvescrow.spec.vocabulary import UserError

if TYPE_CHECKING:
    from kvescrow.checks.experiments.result import Experiment

_FILE = click.Path(dir_okay=False, path_type=Path)


def _picture(_: click.Context, __: click.Parameter, path: Path | None) -> Path | None:
    if path is not None:
        refuse_unknown_picture(path)
    return path


_plot = click.option("--plot", type=_FILE, callback=_picture, help="Draw the result into this .png or .svg file.")
_cost = click.option(
    "--cost",
    type=_FILE,
    help="Measured costs: JSON of `kvescrow calibrate`, or TOML with a [cost] table.  [default: synthetic]",
)
_app = click.option("--app", is_flag=True, help="Serve a page with one control a constraint, until interrupted.")
_port = click.option("--port", type=click.IntRange(1, 65535), default=2718, show_default=True, help="With --app.")


@click.group(epilog="Example: kvescrow experiment prefill-deadline --decodes 128 --plot deadline.png")
def command() -> None:
    """Ask one question of the reference, with constraints to move; on the command line or as a page.

    Each page states its assumptions, and says of each input whether it is synthetic or measured.
    """


@command.command("prefill-deadline", epilog="Example: kvescrow experiment prefill-deadline --decodes 128 --json")
@click.option("--gap", type=click.IntRange(1), default=20, show_default=True, help="Longest token gap, in ms.")
@click.option("--deadline", type=click.IntRange(1), default=1000, show_default=True, help="Of the prompt, in ms.")
@click.option("--prompt", type=click.IntRange(1), default=32_768, show_default=True, help="Its tokens.")
@click.option(
    "--decodes", type=click.IntRange(0, 1_000_000), default=32, show_default=True, help="Sequences beside it."
)
@click.option("--context", type=click.IntRange(0), default=4_000, show_default=True, help="Tokens behind each.")
@click.option("--largest", type=click.IntRange(64), default=8_192, show_default=True, help="Most tokens in a step.")
@_cost
@_plot
@_app
@_port
@json_option
def prefill_deadline(
    gap: int,
    deadline: int,
    prompt: int,
    decodes: int,
    context: int,
    largest: int,
    cost: Path | None,
    plot: Path | None,
    app: bool,
    port: int,
    json_file: str | None,
) -> int:
    """Which chunk keeps the decodes inside their gap and ends the prompt in time; and where there is none."""
    if app:
        return _serve("prefill_deadline", port, cost)
    from kvescrow.checks.experiments import prefill_deadline as experiment
    from kvescrow.checks.experiments.coefficients import read_coefficients

    asked = experiment.Constraints(gap * 1000, deadline * 1000, prompt, decodes, context, largest)
    return _told(experiment.prefill_deadline(asked, read_coefficients(cost)), plot, json_file)


@command.command("prefix-ownership", epilog="Example: kvescrow experiment prefix-ownership --sharers 5 --pool 16")
@click.option("--sharers", type=click.IntRange(0, 64), default=3, show_default=True, help="Requests after the first.")
@click.option("--prefix", type=click.IntRange(1, 64), default=4, show_default=True, help="Pages of the prefix.")
@click.option("--pool", type=click.IntRange(1, 10_000), default=24, show_default=True, help="Usable pages.")
@click.option("--in-flight/--idle", default=True, show_default=True, help="Whether a step runs when the first leaves.")
@_plot
@_app
@_port
@json_option
def prefix_ownership(
    sharers: int,
    prefix: int,
    pool: int,
    in_flight: bool,
    plot: Path | None,
    app: bool,
    port: int,
    json_file: str | None,
) -> int:
    """What becomes of a shared prefix when the request that computed it leaves first."""
    if app:
        return _serve("prefix_ownership", port)
    from kvescrow.checks.experiments import prefix_ownership as experiment

    asked = experiment.Constraints(sharers, prefix, pool, in_flight)
    return _told(experiment.prefix_ownership(asked), plot, json_file)


@command.command(epilog="Example: kvescrow experiment goodput --gap 60 --plot goodput.png")
@click.option("--gap", type=click.IntRange(1), default=30, show_default=True, help="Token gap of the chat, in ms.")
@click.option("--first-token", type=click.IntRange(1), default=500, show_default=True, help="Of the chat, in ms.")
@click.option("--document", type=click.IntRange(1, 500_000), default=16_000, show_default=True, help="Its tokens.")
@click.option("--document-every", type=click.IntRange(1, 600_000), default=200, show_default=True, help="In ms.")
@click.option("--document-first-token", type=click.IntRange(1), default=4_000, show_default=True, help="In ms.")
@click.option("--chat-every", type=click.IntRange(1, 600_000), default=100, show_default=True, help="In ms.")
@_cost
@_plot
@_app
@_port
@json_option
def goodput(
    gap: int,
    first_token: int,
    document: int,
    document_every: int,
    document_first_token: int,
    chat_every: int,
    cost: Path | None,
    plot: Path | None,
    app: bool,
    port: int,
    json_file: str | None,
) -> int:
    """Why a larger chunk can raise prompt throughput and lower goodput: one replay for each chunk."""
    if app:
        return _serve("goodput", port, cost)
    from kvescrow.checks.experiments import goodput as experiment
    from kvescrow.checks.experiments.coefficients import read_coefficients

    asked = experiment.Constraints(
        gap * 1000, first_token * 1000, document_first_token * 1000, document, document_every * 1000, chat_every * 1000
    )
    return _told(experiment.goodput(asked, read_coefficients(cost)), plot, json_file)


def _told(found: "Experiment", plot: Path | None, json_file: str | None) -> int:
    if plot is not None:
        from kvescrow.checks.experiments.plotting import write_plot

        write_plot(found, plot)
    lines = [
        found.question,
        columns([found.columns, *found.rows]),
        *found.findings,
        *(f"{each.origin.value}: {each.name} {each.value:,} {each.unit}".rstrip() for each in found.inputs),
        *(f"assumed: {each}" for each in found.assumptions),
    ]
    return conclude(found.to_json(), "\n".join(lines), json_file)


def _serve(name: str, port: int, cost: Path | None = None) -> int:
    """Serve the page called `name` on this machine until it is interrupted; return its exit status."""
    from kvescrow.checks.experiments.coefficients import read_coefficients

    # A file that is none is better told here than on the page.
    read_coefficients(cost)
    if util.find_spec("marimo") is None or util.find_spec("matplotlib") is None:
        raise UserError("pages need marimo and matplotlib: pip install 'kvescrow[pages,plots]'")
    page = str(resources.files("kvescrow.checks.experiments.apps") / f"{name}.py")
    click.echo(f"http://127.0.0.1:{port}", err=True)
    arguments = ["--headless", "--host", "127.0.0.1", "--port", str(port), "--no-token"]
    arguments += ["--", "--cost", str(cost.absolute())] if cost is not None else []
    return subprocess.run([sys.executable, "-m", "marimo", "-q", "run", page, *arguments], check=False).returncode
