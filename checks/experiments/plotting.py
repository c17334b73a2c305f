"""Plots of experiments with matplotlib, for files and for pages."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kvescrow.checks.experiments.result import Experiment, Plot
from kvescrow.spec.vocabulary import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#2a6fb0", "#c8641e", "#3b8a4e", "#8a4fa3", "#7d7d7d")
"""Told apart also by those who do not see red and green."""
MARKERS = "osD^v"
LIMIT = "#b3261e"


def figure_of(experiment: Experiment) -> "Figure":
    """Return the plots of `experiment` side by side. Raises `UserError` where matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise UserError(f"plots need {error.name}: pip install 'kvescrow[plots]'") from error
    plots = experiment.plots
    figure = Figure(figsize=(5.2 * len(plots), 3.6), layout="constrained")
    axes: Sequence[Axes] = figure.subplots(1, len(plots), squeeze=False)[0]
    for each, ax in zip(plots, axes, strict=True):
        _draw(each, ax)
    return figure


def write_plot(experiment: Experiment, path: Path) -> None:
    """Write the plots to `path`, as the end of its name says. Raises `UserError` where that is not possible."""
    try:
        figure_of(experiment).savefig(path, dpi=110)
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: the plot cannot be written ({error}); name a .png or .svg file") from error


def _draw(plot: Plot, axes: "Axes") -> None:
    for number, line in enumerate(plot.lines):
        xs, ys = [point[0] for point in line.points], [point[1] for point in line.points]
        colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
        axes.plot(xs, ys, label=line.label, markersize=4, color=colour, marker=marker)
    for label, value in plot.limits:
        axes.axhline(value, color=LIMIT, linestyle="--", label=label)
    if plot.logarithmic:
        axes.set_xscale("log", base=2)
    axes.set(title=plot.title, xlabel=plot.x, ylabel=plot.y)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
