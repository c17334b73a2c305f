"""Group commit: many threads submit, and whoever has the turn decides and commits what waits at that moment.

A store that outlives its process fills in how a group is kept and how its questions are answered. Both happen in turns,
so a question sees nothing that may still be undone.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeVar

from attrs import define, field

from kvescrow.reference.ledger.encoding import check_storable
from kvescrow.reference.ledger.port import JournalEntry, LedgerReply, OutcomeUnknown, Recorder
from kvescrow.reference.ledger.turns import Line, Ticket
from kvescrow.spec.vocabulary import Key, LedgerEvent, LedgerSnapshot, Reason, UserError

T = TypeVar("T")

LARGEST_GROUP = 64
"""Events in one commit, at most, unless one call brings more: bounds how long the first of them waits."""


@define(eq=False)
class Group(Ticket):
    """The events of one call, and what they came to."""

    events: Sequence[LedgerEvent] = ()
    entries: list[JournalEntry] = field(factory=list, init=False)
    error: BaseException | None = field(default=None, init=False)
    """What stopped the group: at one of its events, or all of it where nothing could be kept."""


def decide_groups(groups: Sequence[Group], decide: Callable[[LedgerEvent], JournalEntry]) -> list[JournalEntry]:
    """Decide the events of `groups` anew, in order, and return the entries of those that change something."""
    for group in groups:
        group.entries, group.error = [], None
        for event in group.events:
            try:
                group.entries.append(decide(event))
            except Exception as error:
                # Events before it stay decided, as they would with a call for each.
                group.error = error
                break
    return [entry for group in groups for entry in group.entries if not entry.reply.decision.changes_nothing]


class GroupedLedger(ABC):
    """A `Ledger` whose calls take turns; the events that wait at the same moment share one commit.

    `_keep` and the questions run in the thread of the caller who has the turn, one at a time.
    """

    def __init__(self, recorder: Recorder | None) -> None:
        """`recorder` sees an event after its commit."""
        self._recorder = recorder
        self._line: Line[Ticket] = Line()
        self._ended = False
        self._process = os.getpid()

    # --- what a store fills in --------------------------------------------------------------------------------------

    @abstractmethod
    def _keep(self, groups: Sequence[Group]) -> None:
        """Decide the events of `groups` and make their changes durable. Where it raises, none of them is applied."""

    @abstractmethod
    def _entries(self, after: int) -> list[JournalEntry]:
        """Return the changes with a commit number above `after`, in order."""

    @abstractmethod
    def _snapshot(self) -> LedgerSnapshot:
        """Return the whole projected state."""

    @abstractmethod
    def _waiting(self) -> tuple[Key, ...]:
        """Return the queued keys, first come first."""

    @abstractmethod
    def _due(self) -> list[LedgerEvent]:
        """Return the events that time has made due."""

    @abstractmethod
    def _end(self) -> None:
        """Give up what the store holds open; the last call."""

    def _check_storable(self, event: LedgerEvent) -> None:
        """Raise `UserError` where the store cannot hold `event`."""
        check_storable(event)

    # --- the port ---------------------------------------------------------------------------------------------------

    def submit(self, event: LedgerEvent) -> LedgerReply:
        """Decide exactly one event; return when its change is durable."""
        return self.submit_many([event])[0]

    def submit_many(self, events: Sequence[LedgerEvent]) -> list[LedgerReply]:
        """Decide `events` one after the other, with no other event between them, and commit them together."""
        self._check_process()
        for event in events:
            self._check_storable(event)
        group = Group(list(events))
        self._line.turn(group, lambda: self._serve_with(group))
        if group.error is not None:
            raise group.error
        return [entry.reply for entry in group.entries]

    def journal(self, after: int = 0) -> list[JournalEntry]:
        """Return the changes with a commit number above `after`."""
        return self._ask(lambda: self._entries(after))

    def snapshot(self) -> LedgerSnapshot:
        """Return the whole projected state, as committed."""
        return self._ask(self._snapshot)

    def waiting(self) -> tuple[Key, ...]:
        """Return the queued keys, first come first."""
        return self._ask(self._waiting)

    def due(self) -> list[LedgerEvent]:
        """Return the events that time has made due."""
        return self._ask(self._due)

    def close(self) -> None:
        """Give up the store after the calls that are under way; the clock's reading is kept.

        In a process that was forked off it does nothing: the store is open in the other one.
        """
        if self._process == os.getpid():
            self._line.turn(Ticket(), self._end_once)

    def _ask(self, question: Callable[[], T]) -> T:
        """Return the answer to `question`, which is asked between two commits."""
        self._check_process()
        answers: list[T] = []

        def ask() -> None:
            self._check_open()
            answers.append(question())

        self._line.turn(Ticket(), ask)
        return answers[0]

    def _check_process(self) -> None:
        # Two processes on one connection, or one file that is open once, would damage both.
        if self._process != os.getpid():
            raise UserError(f"this ledger was opened before a fork, in process {self._process}: open another here")

    # --- what follows runs in turns ---------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._ended:
            raise UserError("this ledger is closed: open another")

    def _end_once(self) -> None:
        if not self._ended:
            self._ended = True
            self._end()

    def _serve_with(self, first: Group) -> None:
        """Decide the events of `first` and of the groups behind it, commit what they changed, and only then answer."""
        self._check_open()
        groups = [first, *self._groups_behind(first)]
        try:
            self._keep(groups)
            self._record(groups)
        except Exception as error:
            _stop(groups, error)
        except BaseException:
            # This caller knows why it stops, the others can only ask again.
            _stop(groups, OutcomeUnknown("the thread that committed was interrupted: submit the event again"))
            raise
        finally:
            try:
                self._line.serve(groups[1:])
            except BaseException:
                # Else they would be decided twice.
                self._line.serve(groups[1:])
                raise

    def _groups_behind(self, first: Group) -> list[Group]:
        events = len(first.events)

        def fits(ticket: Ticket) -> bool:
            nonlocal events
            if not isinstance(ticket, Group) or events >= LARGEST_GROUP:
                return False
            events += len(ticket.events)
            return True

        return [ticket for ticket in self._line.following(fits) if isinstance(ticket, Group)]

    def _record(self, groups: Sequence[Group]) -> None:
        """Show the recorder what was decided, in order; its error is its group's."""
        if self._recorder is None:
            return
        for group in groups:
            try:
                for entry in group.entries:
                    if entry.reply.reason is not Reason.RECOVERING:
                        self._recorder(entry)
            except Exception as error:
                group.error = error


def _stop(groups: Sequence[Group], error: BaseException) -> None:
    for group in groups:
        group.error = error
