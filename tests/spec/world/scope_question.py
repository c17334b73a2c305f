"""The scope reuse table, asked."""

from __future__ import annotations

from collections.abc import Mapping

from kvescrow.spec.language.compiler import compiled
from kvescrow.spec.language.interpreter import Value
from kvescrow.spec.language.table import Table
from kvescrow.spec.tables.registry import TABLE_BY_NAME
from kvescrow.spec.tables.scope_reuse import Question, content, published, question, request
from kvescrow.spec.world.ledger import Watch
from kvescrow.spec.world.outcome import MutableRecord, apply_row, blank
from tests.field_reports.replies import Answer

FOUND = {"matchable": True, "chain_equal": True, "tokens_equal": True}
"""A published page with the chain and the tokens that were looked for."""


class ScopeQuestion:
    """One question. It is answered no until a row says yes; after that it stays answered."""

    def __init__(self, tables: Mapping[str, Table] = TABLE_BY_NAME, watch: Watch | None = None) -> None:
        self._table = compiled(tables["scope_reuse"])
        self._watch = watch
        self._question = blank(question, state=Question.ASKED)

    @property
    def yes(self) -> bool:
        """Whether it was answered with yes."""
        return bool(self._question["yes"])

    def look_up(self, asks: MutableRecord, page: MutableRecord, **what: Value) -> Answer:
        """Ask whether a request of scope `asks` may reuse a page of scope `page`."""
        return self._ask("look_up", asks, page, {**FOUND, **what}, {})

    def publish(self, asks: MutableRecord, *, authorised: bool) -> Answer:
        """Ask whether a request of scope `asks` may publish under it."""
        return self._ask("publish", asks, blank(published), blank(content), {"authorised": authorised})

    def _ask(
        self, event: str, asks: MutableRecord, page: MutableRecord, what: MutableRecord, parameters: MutableRecord
    ) -> Answer:
        view = {"question": self._question, "request": asks, "published": page, "content": what}
        outcome = apply_row(self._table, view, event, parameters, self._watch)
        return Answer(outcome.decision, outcome.reason)


def scope(**fields: Value) -> MutableRecord:
    """Return a scope record with these fields."""
    return blank(request, **fields)
