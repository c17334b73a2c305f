"""The physical KV pool: pages, the stamps that say whose they are, and the poison that fills them when
nobody's.

Everything that changes or reads the pool runs as an operation on a given stream, so its order against steps
is exactly the order of the streams. The host keeps one number per page, the generation that it last gave
out; what a step finds is read on the device (CON-2, PAG-4, PAG-10).

Page 0 is the sink (state SINK): block tables are padded with it, and it is never granted. Nothing writes it, so that a
stray write through an empty table is seen there. Padding rows write to a scratch page of their own, behind the last
page that the host knows by number.
"""

from collections.abc import Sequence

import torch
from attrs import frozen

from kvescrow.gpu_harness.device import Device
from kvescrow.gpu_harness.evidence import Evidence, EvidenceKind, Finding, from_findings
from kvescrow.gpu_harness.model import ModelShape
from kvescrow.gpu_harness.streams import Pending, Stream

PAGE_LENGTH = 16
"""Tokens per page; four pages make one attention block."""

SINK = 0
SHARED_OWNER = -1
"""Owner stamp of a published page: any request of its scope may read it, none may write it."""
NOBODY = -2
"""Owner, scope and index stamp of a page that is not granted."""

GENERATION, OWNER, SCOPE, INDEX = range(4)
"""Columns of the stamps. A free page has an even generation, a granted one an odd generation."""

_NAN = {torch.float32: (torch.int32, 0x7FC0_0000, 22), torch.bfloat16: (torch.int16, 0x7FC0, 6)}
"""Per dtype: integer of the same size, quiet NaN with an empty payload, payload bits."""


_FINGERPRINT_FACTOR = 0x1E37_79B9_7F4A_7C15
"""Odd, so that multiplying by it loses nothing modulo 2**64; large, so that small weights differ in high
bits too.
"""


class PageMisuse(ValueError):
    """A page number that the pool does not have, or the sink where a page of a request is meant."""


@frozen
class PageClaim:
    """A page as its holder knows it: its number, and the generation that was granted (or looked up)."""

    page: int
    generation: int


@frozen
class Grant:
    """Pages handed to one request: the claims, and what the whole-page canary check found, once it has run."""

    claims: tuple[PageClaim, ...]
    evidence: Pending[Evidence]


def poison_bits(dtype: torch.dtype, page: int) -> int:
    """The integer written to every word of a poisoned page: a quiet NaN with the page number in its
    payload.
    """
    _, nan, payload = _NAN[dtype]
    return nan | (page & ((1 << payload) - 1))


def poisoned_page(dtype: torch.dtype, bits: int) -> int | None:
    """The page number (modulo the payload) in a word's bits, or None if they are not poison."""
    _, nan, payload = _NAN[dtype]
    return bits & ((1 << payload) - 1) if bits & ~((1 << payload) - 1) == nan else None


def page_sums(pages: torch.Tensor) -> torch.Tensor:
    """The fingerprint [n] of each page's integers [n, layers, 2, PAGE_LENGTH, kv_heads, head_size].

    A sum modulo 2**64 of words times distinct odd numbers: changing any one word changes it, and so does a swap of two
    words that differ.
    """
    words = pages.flatten(1)
    places = torch.arange(words.shape[1], dtype=torch.int64, device=pages.device)
    return (words.long() * ((2 * places + 1) * _FINGERPRINT_FACTOR)).sum(-1)


def page_bytes(shape: ModelShape, dtype: torch.dtype) -> int:
    """Bytes of one page over all layers, K and V (PAG-10)."""
    return shape.layers * 2 * PAGE_LENGTH * shape.kv_width * dtype.itemsize


