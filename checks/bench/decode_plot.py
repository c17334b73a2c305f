"""The picture of `kvescrow bench decode`."""

from pathlib import Path

from kvescrow.checks.bench.decode import Rates
from kvescrow.spec.vocabulary import UserError

ENGINES = ("transformers", "fast", "exact")


def write_plot(path: Path, rates: Rates, about: str) -> None:
    """Draw tokens a second by batch size and engine into a file. Raises UserError without matplotlib or a bad path."""
    try:
        from matplotlib.figure import Figure
    except ImportError as failure:
        raise UserError("plot: needs the package matplotlib; install kvescrow[plots]") from failure
    sizes = sorted({size for what, _, size in rates if what == "decode"})
    labels = [*(f"decode, batch {size}" for size in sizes), "prefill"]
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    for place, engine in enumerate(name for name in ENGINES if ("prefill", name, 1) in rates):
        heights = [*(rates["decode", engine, size] for size in sizes), rates["prefill", engine, 1]]
        axes.bar([index + 0.27 * (place - 1) for index in range(len(labels))], heights, 0.25, label=engine)
    axes.set_xticks(range(len(labels)), labels)
    axes.set_yscale("log")
    axes.set_ylabel("tokens a second of processor time")
    axes.set_title(about, fontsize="small")
    axes.legend()
    try:
        figure.savefig(path)
    except (OSError, ValueError) as failure:
        raise UserError(f"plot: {path}: {failure}; name a .png or .svg file that can be written") from failure
