"""Bars for measurements, as SVG drawn here, so that a page needs neither a script nor a plotting library."""

import html
import math
from collections.abc import Sequence

from attrs import frozen

LABEL, BAR, ROW = 250, 360, 26


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
