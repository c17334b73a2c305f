"""What every move answers in every state of an instance, and where it leads."""

from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter

from attrs import field, frozen

from kvescrow.checks.explore.instance import Instance
from kvescrow.checks.explore.normal_form import Group, NormalForm
from kvescrow.checks.explore.packing import wide_packing_of
from kvescrow.checks.explore.result import Firing
from kvescrow.checks.explore.views import Outcome
from kvescrow.spec.language.table import Reply, Row
from kvescrow.spec.vocabulary import Decision, Reason, UserError

Said = tuple[Decision, Reason]
"""Decision and reason of a reply."""


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
    said: Said = field(init=False)
    witness: tuple[int, str] = field(init=False)
    """(move, row)."""

    @said.default
    def _said(self) -> "Said":
        return self.reply.decision, self.reply.reason

    @witness.default
    def _witness(self) -> tuple[int, str]:
        return self.move, self.row


@frozen
class Part:
    """What the moves of one group do."""

    refusals: tuple[Answer, ...]
    """Those of rows that keep everything as it was."""
    changes: tuple[Answer, ...]
    """The others."""
    refused: int
    """The refusals, a bit a move."""
    due: int
    """All of them."""


def _part(answers: Sequence[Answer]) -> Part:
    return Part(
        tuple(answer for answer in answers if answer.keeps),
        tuple(answer for answer in answers if not answer.keeps),
        sum(1 << answer.move for answer in answers if answer.keeps),
        sum(1 << answer.move for answer in answers),
    )


Place = int
"""A packed state of the instance, and above its bits the variant in which an implementation is in it."""


class _Remembered:
    """The answers of one group, by what they depend on."""

    def __init__(self) -> None:
        self._by_read: dict[tuple[int, ...], tuple[Callable[[list[int]], object], dict[object, Part]]] = {}

    def find(self, codes: list[int]) -> Part | None:
        """Return the answers in a state with `codes`; None where they are not known."""
        for of, answers in self._by_read.values():
            found = answers.get(of(codes))
            if found is not None:
                return found
        return None

    def add(self, read: set[int], codes: list[int], part: Part) -> None:
        """Remember `part` for all states that agree with `codes` on what was read."""
        spots = tuple(sorted(read)) or (0,)
        of, known = self._by_read.setdefault(spots, (itemgetter(*spots), {}))
        known[of(codes)] = part


class Graph:
    """The states of an instance by their packed numbers."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.form = NormalForm(instance)
        self.packing = wide_packing_of(self.form.views.variables)
        self._bits = self.packing.bits
        self._rows: dict[str, Row] = {row.id: row for table in instance.tables for row in table.rows}
        self._groups = [(group, _Remembered()) for group in self.form.groups if group.moves]
        self.first = self.packing.pack(self.form.views.first())

    def answers(self, state: int) -> Iterator[Answer]:
        """Yield what every move does in `state`."""
        for part in self.parts(state):
            yield from part.refusals
            yield from part.changes

    def parts(self, state: int) -> list[Part]:
        """Return what every move does in `state`, by parts that states share with one another."""
        codes = self.packing.unpack(state)
        parts = []
        for group, remembered in self._groups:
            part = remembered.find(codes)
            if part is None:
                memory = self.form.views.memory
                memory.codes[:] = codes
                memory.read.clear()
                part = _part(list(self._ask(group)))
                remembered.add(memory.read, codes, part)
            parts.append(part)
        return parts

    def place(self, state: int, variant: int) -> Place:
        """Return the place of a variant of a state."""
        return state | variant << self._bits

    def state(self, place: Place) -> int:
        """Return the state of a place."""
        return place & (1 << self._bits) - 1

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
