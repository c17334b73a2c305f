"""Which launched work may still touch a page, by the device's own word.

The watch keeps its own list of launches and asks the events themselves, so it does not share the accounts
of the page pool that it watches. It sees early reuse even where stream order happens to hide it from memory
(PAG-4).
"""

from collections.abc import Iterable

from kvescrow.gpu_harness.evidence import Evidence, EvidenceKind, Finding, from_findings
from kvescrow.gpu_harness.streams import Event


class TicketWatch:
    """Launched tickets by page."""

    def __init__(self) -> None:
        self._open: dict[int, list[tuple[int, Event]]] = {}

    def launched(self, ticket: int, pages: Iterable[int], event: Event) -> None:
        """Ticket `ticket` may touch `pages` until `event`, recorded behind it, is done."""
        for page in pages:
            waiting = self._open.setdefault(page, [])
            waiting[:] = [(other, done) for other, done in waiting if not done.query()]
            waiting.append((ticket, event))

    def in_flight(self, page: int) -> tuple[int, ...]:
        """Tickets that list `page` and are not done now. Raises StreamFailed, EventNeverRecorded."""
        return tuple(ticket for ticket, event in self._open.get(page, ()) if not event.query())

    def granted(self, pages: Iterable[int], request: int) -> Evidence:
        """Call when free pages are granted to `request`: each ticket still in flight on one of them is
        evidence.
        """
        return from_findings(
            Finding(
                EvidenceKind.GRANT_BEFORE_TICKET_DONE,
                page,
                request,
                ticket,
                "ticket done",
                "ticket in flight",
            )
            for page in pages
            for ticket in self.in_flight(page)
        )