class PagedMemory:
    """KV tensor [layers, pages + 1, 2 (K, V), PAGE_LENGTH, kv_heads, head_size] and stamps [pages + 1, 4] int64.

    `pages` counts the sink, and not the scratch page at the end. Every page starts free and poisoned. Methods are
    called from one host thread.
    """

    def __init__(self, device: Device, shape: ModelShape, pages: int, dtype: torch.dtype = torch.float32) -> None:
        if pages < 2:
            raise PageMisuse(f"a pool of {pages} page(s) has no page beside the sink")
        self.device, self.shape, self.pages, self.dtype = device, shape, pages, dtype
        self.scratch = pages
        """Where padding rows write: no page of anyone."""
        self._integer = _NAN[dtype][0]
        there = pages + 1
        size = (shape.layers, there, 2, PAGE_LENGTH, shape.kv_heads, shape.head_size)
        self.kv = torch.empty(size, dtype=dtype, device=device.torch_device)
        self.bits = self.kv.view(self._integer)
        self.poison = torch.tensor(
            [poison_bits(dtype, page) for page in range(there)],
            dtype=self._integer,
            device=device.torch_device,
        )
        self.bits.copy_(self._pattern(torch.arange(there, device=device.torch_device)).expand_as(self.bits))
        self.stamps = torch.full((there, 4), NOBODY, dtype=torch.int64, device=device.torch_device)
        self.stamps[:, GENERATION] = 0
        self._generations = [0] * pages
        if device.is_cuda:
            torch.cuda.synchronize(device.torch_device)  # the streams are not ordered after the default stream

    def grant(self, stream: Stream, pages: Sequence[int], *, owner: int, scope: int, first_index: int) -> Grant:
        """On `stream`: check that every word of the pages is poison, then stamp them for `owner`.

        `first_index` is the logical index of the first page; the rest follow. The stream must be ordered
        after the pages' scrub (`Stream.wait`), or the check sees the old content. Raises PageMisuse.
        """
        claims = tuple(PageClaim(page, self._next_generation(page, parity=1)) for page in self._checked(pages))
        numbers = [claim.page for claim in claims]
        stamps = [[c.generation, owner, scope, first_index + i] for i, c in enumerate(claims)]

        def work() -> torch.Tensor:
            index = self._upload(numbers)
            seen = self._broken_words(index)
            self.stamps[index] = self._upload(stamps).view(-1, 4)
            return self.device.download(seen)

        evidence = stream.submit(work).then(lambda seen: _canary_evidence(numbers, seen, owner))
        return Grant(claims, evidence)

    def publish(self, stream: Stream, pages: Sequence[int]) -> Pending[None]:
        """On `stream`: stamp the pages as shared (PAG-6). Readers on other streams wait for the returned
        event.
        """
        numbers = self._checked(pages)

        def work() -> None:
            self.stamps[self._upload(numbers), OWNER] = SHARED_OWNER

        return stream.submit(work)

    def reclaim(self, stream: Stream, pages: Sequence[int]) -> Pending[None]:
        """On `stream`: stamp the pages free with the next even generation, then poison them (the scrub)."""
        numbers = self._checked(pages)
        stamps = [[self._next_generation(page, parity=0), NOBODY, NOBODY, NOBODY] for page in numbers]

        def work() -> None:
            index = self._upload(numbers)
            # Stamps first: a step in flight that still reads these pages finds the new generation at its end.
            self.stamps[index] = self._upload(stamps).view(-1, 4)
            self.bits[:, index] = self._pattern(index).expand(self.shape.layers, -1, *self.bits.shape[2:])

        return stream.submit(work)

    def audit_free(self, stream: Stream, pages: Sequence[int]) -> Pending[Evidence]:
        """On `stream`: check every word of the sink and of pages that should be free; each page that is not all poison
        is evidence.
        """
        numbers = [SINK, *self._checked(pages)]
        checked = stream.submit(lambda: self.device.download(self._broken_words(self._upload(numbers))))
        return checked.then(lambda seen: _canary_evidence(numbers, seen, NOBODY))

    def fingerprint(self, stream: Stream, pages: Sequence[int]) -> Pending[dict[int, int]]:
        """On `stream`: the sum of each page's bits (`page_sums`), to compare later with `compare_fingerprints`."""
        numbers = self._checked(pages)

        def work() -> torch.Tensor:
            return self.device.download(page_sums(self.bits[:, self._upload(numbers)].transpose(0, 1)))

        return stream.submit(work).then(lambda sums: dict(zip(numbers, sums.tolist(), strict=True)))

    def _next_generation(self, page: int, parity: int) -> int:
        last = self._generations[page]
        self._generations[page] = last + 1 if (last + 1) % 2 == parity else last + 2
        return self._generations[page]

    def _checked(self, pages: Sequence[int]) -> list[int]:
        for page in pages:
            if not SINK < page < self.pages:
                raise PageMisuse(f"page {page} is not one of 1..{self.pages - 1} (page {SINK} is the sink)")
        return list(pages)

    def _upload(self, values: Sequence[int] | Sequence[Sequence[int]]) -> torch.Tensor:
        """int64 on the device; called inside launched work, so that the copy is ordered on its stream."""
        return self.device.upload(torch.tensor(values, dtype=torch.int64))

    def _pattern(self, index: torch.Tensor) -> torch.Tensor:
        """Poison of the pages, broadcastable to [layers, pages, 2, PAGE_LENGTH, kv_heads, head_size]."""
        return self.poison[index].view(1, -1, 1, 1, 1, 1)

    def _broken_words(self, index: torch.Tensor) -> torch.Tensor:
        """For each page its number, and how many of its words are not its poison: int64 [pages, 2]."""
        broken = (self.bits[:, index] != self._pattern(index)).sum(dim=(0, 2, 3, 4, 5))
        return torch.stack([index, broken], dim=1)


def _canary_evidence(pages: Sequence[int], seen: torch.Tensor, owner: int) -> Evidence:
    """CANARY_BROKEN by what was seen, CHECK_MISSING for each page that was not looked at."""
    broken: dict[int, int] = dict(seen.tolist())
    missing = EvidenceKind.CHECK_MISSING
    return from_findings(
        Finding(missing, page, owner, -1, "a look at every word", "none")
        if page not in broken
        else Finding(
            EvidenceKind.CANARY_BROKEN, page, owner, -1, "poison in every word", f"{broken[page]} other word(s)"
        )
        for page in pages
        if broken.get(page, 1)
    )


def compare_fingerprints(before: dict[int, int], after: dict[int, int]) -> Evidence:
    """PARKED_PAGE_CHANGED for each page of `before` whose fingerprint in `after` is another."""
    return from_findings(
        Finding(EvidenceKind.PARKED_PAGE_CHANGED, page, -1, -1, hex(value), hex(after[page]))
        for page, value in before.items()
        if after[page] != value
    )
