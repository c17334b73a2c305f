"""The words of tables and replies with their meaning, which is read from the source: a member's docstring."""

import ast
import inspect
import textwrap
from collections.abc import Iterable, Mapping
from enum import Enum
from types import ModuleType

from kvescrow.spec.language.table import Table
from kvescrow.spec.render.markdown import NONE, anchor, code, document, table
from kvescrow.spec.vocabulary import Decision, Reason, events, replies, states


def vocabulary_enums(tables: Iterable[Table]) -> tuple[type[Enum], ...]:
    """Return every enum of the shared vocabulary and every state type of `tables`, in reading order."""
    found = [enum for module in (states, events, replies) for enum in _enums_of(module)]
    found += [each.state_type for each in tables if each.state_type not in found]
    return tuple(found)


def _enums_of(module: ModuleType) -> list[type[Enum]]:
    return [
        each
        for each in vars(module).values()
        if inspect.isclass(each) and issubclass(each, Enum) and each.__module__ == module.__name__
    ]


def member_notes(enum: type[Enum]) -> Mapping[str, str]:
    """Return the docstring of each member of `enum`, by name; a member without one is left out."""
    body = ast.parse(textwrap.dedent(inspect.getsource(enum))).body[0]
    assert isinstance(body, ast.ClassDef)
    notes: dict[str, str] = {}
    for statement, following in zip(body.body, body.body[1:], strict=False):
        match statement, following:
            case ast.Assign(targets=[ast.Name(id=name)]), ast.Expr(value=ast.Constant(value=str(text))):
                notes[name] = " ".join(text.split())
    return notes


def vocabulary_page(tables: Iterable[Table]) -> str:
    """Return the Markdown of all words, and for decisions and reasons which tables answer them."""
    known = tuple(tables)
    return document(
        "# Words",
        "States, events, decisions and reasons. Tables, journals and replies use these names and no others. "
        "[All tables](tables/index.md).",
        *(_section(enum, known) for enum in vocabulary_enums(known)),
    )


def _section(enum: type[Enum], tables: tuple[Table, ...]) -> str:
    notes = member_notes(enum)
    answered = enum in (Decision, Reason)
    columns = ("word", "meaning", *(("changes", "answered in") if enum is Decision else ("answered in",) * answered))
    rows = []
    for member in enum:
        cells = [f"{anchor(f'{enum.__name__}.{member.name}')}{code(member.value)}", notes[member.name]]
        if isinstance(member, Decision):
            cells.append("nothing" if member.changes_nothing else "yes")
        if answered:
            cells.append(_answered(member, tables))
        rows.append(cells)
    return document(f"## {enum.__name__}", inspect.cleandoc(enum.__doc__ or ""), table(columns, rows)).rstrip()


def _answered(word: Enum, tables: tuple[Table, ...]) -> str:
    counts = {each.name: sum(word in (row.reply.decision, row.reply.reason) for row in each.rows) for each in tables}
    return ", ".join(f"[{name}](tables/{name}.md) {count}" for name, count in counts.items() if count) or NONE
