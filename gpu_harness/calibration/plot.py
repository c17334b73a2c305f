"""The picture of a calibration: predicted against measured, and the token gaps with the rule and without it."""

from pathlib import Path
from typing import TYPE_CHECKING

from kvescrow.gpu_harness.calibration.result import Calibration
from kvescrow.reference.scheduler.cost import PERMILLE
from kvescrow.spec.vocabulary import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MILLISECOND = 1000


def write_plot(found: Calibration, path: Path) -> None:
    """Write the picture to `path`, as the end of its name says.

    Raises:
        UserError: matplotlib is not installed, or the file cannot be written.

    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError(f"a plot needs matplotlib ({error}): install kvescrow[plots]") from error
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    _predictions(left, found)
    _gaps(right, found)
    try:
        figure.savefig(path, dpi=120)
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be written ({error}); name a .png or .svg file") from error


def _predictions(ax: "Axes", found: Calibration) -> None:
    for name, steps, colour in (("fit", found.fit_to, "#9aa5b1"), ("held out", found.held_out, "#c8641e")):
        predicted = [found.model.cost.duration(step.work) / MILLISECOND for step in steps]
        ax.scatter(predicted, [step.microseconds / MILLISECOND for step in steps], s=9, c=colour, label=name)
    ends = [min(predicted), max(predicted)]
    share = found.model.band / PERMILLE
    ax.plot(ends, ends, c="black", lw=0.8)
    ax.fill_between(
        ends,
        [max(0.0, 1 - share) * each for each in ends],
        [(1 + share) * each for each in ends],
        color="#2a6fb0",
        alpha=0.12,
        label=f"band, {found.model.band / 10:.0f} %",
    )
    ax.set(xscale="log", yscale="log", xlabel="predicted step, ms", ylabel="measured step, ms", title="Cost model")
    ax.tick_params(which="minor", labelbottom=False, labelleft=False)
    ax.legend()


def _gaps(ax: "Axes", found: Calibration) -> None:
    runs = (
        ("chunk rule", found.with_rule, "#2a6fb0"),
        (f"fixed chunk of {found.budget.largest}", found.with_fixed, "#c8641e"),
    )
    for name, served, colour in runs:
        ordered = sorted(served.gaps)
        shares = [(place + 1) / len(ordered) for place in range(len(ordered))]
        ax.step([gap / MILLISECOND for gap in ordered], shares, where="post", c=colour, label=name)
    ax.axvline(found.gap / MILLISECOND, c="#b3261e", ls="--", label="budget")
    ax.set(xscale="log", xlabel="token gap, ms", ylabel="share of gaps at most that", title="Token gaps")
    ax.tick_params(which="minor", labelbottom=False)
    ax.legend()
