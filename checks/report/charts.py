"""Bars and lines for measurements, as SVG drawn here, so that a page needs neither a script nor a plotting library."""

import html
import math
from collections.abc import Sequence

from attrs import frozen

from kvescrow.checks.report.evidence import figure

LABEL, BAR, ROW = 250, 360, 26
WIDE, HIGH, EDGE, RIGHT = 520, 260, 62, 30
"""Size of a line chart, and the margins that its figures stand in."""

Point = tuple[float, float]


@frozen
class Bar:
    """Ours against a peer's; above 1 is better."""

    name: str
    ratio: float
    says: str


def ratio_chart(title: str, bars: Sequence[Bar]) -> str:
    """Return bars of ratios on a logarithmic scale, with a line at 1 where both are equal."""
    reach = max(2.0, *(max(bar.ratio, 1 / bar.ratio) for bar in bars))
    scale = BAR / 2 / math.log(reach)
    middle = LABEL + BAR / 2
    height = ROW * (len(bars) + 1)
    drawn = [
        f'<svg class="chart" viewBox="0 0 {LABEL + BAR + 90} {height}" role="img" aria-label="{html.escape(title)}">',
        f'<line class="axis" x1="{middle}" x2="{middle}" y1="0" y2="{height - ROW}"/>',
        f'<text x="{middle}" y="{height - 8}" text-anchor="middle">equal; to the right ours is faster</text>',
    ]
    for number, bar in enumerate(bars):
        y = number * ROW
        length = math.log(bar.ratio) * scale
        start = middle if length >= 0 else middle + length
        kind = "ahead" if bar.ratio >= 1 else "behind"
        drawn += [
            f'<text x="{LABEL - 10}" y="{y + 16}" text-anchor="end">{html.escape(bar.name)}</text>',
            f'<rect class="{kind}" x="{start:.1f}" y="{y + 4}" width="{max(1.0, abs(length)):.1f}" height="{ROW - 10}" '
            f'rx="3"><title>{html.escape(bar.says)}</title></rect>',
            f'<text x="{LABEL + BAR + 8}" y="{y + 16}">{bar.ratio:.2f}x</text>',
        ]
    return "\n".join([*drawn, "</svg>"])


@frozen
class Axis:
    """One axis: its label, and whether equal factors, rather than equal differences, are equally far apart."""

    label: str
    logarithmic: bool = False


def line_chart(
    title: str, x: Axis, y: str, lines: Sequence[tuple[str, Sequence[Point]]], limits: Sequence[tuple[str, float]]
) -> str:
    """Return lines through points, from zero up, with limits as dashed lines; each point says its figures.

    `lines` has at least one point, and the points of a line come in the order of their `x`.
    """
    points = [point for _, of_line in lines for point in of_line]
    places = [_place(point[0], x) for point in points]
    left, right = min(places), max(*places, min(places) + 1e-9)
    top = max([1e-9, *(point[1] for point in points), *(value for _, value in limits)]) * 1.05

    def across(value: float) -> float:
        return EDGE + (_place(value, x) - left) / (right - left) * (WIDE - EDGE - RIGHT)

    def down(value: float) -> float:
        return HIGH - EDGE + (30 - (HIGH - EDGE)) * value / top

    drawn = [
        f'<svg class="chart lines" viewBox="0 0 {WIDE} {HIGH + ROW}" role="img" aria-label="{html.escape(title)}">',
        f'<text x="{WIDE / 2}" y="16" text-anchor="middle">{html.escape(f"{title}, {y}")}</text>',
        f'<path class="frame" d="M{EDGE} 30V{HIGH - EDGE}H{WIDE - RIGHT}"/>',
        f'<text x="{WIDE / 2}" y="{HIGH - EDGE + 36}" text-anchor="middle">{html.escape(x.label)}</text>',
    ]
    for value in sorted({point[0] for point in points})[:: max(1, len(points) // 8)]:
        drawn.append(f'<text x="{across(value):.1f}" y="{HIGH - EDGE + 18}" text-anchor="middle">{value:,.5g}</text>')
    for part in (0, 0.5, 1):
        drawn.append(
            f'<text x="{EDGE - 6}" y="{down(top * part) + 4:.1f}" text-anchor="end">{figure(top * part / 1.05)}</text>'
        )
    for label, value in limits:
        drawn.append(
            f'<path class="limit" d="M{EDGE} {down(value):.1f}H{WIDE - RIGHT}"/>'
            f'<text x="{WIDE - RIGHT - 2}" y="{down(value) - 4:.1f}" text-anchor="end">{html.escape(label)}</text>'
        )
    for number, (label, of_line) in enumerate(lines):
        drawn.append(_line(number, label, [(across(px), down(py)) for px, py in of_line], of_line))
    return "\n".join([*drawn, "</svg>"])


def _place(value: float, axis: Axis) -> float:
    return math.log(value) if axis.logarithmic else value


def _line(number: int, label: str, drawn: Sequence[Point], points: Sequence[Point]) -> str:
    name = html.escape(label)
    path = "L".join(f"{px:.1f} {py:.1f}" for px, py in drawn)
    dots = "".join(
        f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3.5"><title>{name}: {at:,.5g}, {value:,.5g}</title></circle>'
        for (px, py), (at, value) in zip(drawn, points, strict=True)
    )
    place = f'x="{EDGE + number % 3 * 150}" y="{HIGH + ROW * (number // 3) / 2 + 10}"'
    return f'<g class="line colour-{number % 5}"><path d="M{path}"/>{dots}<text {place}>&#9679; {name}</text></g>'
