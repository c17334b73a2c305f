"""The supervisor: proves that killed incarnations are gone, and brings everything to its end after a campaign."""

import time
from collections.abc import Mapping
from threading import Event

from kvescrow.checks.torture.caller import Caller, Over
from kvescrow.checks.torture.gateway import incarnation_of
from kvescrow.checks.torture.site import Site
from kvescrow.checks.torture.workload import GATEWAY_LEASE
from kvescrow.spec.vocabulary import OWNED_STATES, TERMINAL_STATES

_EVERY = 0.1
"""Seconds between two rounds."""


class Supervisor:
    """Fences off dead owners and lets time limits take effect."""

    def __init__(self, site: Site, caller: Caller) -> None:
        self._site = site
        self._caller = caller
        self._front = site.front(caller, GATEWAY_LEASE)
        self._settled: set[str] = set()

    def watch(self, over: Event, deaths: Mapping[str, int]) -> None:
        """Go round until `over`; `deaths` has the processes that are known to be dead."""
        try:
            while not over.wait(_EVERY):
                self._front.advance()
                if dead := dict(deaths).keys() - self._settled:
                    self._fence(dead)
                    self._settled |= dead
        except Over:
            return

    def drain(self, deaths: Mapping[str, int]) -> None:
        """Go round until nothing is live. Raises `Over` where the caller's time is up."""
        while True:
            self._fence(set(dict(deaths)))
            self._front.advance()
            records = self._caller.snapshot().reservations.values()
            if all(record.state in TERMINAL_STATES for record in records):
                return
            time.sleep(_EVERY)

    def _fence(self, dead: set[str]) -> None:
        for key, record in self._caller.snapshot().reservations.items():
            if record.state in OWNED_STATES and incarnation_of(record.owner) in dead:
                self._front.submit(self._site.fence(key, record.owner))
