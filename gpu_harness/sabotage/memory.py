"""Mistakes with the pages on the device: grants, scrubs, tables, padding, bits."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import partial

import torch

from kvescrow.gpu_harness.conform.conduct import Conduct, LaunchedStep
from kvescrow.gpu_harness.conform.frames import Frames
from kvescrow.gpu_harness.conform.loop import Loop
from kvescrow.gpu_harness.conform.machine import HereMachine
from kvescrow.gpu_harness.conform.serving import Serving
from kvescrow.gpu_harness.device import Device
from kvescrow.gpu_harness.model import ModelWeights
from kvescrow.gpu_harness.pages import PAGE_LENGTH, PageClaim, PagedMemory
from kvescrow.gpu_harness.streams import Stream


def within_reach(loop: Loop) -> HereMachine:
    """The worker's machine, whose memory is that of this process: no other is sabotaged."""
    machine = loop.worker.machine
    assert isinstance(machine, HereMachine)
    return machine


class _LateScrubs(Frames):
    """Scrubs a page when it is granted, and the scrub is certain to come after the grant that does not wait for it."""

    def grant(self, stream: Stream, pages: Sequence[int], *, owner: int, scope: int, first_index: int) -> None:
        """The grant first, then the scrub."""
        dirty = [page for page in pages if page not in self._clean]
        self._clean.update(pages)
        super().grant(stream, pages, owner=owner, scope=scope, first_index=first_index)
        if dirty:
            self.reclaim(dirty, stream)

    def scrub(self, pages: Iterable[int]) -> None:
        """Not now."""


class MissingEventWait(Conduct):
    """The stream that is handed a page does not wait for the page's scrub, which runs on another stream."""

    def frames(self, memory: PagedMemory) -> Frames:
        """With scrubs that come late."""
        return _LateScrubs(memory)


class _NoScrubs(Frames):
    def reclaim(self, pages: Sequence[int], stream: Stream | None = None) -> None:
        """Nothing is written."""


class ScrubSkipped(Conduct):
    """Pages are handed out as the last holder left them."""

    def frames(self, memory: PagedMemory) -> Frames:
        """Without scrubs."""
        return _NoScrubs(memory)


class _Blind(PagedMemory):
    def _broken_words(self, index: torch.Tensor) -> torch.Tensor:
        return torch.zeros(0, 2, dtype=torch.int64, device=index.device)


class CanarySkipped(Conduct):
    """Pages are handed out, and counted as clean at the end, without a look at them."""

    def memory(self, device: Device, weights: ModelWeights, pages: int) -> PagedMemory:
        """One that does not look."""
        return _Blind(device, weights.shape, pages, weights.dtype)


class _TwiceReleased(Frames):
    """Keeps a second release for each page that was released, and applies it when the page has a holder again."""

    def __init__(self, memory: PagedMemory) -> None:
        super().__init__(memory)
        self._again: set[int] = set()

    def reclaim(self, pages: Sequence[int], stream: Stream | None = None) -> None:
        """Once now, and once more later."""
        super().reclaim(pages, stream)
        self._again.update(pages)

    def grant(self, stream: Stream, pages: Sequence[int], *, owner: int, scope: int, first_index: int) -> None:
        """After the grant comes the second release."""
        super().grant(stream, pages, owner=owner, scope=scope, first_index=first_index)
        twice = [page for page in pages if page in self._again]
        self._again.difference_update(twice)
        if twice:
            super().reclaim(twice, stream)


class DoubleRelease(Conduct):
    """A page is given back twice; the second time it is another's."""

    def frames(self, memory: PagedMemory) -> Frames:
        """With a second release."""
        return _TwiceReleased(memory)


class _UngrantedGrowth(Frames):
    def grant(self, stream: Stream, pages: Sequence[int], *, owner: int, scope: int, first_index: int) -> None:
        """A single page behind others is taken as it is."""
        if len(pages) == 1 and first_index:
            self._clean.difference_update(pages)
            self._claims[pages[0]] = PageClaim(pages[0], generation=1)
        else:
            super().grant(stream, pages, owner=owner, scope=scope, first_index=first_index)


class GrowthWithoutGrant(Conduct):
    """An output that has filled its pages goes on in one that was not granted to it."""

    def frames(self, memory: PagedMemory) -> Frames:
        """With growth that is not granted."""
        return _UngrantedGrowth(memory)


class PaddingRowsOnPageZero(Conduct):
    """Padding rows write to the first page of the pool that nobody holds, instead of one set aside."""

    def scratch(self, frames: Frames) -> int:
        """The first clean page."""
        return frames.first_clean


class PageOrderSwapped(Conduct):
    """The first two pages of a block table are exchanged."""

    def table(self, claims: Sequence[PageClaim]) -> tuple[PageClaim, ...]:
        """The second page first."""
        return (*claims[1::-1], *claims[2:])


class _Flips(Conduct, ABC):
    """Adds one unit in the last place of one value of a page, as a bit flip or a stray write does, once a request."""

    def __init__(self) -> None:
        self._flipped: set[int] = set()

    def holds(self, loop: Loop, stream: Stream, members: Sequence[Serving]) -> bool:
        """A decode step of a request that still has its bits."""
        return stream is loop.worker.machine.decode and any(self._page(each) is not None for each in members)

    def meanwhile(self, loop: Loop, step: LaunchedStep) -> None:
        """Flip the lowest bit of the last value of a page."""
        for serving in step.members:
            page = self._page(serving)
            if page is not None:
                self._flipped.add(serving.generation)
                frames = within_reach(loop).frames
                frames.scrubber.launch(partial(self._flip, within_reach(loop).decoder.memory, page))
                frames.finish_scrubs()

    @staticmethod
    def _flip(memory: PagedMemory, page: int) -> None:
        memory.bits[-1, page, -1, -1, -1, -1] ^= 1

    @abstractmethod
    def _page(self, serving: Serving) -> int | None:
        """The page to change, while it is unchanged and the next step does not write it."""


class UlpInCachedPage(_Flips):
    """One value of a shared page changes by one unit in the last place."""

    def _page(self, serving: Serving) -> int | None:
        fresh = serving.published and serving.generation not in self._flipped
        return serving.pages[0] if fresh else None


class UlpInPrivatePage(_Flips):
    """One value of a private page changes by one unit in the last place."""

    def _page(self, serving: Serving) -> int | None:
        place = serving.published
        full = serving.position > (place + 1) * PAGE_LENGTH
        return serving.pages[place] if full and serving.generation not in self._flipped else None
