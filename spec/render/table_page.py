"""The page of one table: what it sees, its states, every cell, every row, and what holds of it."""

from collections.abc import Callable, Iterable, Sequence
from enum import Enum

from kvescrow.spec.language.expressions import TRUE, Expression, type_name
from kvescrow.spec.language.table import Event, NonInterference, Row, Table
from kvescrow.spec.render.diagrams import moves_state, state_diagram
from kvescrow.spec.render.expressions import readable
from kvescrow.spec.render.markdown import BREAK, NONE, anchor, cites, code, condition, document, states, table

UP = "../"
"""From the folder of table pages to the other generated pages."""


def table_page(subject: Table) -> str:
    """Return the Markdown of one table, without the header that all generated pages have."""
    return document(
        f"# Table `{subject.name}`",
        subject.note,
        f"[All tables](index.md) | [Words]({UP}vocabulary.md) | [Requirements]({UP}requirements-trace.md)",
        _entities(subject),
        _states(subject),
        _cells(subject),
        _rows(subject),
        _laws(subject),
    )


def _entities(subject: Table) -> str:
    rows = [
        (
            code(entity.name),
            BREAK.join(code(f"{name}: {type_name(kind)}") for name, kind in entity.fields.items()),
            "read only" if entity.settled else "read and written",
            entity.note or NONE,
        )
        for entity in subject.entities
    ]
    return document(
        "## What a row sees",
        f"It moves `{subject.moves.name}.state`, and reads the parameters of the event as `event`.",
        table(("entity", "fields", "by rows", "stands for"), rows),
    ).rstrip()


def _states(subject: Table) -> str:
    if not moves_state(subject):
        return "## States\n\nNo row changes the state: the table only decides."
    return document(
        "## States",
        "Rows that leave the state as it is are not drawn.",
        f"```mermaid\n{state_diagram(subject)}\n```",
        f"Begins where `{readable(subject.initial)}`.",
    ).rstrip()


def _cells(subject: Table) -> str:
    columns = ("state", *(event.name for event in subject.events))
    rows = [
        (BREAK.join(state.name for state in group), *(_cell(subject, group[0], event) for event in subject.events))
        for group in _groups(subject)
    ]
    return document(
        "## Every cell",
        "The rows of a cell are read from the top, and the first whose guard holds decides. "
        "States with equal cells share a line.",
        table(columns, rows),
    ).rstrip()


def _groups(subject: Table) -> Iterable[Sequence[Enum]]:
    groups: dict[tuple[tuple[str, ...], ...], list[Enum]] = {}
    for state in subject.state_type:
        cells = tuple(tuple(row.id for row in subject.cells[state, event.name]) for event in subject.events)
        groups.setdefault(cells, []).append(state)
    return groups.values()


def _cell(subject: Table, state: Enum, event: Event) -> str:
    return BREAK.join(f"[{_short(row)}](#{row.id})" for row in subject.cells[state, event.name])


def _short(row: Row) -> str:
    return row.id.rsplit(".", maxsplit=1)[1]


def _rows(subject: Table) -> str:
    return document("## Rows", *(_rows_of(subject, event) for event in subject.events)).rstrip()


def _rows_of(subject: Table, event: Event) -> str:
    parameters = ", ".join(code(f"{name}: {type_name(kind)}") for name, kind in event.parameters.items())
    return document(
        f"### {event.name}",
        f"{_sentence(event.note)} Parameters: {parameters or 'none'}.",
        table(
            ("row", "in", "where", "does", "answers", "cites", "since"),
            [_row(subject, row) for row in subject.rows if row.event == event.name],
        ),
    ).rstrip()


def _row(subject: Table, row: Row) -> Sequence[str]:
    return (
        f"{anchor(row.id)}{code(row.id)}",
        states(row.sources, subject.state_type),
        "always" if row.when is TRUE else condition(row.when),
        _effects(row),
        str(row.reply),
        cites(row.cites, UP),
        row.note,
    )


def _effects(row: Row) -> str:
    target = [f"to {row.to.name}"] if row.to is not None else []
    return BREAK.join([*target, *(code(f"{e.target} := {readable(e.value)}") for e in row.do)]) or "changes nothing"


def _laws(subject: Table) -> str:
    law = _named(subject)
    return document(
        _section(
            "Invariants",
            "They hold in every reachable state, for any number of entities.",
            ("name", "holds", "cites", "says"),
            [(law(each.name), condition(each.holds), cites(each.cites, UP), each.note) for each in subject.invariants],
        ),
        _section(
            "Step rules",
            "They hold over every step of their events; `before(...)` is the value before it.",
            ("name", "events", "holds", "cites", "says"),
            [
                (law(each.name), _events(subject, each.events), condition(each.holds), cites(each.cites, UP), each.note)
                for each in subject.rules
            ],
        ),
        _section(
            "Non-interference",
            "Take two runs of the event with equal parameters. Where they agree on what is listed, "
            "they get the same answer and still agree after it.",
            ("name", "event", "the runs agree on", "cites", "says"),
            [_promise(law(each.name), each) for each in subject.non_interference],
        ),
        _section(
            "Assumptions",
            "What is proved of this table rests on them.",
            ("name", "events", "holds", "says"),
            [
                (law(each.name), _events(subject, each.events), condition(each.holds), each.note)
                for each in subject.assumptions
            ],
        ),
        _section(
            "Sometimes",
            "Situations that must be reached, so that no invariant holds for want of cases.",
            ("name", "reached where", "says"),
            [(law(each.name), condition(each.reached), each.note) for each in subject.sometimes],
        ),
        _section(
            "Ghosts",
            "Fields that exist for the proof alone; each gets its new value after every step.",
            ("field", "new value", "says"),
            [(code(str(each.target)), code(readable(each.update)), each.note) for each in subject.ghosts],
        ),
    ).rstrip()


def _section(title: str, says: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return f"## {title}\n\nNone."
    return document(f"## {title}", says, table(columns, rows)).rstrip()


def _named(subject: Table) -> Callable[[str], str]:
    return lambda name: f"{anchor(f'{subject.name}.{name}')}{code(name)}"


def _events(subject: Table, names: frozenset[str] | None) -> str:
    ordered = [event.name for event in subject.events]
    if names is None or names == set(ordered):
        return "every"
    left_out = [name for name in ordered if name not in names]
    if len(left_out) < len(names):
        return f"every but {', '.join(left_out)}"
    return ", ".join(name for name in ordered if name in names)


def _promise(name: str, promise: NonInterference) -> Sequence[str]:
    agreed = [_listed(promise.same)]
    agreed += [f"where {condition(when)} in either run, also {_listed(same)}" for when, same in promise.same_when]
    return (name, promise.event, BREAK.join(agreed), cites(promise.cites, UP), promise.note)


def _listed(expressions: Iterable[Expression]) -> str:
    return ", ".join(code(readable(each)) for each in expressions)


def _sentence(note: str) -> str:
    return f"{note[0].upper()}{note[1:]}{'' if note.endswith(('?', '.')) else '.'}"
