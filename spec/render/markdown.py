"""Pieces of Markdown that GitHub shows as meant."""

from collections.abc import Iterable, Sequence
from enum import Enum

from kvescrow.spec.language.expressions import Expression
from kvescrow.spec.render.expressions import conjuncts, readable

BREAK = "<br>"
NONE = "-"
"""What stands in a cell that has nothing to say, so that no cell is empty."""


def code(text: str) -> str:
    """Return `text` as code, safe inside a table."""
    return f"`{text.replace('|', chr(92) + '|')}`"


def anchor(name: str) -> str:
    """Return an invisible target for links to `#name`."""
    return f'<a id="{name}"></a>'


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; every row must have a cell for each column."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def condition(expression: Expression) -> str:
    """Return a condition as code, one conjunct a line."""
    return f"{BREAK}and ".join(code(readable(part)) for part in conjuncts(expression))


def states(members: Sequence[Enum], all_members: type[Enum]) -> str:
    """Return a list of states, said by the exceptions where that is much shorter."""
    left_out = [member for member in all_members if member not in members]
    if not left_out and len(members) > 1:
        return "any state"
    if len(left_out) * 3 <= len(members):
        return f"any but {', '.join(member.name for member in left_out)}"
    return ", ".join(member.name for member in members)


def cites(ids: Iterable[str], folder: str) -> str:
    """Return requirement ids as links to the trace page, which lies in `folder` seen from here."""
    return " ".join(f"[{cite}]({folder}requirements-trace.md#{cite})" for cite in ids) or NONE


def document(*parts: str) -> str:
    """Return the parts with an empty line between them; empty parts are left out."""
    return "\n\n".join(part for part in parts if part) + "\n"
