"""One interface over the oracle and every implementation, so that a field report is written once.

A vector builds a page pool, a ledger, a worker's executions, or all three, then submits events one by one and asserts
each answer. Beneath every event the driver asserts what no vector should have to repeat: an answer that changes
nothing has changed nothing (FRM-6), the laws of `laws.py` hold, and the subject's own invariants do.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from attrs import frozen

from kvescrow.spec.vocabulary import MICROSECONDS_PER_SECOND as SECOND
from kvescrow.spec.vocabulary import ExecutionState
from tests.field_reports.ledger import Ledger
from tests.field_reports.pages import TENANT, Pages
from tests.field_reports.replies import ADMITTED, DROPPED, GRANTED, RELEASED, STARTED, Answer


@frozen
class Ticket:
    """One execution's share in a launched step or copy."""

    number: int
    name: str
    generation: int
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    full: bool


class Worker(ABC):
    """One worker under a ledger that counts its pages: executions, their launched steps, and the page pool.

    A step or copy is a ticket with a number of its own; it lists the pages that it reads and writes for one request.
    """

    def __init__(self, pages: Pages, ledger: Ledger) -> None:
        self.pages = pages
        self.ledger = ledger

    # --- what a subject provides ------------------------------------------------------------------------------------

    @abstractmethod
    def execution(self, name: str) -> ExecutionState:
        """What the execution of `name` may do."""

    @abstractmethod
    def begin(self, name: str, generation: int) -> Answer:
        """The ledger's start was granted."""

    @abstractmethod
    def close(self, name: str) -> Answer:
        """Launch nothing more for it."""

    @abstractmethod
    def certify(self, name: str) -> Answer:
        """Ask for the stop receipt."""

    @abstractmethod
    def acknowledge(self, name: str) -> Answer:
        """The ledger has the receipt."""

    @abstractmethod
    def _launch(self, step: Ticket) -> Answer: ...
    @abstractmethod
    def _settle(self, number: int, ok: bool) -> Answer: ...

    # --- events -----------------------------------------------------------------------------------------------------

    def launch(
        self,
        name: str,
        ticket: int,
        *,
        reads: Sequence[int] = (),
        writes: Sequence[int] = (),
        full: bool = False,
        generation: int | None = None,
    ) -> Answer:
        """Hand a step or copy to the device; `full`: it writes the last slot of each page that it writes."""
        which = self.ledger.record(name).generation if generation is None else generation
        step = Ticket(ticket, name, which, tuple(reads), tuple(writes), full)
        return self.pages.step(lambda: self._launch(step))

    def ends(self, ticket: int, *, ok: bool = True) -> Answer:
        """The device reports the step over, well or badly."""
        return self.pages.step(lambda: self._settle(ticket, ok))

    def drop(self, name: str, page: int) -> Answer:
        """Give up the request's claim on the page."""
        return self.pages.drop(self.holder(name), page)

    def holder(self, name: str) -> str:
        """Under which name the request's execution holds pages."""
        return f"{TENANT}/{name}#{self.ledger.record(name).generation}"

    # --- givens: steps that must succeed ----------------------------------------------------------------------------

    def runs(self, name: str, promised: int, drawn: int | None = None, *, owner: str = "w1") -> list[int]:
        """Reserve, start and begin `name` with `promised` pages, and draw them, or the first `drawn`."""
        assert self.ledger.reserve(name, promised, wait=60 * SECOND) == ADMITTED
        assert self.ledger.start(name, owner) == STARTED
        assert self.begin(name, self.ledger.record(name).generation) == STARTED
        assert self.pages.admit(self.holder(name), promised) == GRANTED
        return self.pages.draw(self.holder(name), promised if drawn is None else drawn)

    def lets_go(self, name: str, pages: Sequence[int]) -> None:
        """Drop all pages of the request and close its promise, as a worker does once nothing more is launched."""
        for page in reversed(pages):
            assert self.drop(name, page) == DROPPED
        assert self.pages.close(self.holder(name)) == RELEASED
