"""What an experiment reports: its inputs with where they come from, what is assumed, what came out, and plots."""

from enum import Enum
from typing import Any

from attrs import asdict, field, frozen


class Origin(Enum):
    """Where an input comes from (EXP-1)."""

    CHOSEN = "chosen"
    """A constraint that the reader moves."""
    SYNTHETIC = "synthetic"
    """Made up; it was measured on nothing."""
    MEASURED = "measured"
    """Read from a file that the reader says was measured."""


@frozen
class Input:
    """One input."""

    name: str
    value: int | bool
    unit: str
    origin: Origin


@frozen
class Line:
    """Points that belong together; a point without a value is left out."""

    label: str
    points: tuple[tuple[float, float], ...]


@frozen
class Plot:
    """Lines over one axis, with limits as horizontal lines."""

    title: str
    x: str
    y: str
    lines: tuple[Line, ...]
    limits: tuple[tuple[str, float], ...] = ()
    logarithmic: bool = False
    """Whether the horizontal axis is logarithmic."""


@frozen
class Experiment:
    """One run of one experiment."""

    name: str
    question: str
    inputs: tuple[Input, ...]
    assumptions: tuple[str, ...]
    findings: tuple[str, ...]
    """What came out, a sentence each."""
    figures: dict[str, Any]
    """The same for programs."""
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    plots: tuple[Plot, ...] = field(repr=False)

    def to_json(self) -> dict[str, Any]:
        """Return the record as plain lists and dictionaries; the verdict says that it ran."""
        inputs = [{**asdict(each), "origin": each.origin.value} for each in self.inputs]
        return {
            "verdict": "passed",
            "experiment": self.name,
            "question": self.question,
            "inputs": inputs,
            "assumptions": list(self.assumptions),
            "findings": list(self.findings),
            "figures": self.figures,
            "rows": [dict(zip(self.columns, row, strict=True)) for row in self.rows],
            "plots": [asdict(plot) for plot in self.plots],
        }

    def inputs_as_markdown(self) -> str:
        """Return the inputs and the assumptions as Markdown, for a page."""
        lines = ["| input | value | unit | origin |", "| --- | ---: | --- | --- |"]
        lines += [f"| {one.name} | {one.value:,} | {one.unit} | {one.origin.value} |" for one in self.inputs]
        return "\n".join([*lines, "", "**Assumed**", "", *(f"- {each}" for each in self.assumptions)])

    def as_markdown(self) -> str:
        """Return the findings and the rows as Markdown, for a page."""
        lines = [*(f"- {each}" for each in self.findings), ""]
        lines += [f"| {' | '.join(self.columns)} |", f"| {' | '.join('---' for _ in self.columns)} |"]
        return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in self.rows)])


def milliseconds(microseconds: float) -> str:
    """Return a time as people read it."""
    return f"{microseconds / 1000:,.1f} ms"
