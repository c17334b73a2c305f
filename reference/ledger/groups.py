"""Group commit: many threads submit, one thread decides and commits what waits at the same moment.

A store that outlives its process fills in how a group is kept and how its questions are answered. Both happen in the
one thread, so a question sees nothing that may still be undone.
"""

import queue
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from threading import Lock, Thread
from typing import TypeVar

from attrs import define, field

from kvescrow.reference.ledger.encoding import check_storable
from kvescrow.reference.ledger.port import JournalEntry, LedgerReply, Recorder
from kvescrow.spec.vocabulary import Key, LedgerEvent, LedgerSnapshot, Reason, UserError

T = TypeVar("T")

LARGEST_GROUP = 64
"""Events in one commit, at most, unless one call brings more: bounds how long the first of them waits."""
LONGEST_GATHERING = 0.002
"""Seconds spent at most on gathering a group. It ends at once when nobody else is waiting."""


@define
class Group:
    """The events of one call, and what they came to."""

    events: Sequence[LedgerEvent]
    answer: "Future[list[LedgerReply]]" = field(factory=Future)
    entries: list[JournalEntry] = field(factory=list)
    error: Exception | None = None
    """What stopped the group before its last event."""


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


@define
class _Question:
    """What is asked between two commits."""

    ask: Callable[[], None]


_NOTHING = _Question(lambda: None)
"""Stands for: no request was taken after the groups."""


class GroupedLedger(ABC):
    """A `Ledger` whose events meet in one writer thread; those that wait at the same moment share one commit.

    `_keep` and the questions run in that thread alone, from `_begin` on.
    """

    def __init__(self, name: str, recorder: Recorder | None) -> None:
        """Name the thread after the store; `recorder` sees an event after its commit."""
        self._recorder = recorder
        self._inbox: queue.SimpleQueue[Group | _Question | None] = queue.SimpleQueue()
        # Whatever is put in under the gate comes before the writer's end, so no caller waits for ever.
        self._gate = Lock()
        self._closed = False
        self._writer = Thread(target=self._write, name=f"ledger {name}", daemon=True)

    def _begin(self) -> None:
        """Start to serve; call it when the store is open."""
        self._writer.start()

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
        for event in events:
            self._check_storable(event)
        group = Group(list(events))
        self._send(group)
        return group.answer.result()

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
        """Commit what was submitted, keep the clock's reading, and give up the store."""
        with self._gate:
            if not self._closed:
                self._closed = True
                self._inbox.put(None)
        self._writer.join()

    def _send(self, request: "Group | _Question") -> None:
        with self._gate:
            if self._closed:
                raise UserError("this ledger is closed: open another")
            self._inbox.put(request)

    def _ask(self, question: Callable[[], T]) -> T:
        """Return the answer to `question`, which is asked between two commits."""
        answer: Future[T] = Future()

        def run() -> None:
            try:
                answer.set_result(question())
            except Exception as error:
                answer.set_exception(error)

        self._send(_Question(run))
        return answer.result()

    # --- what follows runs in the writer thread alone ---------------------------------------------------------------

    def _write(self) -> None:
        request = self._inbox.get()
        while request is not None:
            if isinstance(request, _Question):
                request.ask()
                request = self._inbox.get()
                continue
            groups, following = self._gather(request)
            self._serve(groups)
            request = following if following is not _NOTHING else self._inbox.get()
        self._end()

    def _gather(self, first: Group) -> "tuple[list[Group], Group | _Question | None]":
        """Return the groups that wait now, and the request after them, which must wait for their commit."""
        groups, events = [first], len(first.events)
        until = time.monotonic() + LONGEST_GATHERING
        while events < LARGEST_GROUP and time.monotonic() < until:
            try:
                request = self._inbox.get_nowait()
            except queue.Empty:
                break
            if not isinstance(request, Group):
                return groups, request
            groups.append(request)
            events += len(request.events)
        return groups, _NOTHING

    def _serve(self, groups: Sequence[Group]) -> None:
        """Decide all events, commit what they changed, and only then answer."""
        try:
            self._keep(groups)
        except Exception as error:
            for group in groups:
                group.answer.set_exception(error)
            return
        for group in groups:
            self._answer(group)

    def _answer(self, group: Group) -> None:
        try:
            if self._recorder is not None:
                for entry in group.entries:
                    if entry.reply.reason is not Reason.RECOVERING:
                        self._recorder(entry)
            if group.error is not None:
                raise group.error
            group.answer.set_result([entry.reply for entry in group.entries])
        except Exception as error:
            group.answer.set_exception(error)
