"""State diagrams in Mermaid, which GitHub draws."""

from enum import Enum

from kvescrow.spec.language.expressions import Binary, Literal
from kvescrow.spec.language.table import Row, Table
from kvescrow.spec.render.expressions import conjuncts, readable
from kvescrow.spec.tables.reservation import RESERVATION


def state_diagram(table: Table) -> str:
    """Return the Mermaid text of `table`: its states and the rows that change them, parallel ones merged.

    An arrow says `event.row`, or `event (n rows)` where several rows of one event take it.
    """
    lines = ["stateDiagram-v2"]
    lines += [f"    {state.name}" for state in table.state_type]
    lines += [f"    [*] --> {state.name}" for state in _initial(table)]
    lines += [
        f"    {source.name} --> {target.name} : {_label(table, rows)}"
        for (source, target), rows in _edges(table).items()
    ]
    return "\n".join(lines)


def lifecycle_diagram() -> str:
    """Return the Mermaid text of a reservation's life."""
    return state_diagram(RESERVATION)


def moves_state(table: Table) -> bool:
    """Return whether any row of `table` changes the state."""
    return bool(_edges(table))


def _initial(table: Table) -> list[Enum]:
    """Return the states that `table.initial` names; a state that it only allows is not one where things begin."""
    subject = readable(table.state)
    return [
        part.right.value
        for part in conjuncts(table.initial)
        if isinstance(part, Binary) and part.operator == "==" and readable(part.left) == subject
        if isinstance(part.right, Literal) and isinstance(part.right.value, Enum)
    ]


def _edges(table: Table) -> dict[tuple[Enum, Enum], list[Row]]:
    edges: dict[tuple[Enum, Enum], list[Row]] = {}
    for row in table.rows:
        for source in row.sources:
            if row.to is not None and row.to is not source:
                edges.setdefault((source, row.to), []).append(row)
    return edges


def _label(table: Table, rows: list[Row]) -> str:
    by_event: dict[str, list[Row]] = {}
    for row in rows:
        by_event.setdefault(row.event, []).append(row)
    return ", ".join(
        f"{event} ({len(same)} rows)" if len(same) > 1 else same[0].id.removeprefix(f"{table.name}.")
        for event, same in by_event.items()
    )
