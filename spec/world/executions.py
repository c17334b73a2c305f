"""A worker's executions and tickets, moved by their tables."""

from collections.abc import Mapping

from kvescrow.spec.language.compiler import compiled
from kvescrow.spec.language.interpreter import Record
from kvescrow.spec.language.table import Table
from kvescrow.spec.tables.execution import execution as execution_entity
from kvescrow.spec.tables.execution import ticket as ticket_entity
from kvescrow.spec.tables.registry import TABLE_BY_NAME
from kvescrow.spec.vocabulary import ExecutionState, TicketState
from kvescrow.spec.world.ledger import Watch
from kvescrow.spec.world.outcome import MutableRecord, Outcome, apply_row, blank


class ExecutionWorld:
    """The oracle of one worker: what may be launched, and when a stop may be certified."""

    def __init__(self, watch: Watch | None = None, tables: Mapping[str, Table] = TABLE_BY_NAME) -> None:
        """Start with nothing begun. `watch` sees every view before a row of `tables` fires."""
        self._watch = watch
        self._execution = compiled(tables["execution"])
        self._ticket = compiled(tables["ticket"])
        self.executions: dict[str, MutableRecord] = {}
        self.tickets: dict[tuple[str, int], MutableRecord] = {}

    def begin(self, execution: str, generation: int) -> Outcome:
        """Open `execution` under `generation`."""
        return self._apply_execution("begin", execution, {"generation": generation})

    def close(self, execution: str) -> Outcome:
        """Forbid new launches."""
        return self._apply_execution("close", execution, {})

    def certify(self, execution: str) -> Outcome:
        """Ask for the stop receipt."""
        return self._apply_execution("certify", execution, {})

    def acknowledge(self, execution: str) -> Outcome:
        """Drop the receipt, which the ledger has now."""
        return self._apply_execution("acknowledge", execution, {})

    def launch(self, execution: str, number: int, generation: int) -> Outcome:
        """Launch the share of `execution` in the step with this number."""
        return self._apply_ticket("launch", execution, number, {"generation": generation, "number": number})

    def settle(self, execution: str, number: int, *, ok: bool) -> Outcome:
        """End that share."""
        return self._apply_ticket("settle", execution, number, {"ok": ok})

    def _record(self, execution: str) -> MutableRecord:
        return self.executions.setdefault(execution, blank(execution_entity, state=ExecutionState.ABSENT))

    def _apply_execution(self, event: str, execution: str, parameters: Record) -> Outcome:
        view = {"execution": self._record(execution)}
        return apply_row(self._execution, view, event, parameters, self._watch)

    def _apply_ticket(self, event: str, execution: str, number: int, parameters: Record) -> Outcome:
        known = self.tickets.get((execution, number))
        record = known if known is not None else blank(ticket_entity, state=TicketState.ABSENT)
        view = {"ticket": record, "execution": self._record(execution)}
        outcome = apply_row(self._ticket, view, event, parameters, self._watch)
        if record["state"] is not TicketState.ABSENT:
            self.tickets[execution, number] = record
        return outcome
