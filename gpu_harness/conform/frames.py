"""The pages on the device, as the page pool's decisions reach them.

All operations on one page are in one order, whatever streams they run on: each waits for the one before it. Steps are
not among them. That a page is touched by no step when it is scrubbed is what the page pool promises, and nothing here
keeps it true: a broken promise must reach memory to be seen there (PAG-4).
"""

from collections.abc import Iterable, Sequence

from kvescrow.gpu_harness.evidence import NOTHING, Evidence
from kvescrow.gpu_harness.pages import SINK, PageClaim, PagedMemory, compare_fingerprints
from kvescrow.gpu_harness.streams import Event, Pending, Stream
from kvescrow.gpu_harness.tickets import TicketWatch

Prints = Pending[dict[int, int]]


class Frames:
    """Scrubs, grants, publishes and fingerprints pages, and gathers what these find."""

    def __init__(self, memory: PagedMemory) -> None:
        """Start with every page free and poisoned."""
        self._memory = memory
        self.watch = TicketWatch()
        # A stream of its own: what is scrubbed is ordered after no step, as a copy engine or another worker would be.
        self.scrubber = memory.device.stream("scrub")
        self._last: dict[int, Event] = {}
        self._claims: dict[int, PageClaim] = {}
        self._clean = set(range(1, memory.pages))
        self._parked: dict[int, Prints] = {}
        self._checks: list[Pending[Evidence]] = []
        self._compared: list[tuple[int, Prints, Prints]] = []
        self._evidence = NOTHING
        self.scrubs = 0
        """Pages scrubbed."""

    @property
    def clean(self) -> int:
        """Number of pages that hold poison, and are granted to nobody."""
        return len(self._clean)

    @property
    def first_clean(self) -> int:
        """The first page that holds poison and is granted to nobody; the sink where there is none."""
        return min(self._clean, default=SINK)

    def grant(self, stream: Stream, pages: Sequence[int], *, owner: int, scope: int, first_index: int) -> None:
        """Hand `pages` to `owner` on `stream`, each of them scrubbed before."""
        if not pages:
            return
        self.scrub(pages)
        self._evidence += self.watch.granted(pages, owner)
        self.join(stream, pages)
        grant = self._memory.grant(stream, pages, owner=owner, scope=scope, first_index=first_index)
        self._checks.append(grant.evidence)
        self._clean.difference_update(pages)
        self._claims.update((claim.page, claim) for claim in grant.claims)
        self._last.update(dict.fromkeys(pages, grant.evidence.event))

    def join(self, stream: Stream, pages: Iterable[int]) -> None:
        """Order `stream` after all that was done to `pages`, for a step that is to read them."""
        for event in dict.fromkeys(self._last[page] for page in pages if page in self._last):
            stream.wait(event)

    def claims(self, pages: Iterable[int]) -> list[PageClaim]:
        """The claims under which `pages` are known now."""
        return [self._claims[page] for page in pages]

    def publish(self, pages: Sequence[int]) -> None:
        """Stamp computed pages as shared and take their fingerprints: from now on their bits may not change (PAG-7)."""
        self.join(self.scrubber, pages)
        shared = self._memory.publish(self.scrubber, pages)
        self._parked.update(dict.fromkeys(pages, self._memory.fingerprint(self.scrubber, pages)))
        self._last.update(dict.fromkeys(pages, shared.event))

    def sums(self, pages: Sequence[int]) -> Prints:
        """Sum up the bits of `pages`, whose steps are done, before anything else is done to them."""
        self.join(self.scrubber, pages)
        return self._memory.fingerprint(self.scrubber, pages)

    def finish_scrubs(self) -> None:
        """Wait until all that was asked for is done to the pages."""
        self.scrubber.synchronize()

    @property
    def found(self) -> Evidence:
        """What was found so far, where no audit will come: the device is gone."""
        return self._evidence

    def scrub(self, pages: Iterable[int]) -> None:
        """Poison those of `pages`, all free, that are not clean."""
        dirty = [page for page in pages if page not in self._clean]
        if not dirty:
            return
        self._compare([page for page in dirty if page in self._parked])
        self.reclaim(dirty)
        self._clean.update(dirty)
        self.scrubs += len(dirty)

    def reclaim(self, pages: Sequence[int], stream: Stream | None = None) -> None:
        """Stamp pages as nobody's and poison them, whatever they were; on the scrub stream unless told otherwise."""
        stream = stream or self.scrubber
        self.join(stream, pages)
        scrubbed = self._memory.reclaim(stream, pages)
        self._last.update(dict.fromkeys(pages, scrubbed.event))

    def _compare(self, pages: Sequence[int]) -> None:
        """Take a second fingerprint of parked pages; the two are compared when they are there."""
        if pages:
            self.join(self.scrubber, pages)
            now = self._memory.fingerprint(self.scrubber, pages)
            self._compared += [(page, self._parked.pop(page), now) for page in pages]

    def audit(self, free: Sequence[int]) -> Evidence:
        """Look at every page when all work is over: `free` ones word by word, parked ones by fingerprint.

        Returns all evidence of this object. Raises StreamFailed, DeviceTimeout.
        """
        self._compare(list(self._parked))
        if free:
            self._checks.append(self._memory.audit_free(self.scrubber, free))
        self._memory.device.synchronize()
        self.collect()
        for page, before, after in self._compared:
            self._evidence += compare_fingerprints({page: before.result()[page]}, {page: after.result()[page]})
        self._compared.clear()
        return self._evidence

    def collect(self) -> None:
        """Take in the canary checks that are done, so that no more are kept than are under way."""
        waiting = []
        for check in self._checks:
            if check.done():
                self._evidence += check.result()
            else:
                waiting.append(check)
        self._checks = waiting
