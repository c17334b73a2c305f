"""Ledgers in real servers whose gateways have one planted error each, in their own processes alone."""

from __future__ import annotations

from multiprocessing import parent_process

from attrs import frozen

from kvescrow.checks.targets.planted_ledgers import SABOTAGES
from kvescrow.checks.targets.torture import ReferenceSite
from kvescrow.checks.targets.torture_servers import ServerOpener, ServerStore
from kvescrow.checks.torture.clock import SteppedClock
from kvescrow.checks.torture.site import Connection

_planted: set[str] = set()


@frozen
class PlantedOpener(ServerOpener):
    """Plants the error in the gateway's process before its first ledger opens."""

    sabotage: str

    def __call__(self, clock: SteppedClock) -> Connection:
        """Open it. Raises `Unreachable`."""
        if parent_process() is not None and self.sabotage not in _planted:
            _planted.add(self.sabotage)
            SABOTAGES[self.sabotage].plant()
        return super().__call__(clock)


class PlantedServerStore(ServerStore):
    """A right server under gateways that are wrong."""

    def __init__(self, store: str, sabotage: str) -> None:
        """Start the server; takes seconds for PostgreSQL."""
        super().__init__(store)
        opener = PlantedOpener(store, self._server.url, sabotage)
        self._site = ReferenceSite(self._site.clock, opener, forgets_the_clock=True)
