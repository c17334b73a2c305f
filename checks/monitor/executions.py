"""The lines of a worker's executions and tickets, replayed in an execution world."""

from collections.abc import Iterator
from typing import cast

from kvescrow.checks.monitor.answer import Answer
from kvescrow.checks.monitor.lines import Entry, boolean, integer, key_of, mapping
from kvescrow.spec.language.interpreter import Value
from kvescrow.spec.tables.execution import EXECUTION, TICKET
from kvescrow.spec.tables.execution import ticket as ticket_entity
from kvescrow.spec.vocabulary import ExecutionState, TicketState, UserError
from kvescrow.spec.world.executions import ExecutionWorld
from kvescrow.spec.world.ledger import Watch
from kvescrow.spec.world.outcome import Outcome, blank, violated

_PARAMETERS = {
    "begin": {"generation"},
    "close": set(),
    "certify": set(),
    "acknowledge": set(),
    "launch": {"generation"},
    "settle": {"ok"},
}  # type: dict[str, set[str]]
"""By event; the number of a launched ticket stands beside the parameters, as it does when the ticket is settled."""
_NO_TICKET = blank(ticket_entity, state=TicketState.ABSENT)


class ExecutionSide:
    """One worker's world, and counts of outstanding tickets beside it."""

    def __init__(self, watch: Watch | None = None) -> None:
        self._world = ExecutionWorld(watch)
        self._outstanding: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._world.executions) + len(self._world.tickets)

    def answer(self, table: str, entry: Entry) -> Answer:
        """Return what the tables answer to `entry`. Raises `UserError` where it is malformed."""
        event, key, parameters = cast(str, entry["event"]), key_of(entry), mapping(entry, "parameters")
        if key is None:
            raise UserError(f"key of `{event}` must be [tenant, request]")
        if parameters.keys() != _PARAMETERS[event]:
            wanted = ", ".join(sorted(_PARAMETERS[event])) or "none"
            raise UserError(f"parameters are {', '.join(parameters) or 'none'}; `{event}` has {wanted}")
        # A text that no other key has, since a world knows executions by one name.
        name = repr((key.tenant, key.request))
        if table == "ticket":
            return self._ticket(event, name, integer(entry, "number", least=1), parameters)
        return self._execution(event, name, parameters)

    def _execution(self, event: str, name: str, parameters: Entry) -> Answer:
        match event:
            case "begin":
                outcome = self._world.begin(name, integer(parameters, "generation", least=1))
            case "close":
                outcome = self._world.close(name)
            case "certify":
                outcome = self._world.certify(name)
            case _:
                outcome = self._world.acknowledge(name)
        record = self._world.executions[name]
        facts = {"state": cast(ExecutionState, record["state"]).value, "generation": record["generation"]}
        return Answer.of(outcome, facts, self._broken(name))

    def _ticket(self, event: str, name: str, number: int, parameters: Entry) -> Answer:
        was = self._state(name, number)
        outcome: Outcome
        if event == "launch":
            outcome = self._world.launch(name, number, integer(parameters, "generation"))
        else:
            outcome = self._world.settle(name, number, ok=boolean(parameters, "ok"))
        now = self._state(name, number)
        flies = (now is TicketState.LAUNCHED) - (was is TicketState.LAUNCHED)
        self._outstanding[name] = self._outstanding.get(name, 0) + flies
        return Answer.of(outcome, {"state": now.value}, self._broken(name, number))

    def _state(self, name: str, number: int) -> TicketState:
        return cast(TicketState, self._world.tickets.get((name, number), _NO_TICKET)["state"])

    def broken(self) -> Iterator[str]:
        """Yield every invariant that does not hold now, outstanding tickets counted anew."""
        self._outstanding = {}
        for (name, _), ticket in self._world.tickets.items():
            launched = ticket["state"] is TicketState.LAUNCHED
            self._outstanding[name] = self._outstanding.get(name, 0) + launched
        for name in self._world.executions:
            yield from self._broken(name)
        for name, number in self._world.tickets:
            yield from self._broken(name, number)

    def _broken(self, name: str, number: int | None = None) -> list[str]:
        execution = self._world.executions[name]
        ticket = _NO_TICKET if number is None else self._world.tickets.get((name, number), _NO_TICKET)
        others: Value = self._outstanding.get(name, 0) - (ticket["state"] is TicketState.LAUNCHED)
        view = {"execution": execution, "ticket": ticket, "rest": {"in_flight": others}}
        return [f"{law} of {name}" for law in (*violated(EXECUTION, view), *violated(TICKET, view))]
