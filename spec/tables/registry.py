"""All tables, in reading order. Whatever reads tables reads this list."""

import hashlib
from collections.abc import Iterable, Mapping

from kvescrow.spec.language.table import Table, effects_of
from kvescrow.spec.tables.account import ACCOUNT
from kvescrow.spec.tables.chunk_choice import CHUNK_CHOICE
from kvescrow.spec.tables.execution import EXECUTION, TICKET
from kvescrow.spec.tables.page import PAGE
from kvescrow.spec.tables.promise import PROMISE
from kvescrow.spec.tables.release import RELEASE
from kvescrow.spec.tables.reservation import RESERVATION
from kvescrow.spec.tables.scope_reuse import SCOPE_REUSE

ALL_TABLES: tuple[Table, ...] = (
    RESERVATION,
    ACCOUNT,
    PROMISE,
    PAGE,
    EXECUTION,
    TICKET,
    SCOPE_REUSE,
    CHUNK_CHOICE,
    RELEASE,
)
TABLE_BY_NAME: Mapping[str, Table] = {table.name: table for table in ALL_TABLES}


def digest(tables: Iterable[Table] = ALL_TABLES) -> str:
    """Return a SHA-256 over every row of `tables`: two runs with equal digests were checked against equal rows."""
    lines = [
        "\t".join(
            (
                row.id,
                ",".join(state.name for state in row.sources),
                str(row.when),
                row.to.name if row.to else "-",
                ";".join(str(effect) for effect in effects_of(table, row)),
                str(row.reply),
            )
        )
        for table in tables
        for row in table.rows
    ]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
