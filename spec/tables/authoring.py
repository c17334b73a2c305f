"""Short hands for writing rows, shared by all tables."""

from collections.abc import Sequence
from enum import Enum
from typing import Protocol

from kvescrow.spec.language.expressions import TRUE, Effect, Expression
from kvescrow.spec.language.table import Reply, Row
from kvescrow.spec.vocabulary import Decision, Reason


class RowMaker(Protocol):
    """Writes one row of one table."""

    def __call__(
        self,
        name: str,
        sources: Sequence[Enum],
        reply: Reply,
        cites: str,
        note: str,
        *,
        when: Expression = TRUE,
        to: Enum | None = None,
        do: Sequence[Effect] = (),
    ) -> Row:
        """Return the row `<table>.<name>`; `name` starts with the event, `cites` has ids with spaces between."""
        ...


def rows_of(table: str) -> RowMaker:
    """Return the row maker of `table`."""

    def row(
        name: str,
        sources: Sequence[Enum],
        reply: Reply,
        cites: str,
        note: str,
        *,
        when: Expression = TRUE,
        to: Enum | None = None,
        do: Sequence[Effect] = (),
    ) -> Row:
        return Row(
            id=f"{table}.{name}",
            event=name.split(".", maxsplit=1)[0],
            sources=tuple(sources),
            reply=reply,
            cites=tuple(cites.split()),
            note=note,
            when=when,
            to=to,
            do=tuple(do),
        )

    return row


def refused(reason: Reason) -> Reply:
    """Return the refusal for `reason`."""
    return Reply(Decision.REFUSED, reason)


RECORDED = Reply(Decision.RECORDED)


def all_but(states: type[Enum], *excluded: Enum) -> tuple[Enum, ...]:
    """Return the members of `states` without `excluded`, in their order."""
    return tuple(state for state in states if state not in excluded)
