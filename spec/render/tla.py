"""A table as a TLA+ module, for readers of that language and for checkers that share no code with this project.

The module has no variables. A view is a record of records, an event's parameters are a record, and each event is an
operator that gives the row that fires and the view after it. Whoever checks a finite system binds views to variables.
Members of enums are strings, and names are whatever can be compared, 0 for nobody.
"""

from collections.abc import Iterator, Sequence

from kvescrow.spec.language.expressions import TRUE, Field
from kvescrow.spec.language.table import Event, Row, Table, effects_of
from kvescrow.spec.render.tla_expressions import (
    HELPERS,
    WIDTH,
    TlaPrinter,
    conjoined,
    tla_membership,
    tla_set,
)

NO_ROW = "none"
"""What an event gives as its row where no row fires; no table lets that happen."""
GHOSTS = "after_ghosts"
"""Operator that sets the fields which exist for the proof alone; only in modules of tables that have such fields."""
_RULE = "-" * 79


def tla_module(table: Table) -> str:
    """Return `table` as the TLA+ module of its name; equal tables give equal text."""
    lines = [
        f" MODULE {table.name} ".center(79, "-"),
        *_comment(table.note),
        "\\*",
        *_comment(
            "v is the view that a row sees: a record of entities, each a record of fields. e has the parameters of the "
            "event. An event gives the row that fires and the view after it. Rows are read from the top: the first "
            "whose states and guard fit decides, and a row that refuses changes nothing."
        ),
        "\\*",
        *(line for entity in table.entities for line in _comment(f"v.{entity.name}: {entity.note}")),
        "EXTENDS Integers",
        "",
        f"States == {tla_set(table.state_type)}",
        "",
        *HELPERS,
    ]
    for event in table.events:
        lines += ["", _RULE, *_event(table, event)]
    lines += _ghosts(table)
    if table.invariants:
        lines += ["", _RULE, "\\* Invariants: they hold of every view."]
    for invariant in table.invariants:
        lines += ["", *_comment(invariant.note, invariant.cites), f"{invariant.name}(v) =="]
        lines += _PRINTER.lines(invariant.holds, "    ")
    if table.rules:
        lines += ["", _RULE, "\\* Step rules: they hold of every step from the view `old` to the view v."]
    for rule in table.rules:
        lines += ["", *_comment(rule.note, rule.cites)]
        if rule.events is not None:
            names = [event.name for event in table.events if event.name in rule.events]
            lines += _comment(f"For {', '.join(names)}.")
        lines += [f"{rule.name}(old, v, e) ==", *_PRINTER.lines(rule.holds, "    ")]
    return "\n".join([*lines, "", "=" * 79, ""])


def _of_view(field: Field, old: bool) -> str:
    if field.entity == "event":
        return f"e.{field.name}"
    return f"{'old' if old else 'v'}.{field.entity}.{field.name}"


_PRINTER = TlaPrinter(_of_view)


def _event(table: Table, event: Event) -> Iterator[str]:
    yield from _comment(f"{event.name}: {event.note}")
    yield ""
    yield f"{event.name}(v, e) =="
    yield f"    LET state == v.{table.moves.name}.state IN"
    for number, row in enumerate(row for row in table.rows if row.event == event.name):
        yield from _comment(f"{row.reply}: {row.note}", row.cites, indent="    ")
        yield from conjoined(_guard(table, row), "    ELSE IF " if number else "    IF ")
        yield from _outcome(table, row)
    yield "    \\* Every case is decided above."
    yield f'    ELSE [row |-> "{NO_ROW}", view |-> v]'


def _ghosts(table: Table) -> list[str]:
    if not table.ghosts:
        return []
    effects = [f"!.{ghost.target.entity}.{ghost.target.name} = {_PRINTER.text(ghost.update)}" for ghost in table.ghosts]
    return [
        "",
        _RULE,
        "\\* Fields for the proof alone: what they are after a step from the view `old` to the view v.",
        *(line for ghost in table.ghosts for line in _comment(f"{ghost.target}: {ghost.note}")),
        "",
        f"{GHOSTS}(old, v) == [v EXCEPT",
        *(f"    {effect}," for effect in effects[:-1]),
        f"    {effects[-1]}]",
    ]


def _guard(table: Table, row: Row) -> list[str]:
    others = [state for state in table.state_type if state not in row.sources]
    parts = []
    if others:
        shorter = len(others) < len(row.sources)
        members = others if shorter else row.sources
        parts.append(tla_membership("state", members, negated=shorter))
    if row.when is not TRUE:
        parts += _PRINTER.conjuncts(row.when)
    return parts


def _outcome(table: Table, row: Row) -> Iterator[str]:
    name = row.id.removeprefix(f"{table.name}.")
    effects = [
        f"!.{effect.target.entity}.{effect.target.name} = {_PRINTER.text(effect.value)}"
        for effect in effects_of(table, row)
    ]
    if not effects:
        yield f'    THEN [row |-> "{name}", view |-> v]'
        return
    yield f'    THEN [row |-> "{name}", view |-> [v EXCEPT'
    yield from (f"            {effect}," for effect in effects[:-1])
    yield f"            {effects[-1]}]]"


def _comment(note: str, cites: Sequence[str] = (), indent: str = "") -> Iterator[str]:
    """Yield `note` as comment lines, with the requirements that it cites."""
    words = f"{note} [{' '.join(cites)}]" if cites else note
    start = line = f"{indent}\\*"
    for word in words.split():
        if len(line) + 1 + len(word) > WIDTH:
            yield line
            line = start
        line += f" {word}"
    yield line
