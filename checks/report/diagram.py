"""State diagrams as SVG, laid out here: no script and no network draws them.

Each state is a column, and each line shows one event: from where (dots) to where (tip). Nothing crosses, so a table of
eleven states reads as easily as one of two. Colours come from the page, for the light and for the dark.
"""

import html
from collections.abc import Iterable, Mapping
from enum import Enum

from attrs import frozen

from kvescrow.spec.language.table import Row, Table

LABEL = 104
"""Width of the column of event names."""
COLUMN = 97
TOP = 52
LINE = 26
GAP = 10
"""Between the lines of two events."""
TIP = 7


@frozen
class Change:
    """One event leads from some states to one."""

    event: str
    sources: tuple[Enum, ...]
    target: Enum
    rows: tuple[Row, ...]


def edges_of(table: Table) -> Mapping[tuple[Enum, Enum], tuple[Row, ...]]:
    """Return the rows of each change of state, in reading order."""
    edges: dict[tuple[Enum, Enum], list[Row]] = {}
    for row in table.rows:
        for source in row.sources:
            if row.to is not None and row.to is not source:
                edges.setdefault((source, row.to), []).append(row)
    return {edge: tuple(rows) for edge, rows in edges.items()}


def changes_of(table: Table) -> tuple[Change, ...]:
    """Return the changes of state by event and target, in the order of the table's events."""
    found: dict[tuple[str, Enum], tuple[dict[Enum, None], dict[str, Row]]] = {}
    for (source, target), rows in edges_of(table).items():
        for row in rows:
            sources, taken = found.setdefault((row.event, target), ({}, {}))
            sources[source] = None
            taken[row.id] = row
    order = [event.name for event in table.events]
    states = list(table.state_type)
    return tuple(
        Change(event, tuple(sorted(sources, key=states.index)), target, tuple(taken.values()))
        for (event, target), (sources, taken) in sorted(
            found.items(), key=lambda each: (order.index(each[0][0]), states.index(each[0][1]))
        )
    )


def state_diagram(table: Table, first: Iterable[Enum]) -> str:
    """Return the SVG of `table`, whose things begin in one of `first`; empty where no row changes the state.

    States and events link to `#state-NAME` and `#event-NAME`; each line names its rows in a title.
    """
    changes = changes_of(table)
    if not changes:
        return ""
    columns = {state: LABEL + COLUMN * (number + 0.5) for number, state in enumerate(table.state_type)}
    places = _places(changes)
    width, height = LABEL + COLUMN * len(columns) + 8, places[-1] + LINE
    begins = set(first)
    drawn = [
        f'<svg class="diagram" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="group" '
        f'aria-label="Changes of state in {table.name}">'
    ]
    for state, x in columns.items():
        drawn.append(f'<line class="lane" data-states="{state.name}" x1="{x}" x2="{x}" y1="{TOP - 8}" y2="{height}"/>')
        drawn.append(_head(state, x, begins=state in begins))
    before = ""
    for change, y in zip(changes, places, strict=True):
        if change.event != before:
            drawn.append(
                f'<a href="#event-{change.event}"><text class="event" x="6" y="{y + 4}">{change.event}</text></a>'
            )
        drawn.append(_line(change, columns, y))
        before = change.event
    return "\n".join([*drawn, "</svg>"])


def _places(changes: Iterable[Change]) -> list[int]:
    """Return the height of each line, events a little apart."""
    places: list[int] = []
    before = ""
    for change in changes:
        last = places[-1] if places else TOP - GAP
        places.append(last + LINE + (GAP if change.event != before else 0))
        before = change.event
    return places


def _head(state: Enum, x: float, *, begins: bool) -> str:
    kind = "state begins" if begins else "state"
    return (
        f'<a href="#state-{state.name}" class="{kind}" data-state="{state.name}">'
        f'<rect x="{x - COLUMN / 2 + 3}" y="10" width="{COLUMN - 6}" height="{TOP - 20}" rx="7"/>'
        f'<text x="{x}" y="{TOP / 2 + 4}">{state.name}</text></a>'
    )


def _line(change: Change, columns: Mapping[Enum, float], y: float) -> str:
    target = columns[change.target]
    sources = [columns[source] for source in change.sources]
    names = " ".join(state.name for state in (*change.sources, change.target))
    rows = ", ".join(row.id for row in change.rows)
    title = f"{', '.join(state.name for state in change.sources)} to {change.target.name}: {rows}"
    # States on the left of the target and those on its right each reach it from their own side.
    ends = [(min(sources), -TIP) for _ in sources[:1] if min(sources) < target]
    ends += [(max(sources), TIP) for _ in sources[:1] if max(sources) > target]
    drawn = [f'<g class="change" data-states="{names}"><title>{html.escape(title)}</title>']
    for start, back in ends:
        drawn.append(f'<path class="arrow" d="M{start} {y}H{target + back}"/>')
        drawn.append(f'<path class="tip" d="M{target} {y}l{back * 1.3} -5v10z"/>')
    drawn += [f'<circle cx="{x}" cy="{y}" r="4.5"/>' for x in sources]
    return "".join([*drawn, "</g>"])
