"""What every move answers in every state of an instance, and where it leads."""

from collections.abc import Callable, Iterator
from operator import itemgetter

from attrs import frozen

from kvescrow.checks.explore.instance import Instance
from kvescrow.checks.explore.normal_form import Group, NormalForm
from kvescrow.checks.explore.packing import wide_packing_of
from kvescrow.checks.explore.result import Firing
from kvescrow.checks.explore.views import Outcome
from kvescrow.spec.language.table import Reply, Row
from kvescrow.spec.vocabulary import UserError


@frozen
class Answer:
    """What the tables say to one move in one state."""

    move: int
    row: str
    reply: Reply
    delta: int
    """What is added to the packed state; 0 where it stays."""

    keeps: bool
    """Whether the row must leave everything as it was."""


class _Remembered:
    """The answers of one group, by what they depend on."""

    def __init__(self) -> None:
        self._by_read: dict[
            tuple[int, ...], tuple[Callable[[list[int]], object], dict[object, tuple[Answer, ...]]]
        ] = {}

    def find(self, codes: list[int]) -> tuple[Answer, ...] | None:
        """Return the answers in a state with `codes`; None where they are not known."""
        for of, answers in self._by_read.values():
            found = answers.get(of(codes))
            if found is not None:
                return found
        return None

    def add(self, read: set[int], codes: list[int], answers: tuple[Answer, ...]) -> None:
        """Remember `answers` for all states that agree with `codes` on what was read."""
        spots = tuple(sorted(read)) or (0,)
        of, known = self._by_read.setdefault(spots, (itemgetter(*spots), {}))
        known[of(codes)] = answers


class Graph:
    """The states of an instance by their packed numbers."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.form = NormalForm(instance)
        self.packing = wide_packing_of(self.form.views.variables)
        self._rows: dict[str, Row] = {row.id: row for table in instance.tables for row in table.rows}
        self._groups = [(group, _Remembered()) for group in self.form.groups if group.moves]
        self.first = self.packing.pack(self.form.views.first())

    def answers(self, state: int) -> Iterator[Answer]:
        """Yield what every move does in `state`."""
        codes = self.packing.unpack(state)
        for group, remembered in self._groups:
            found = remembered.find(codes)
            if found is None:
                memory = self.form.views.memory
                memory.codes[:] = codes
                memory.read.clear()
                found = tuple(self._ask(group))
                remembered.add(memory.read, codes, found)
            yield from found

    def _ask(self, group: Group) -> Iterator[Answer]:
        memory = self.form.views.memory
        for number, move in group.moves:
            step = move()
            if step.outcome in (Outcome.ABSENT, Outcome.CUT):
                continue
            if step.outcome is not Outcome.FIRED:
                raise UserError(
                    f"instance {self.instance.name} is broken ({step.law}): run `kvescrow explore` on it first"
                )
            delta = self.packing.delta(memory.codes, step.changes, memory.read)
            reply = self._rows[step.row].reply
            yield Answer(number, step.row, reply, delta, reply.decision.changes_nothing)

    def named(self, answer: Answer) -> Firing:
        """Return an answer for people."""
        return Firing(self.instance.moves[answer.move].name, answer.row)

    def codes(self, state: int) -> tuple[int, ...]:
        """Return the codes of a state."""
        return tuple(self.packing.unpack(state))
