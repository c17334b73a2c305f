"""The plots of a replay: utilisation, waits by class, gaps against their budget, service against the fairness bound.

And the plot of several replays: what each reservation policy comes to.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kvescrow.spec.vocabulary import UserError

Figures = Mapping[str, Any]


def draw(result: Figures, folder: Path) -> list[Path]:
    """Draw the four plots of a replay's result into `folder`, and return the files.

    Raises:
        UserError: matplotlib is not installed, or the folder cannot be written.

    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UserError("--plots needs matplotlib: pip install 'kvescrow[plots]'") from None
    drawings = {
        "utilisation": _utilisation,
        "waits": _waits,
        "gaps": _gaps,
        "service": _service,
    }
    files: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, drawing in drawings.items():
            figure = Figure(figsize=(7, 4), layout="constrained")
            axes = figure.subplots()
            drawing(axes, result)
            axes.set_title(f"{result['trace']}: {result['policy']['reserved']}, {result['policy']['order']}")
            files.append(folder / f"{name}.png")
            figure.savefig(files[-1], dpi=120)
    except OSError as error:
        raise UserError(f"{folder}: cannot be written ({error.strerror or error}); name another folder") from None
    return files


def draw_policies(figures: Mapping[str, Figures], path: Path) -> None:
    """Draw what each policy's replay came to: objectives met, the pool's use, and what it cost its requests.

    Raises:
        UserError: matplotlib is not installed, or the file cannot be written.

    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UserError("--plot needs matplotlib: pip install 'kvescrow[plots]'") from None
    names = list(figures)
    panels = {
        "met their objectives, %": [100 * figures[name]["goodput"]["share"] for name in names],
        "pool reserved, %": [100 * figures[name]["utilisation"] for name in names],
        "growth denied": [figures[name]["denials"] for name in names],
        "preempted": [figures[name]["preemptions"] for name in names],
    }
    figure = Figure(figsize=(10, 3.2), layout="constrained")
    for axes, (title, values) in zip(figure.subplots(1, len(panels), sharey=True), panels.items(), strict=True):
        axes.bar_label(axes.barh(names, values), fmt="{:.4g}", padding=2)
        axes.set_title(title, fontsize=10)
        axes.margins(x=0.25)
    try:
        figure.savefig(path, dpi=120)
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror or error}); name another file") from None


def _utilisation(axes: Any, result: Figures) -> None:
    course = result["curves"]["utilisation"]
    step = result["virtual_span"] / 1e6 / len(course)
    axes.plot([(index + 0.5) * step for index in range(len(course))], [100 * value for value in course])
    axes.set(xlabel="virtual time, s", ylabel="pool reserved, %", ylim=(0, 105))


def _waits(axes: Any, result: Figures) -> None:
    for name, samples in result["curves"]["queue_wait"].items():
        if samples:
            axes.plot([value / 1e6 for value in samples], range(len(samples)), label=name)
    axes.set(xlabel="wait for admission, s", ylabel="admitted requests, %")
    axes.legend()


def _gaps(axes: Any, result: Figures) -> None:
    for name, samples in result["curves"]["token_gap"].items():
        budget = result["classes"][name]["objectives"]["token_gap"]
        if samples:
            (line,) = axes.plot([value / 1e3 for value in samples], range(len(samples)), label=name)
            if budget is not None:
                axes.axvline(budget / 1e3, color=line.get_color(), linestyle="--", label=f"{name}: budget")
    axes.set(xlabel="gap between tokens, ms", ylabel="gaps, %")
    axes.legend()


def _service(axes: Any, result: Figures) -> None:
    """Draw normalised service of each class and tenant; the bound is how far two may lie apart while both wait."""
    service = result["curves"]["service"]
    names = list(service)
    axes.bar(range(len(names)), [service[name] for name in names])
    axes.set_xticks(range(len(names)), names, rotation=90 if len(names) > 6 else 0, fontsize=7)
    axes.set(ylabel="tokens served")
    fairness = result["fairness"]
    pair = fairness and (fairness["tenants"] or fairness["classes"])
    if pair:
        axes.set_xlabel(f"widest gap {pair['gap']:.0f}, bound {pair['bound']:.0f} tokens over weight, while both wait")
