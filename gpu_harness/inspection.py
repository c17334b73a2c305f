"""The evidence that a step takes of itself: computed on the device, turned into findings on the host."""

from collections.abc import Iterator

import torch
from attrs import evolve, frozen

from kvescrow.gpu_harness.device import Device
from kvescrow.gpu_harness.evidence import NOTHING, Evidence, EvidenceKind, Finding, from_findings
from kvescrow.gpu_harness.model import ModelShape
from kvescrow.gpu_harness.pages import GENERATION, INDEX, OWNER, PAGE_LENGTH, SCOPE, SHARED_OWNER, PagedMemory
from kvescrow.gpu_harness.plan import Listing, StepBatch, StepPlan

LISTING_KINDS = (
    EvidenceKind.GENERATION_MISMATCH,
    EvidenceKind.OWNER_MISMATCH,
    EvidenceKind.SCOPE_MISMATCH,
    EvidenceKind.INDEX_MISMATCH,
    EvidenceKind.SHARED_PAGE_WRITTEN,
    EvidenceKind.CANARY_BROKEN,
    EvidenceKind.POISON_READ,
)
"""Kinds that are counted per listed page, in the order of `Inspection.violations`."""

_COLUMN = {
    EvidenceKind.GENERATION_MISMATCH: GENERATION,
    EvidenceKind.OWNER_MISMATCH: OWNER,
    EvidenceKind.SCOPE_MISMATCH: SCOPE,
    EvidenceKind.INDEX_MISMATCH: INDEX,
    EvidenceKind.SHARED_PAGE_WRITTEN: OWNER,
}

CANARY_STRIDE = 1_000_003
"""Prime, so that the word looked at moves through all words of a token as tickets go by."""


@frozen
class Inspection:
    """Raw results. `violations` [listings, kinds] bool, `stamps` [listings, 4] as first found wrong (or as
    found at the start), `nan_rows` [segments] bool.
    """

    violations: torch.Tensor
    stamps: torch.Tensor
    nan_rows: torch.Tensor

    def downloaded(self, device: Device) -> "Inspection":
        """The same on the host, valid once an event recorded after it is done."""
        return evolve(
            self,
            violations=device.download(self.violations),
            stamps=device.download(self.stamps),
            nan_rows=device.download(self.nan_rows),
        )


@frozen
class Counters:
    """What kernels have counted while they read and wrote: `counts` [listings, kinds] int32, and the stamps that were
    wrong (or those at the start), `found` [listings, 4] int64.
    """

    counts: torch.Tensor
    found: torch.Tensor

    @classmethod
    def of(cls, listing: Listing) -> "Counters":
        """None counted yet."""
        count, device = len(listing.pages), listing.pages.device
        counts = torch.zeros(count, len(LISTING_KINDS), dtype=torch.int32, device=device)
        return cls(counts, listing.expected.clone())


class Inspector:
    """Compares what a step lists with what the pool holds."""

    def __init__(self, memory: PagedMemory) -> None:
        self._memory = memory
        self._slots = torch.arange(PAGE_LENGTH, device=memory.device.torch_device)

    def before(self, plan: StepPlan, ticket: int) -> tuple[torch.Tensor, torch.Tensor]:
        """What is there before the model reads, to be judged when it is done: one word of every token slot, the same of
        all, [listings, PAGE_LENGTH], and stamps [listings, 4].
        """
        layer, kind, head, element = canary_word(self._memory, ticket)
        pages, memory = plan.listing.pages, self._memory
        return memory.bits[layer, :, kind, :, head, element].index_select(0, pages), memory.stamps.index_select(
            0, pages
        )

    def after(self, plan: StepPlan, before: tuple[torch.Tensor, torch.Tensor], logits: torch.Tensor) -> Inspection:
        """The inspection of the whole step: a stamp that is wrong at its start or at its end counts once."""
        listing, (words, first) = plan.listing, before
        wrong, found = self._judged(listing, first, self._memory.stamps.index_select(0, listing.pages))
        violations = torch.cat([wrong, self._canaries(listing, words)], dim=1)
        return Inspection(violations, found, logits.amax(-1).isnan())

    def _judged(self, listing: Listing, first: torch.Tensor, later: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The first five of LISTING_KINDS, [listings, 5], and the stamps that show them, the earlier if those do."""
        # Where the host may ask at no cost, stamps that are all as expected need no telling apart.
        if not first.is_cuda and torch.equal(first, listing.expected) and torch.equal(later, listing.expected):
            return torch.zeros(len(first), 5, dtype=torch.bool), later
        stamps = torch.stack([first, later])
        wrong = _stamp_violations(listing, stamps)
        return wrong.any(0), torch.where(wrong[0].any(1, keepdim=True), first, later)

    def _canaries(self, listing: Listing, words: torch.Tensor) -> torch.Tensor:
        """CANARY_BROKEN and POISON_READ [listings, 2]: a slot must hold either a token or poison."""
        poisoned = words == self._memory.poison.index_select(0, listing.pages)[:, None]
        filled = self._slots < listing.filled[:, None]
        return torch.stack([~(poisoned | filled), poisoned & filled]).any(-1).T


class Unwatched(Inspector):
    """Looks at nothing: what the checks cost is measured against this."""

    def before(self, plan: StepPlan, ticket: int) -> tuple[torch.Tensor, torch.Tensor]:
        """No violations."""
        return torch.zeros(0, len(LISTING_KINDS), dtype=torch.bool), torch.zeros(0, 4, dtype=torch.int64)

    def after(self, plan: StepPlan, before: tuple[torch.Tensor, torch.Tensor], logits: torch.Tensor) -> Inspection:
        """An empty inspection."""
        return Inspection(*before, torch.zeros(0, dtype=torch.bool))


def words_of_token(shape: ModelShape) -> int:
    """Words of one token slot over all layers."""
    return shape.layers * 2 * shape.kv_width


def canary_word(memory: PagedMemory, ticket: int) -> tuple[int, int, int, int]:
    """Layer, K or V (0 or 1), KV head and element that the step `ticket` looks at in every token slot."""
    shape = memory.shape
    word = ticket * CANARY_STRIDE % words_of_token(shape)
    word, element = divmod(word, shape.head_size)
    word, head = divmod(word, shape.kv_heads)
    layer, kind = divmod(word, 2)
    return layer, kind, head, element


def _stamp_violations(listing: Listing, stamps: torch.Tensor) -> torch.Tensor:
    """The first five of LISTING_KINDS, [2, listings, 5], of stamps [2, listings, 4] at the start and the end."""
    differs = stamps != listing.expected
    owner, shared = differs[..., OWNER], stamps[..., OWNER] == SHARED_OWNER
    written = owner & shared & listing.written
    owner &= ~shared
    return torch.cat([differs, written[..., None]], dim=-1)  # the stamps' columns are in the order of their kinds


def evidence_of(batch: StepBatch, inspection: Inspection) -> Evidence:
    """Findings of an inspection whose tensors are on the host."""
    if not bool(inspection.violations.any()) and not bool(inspection.nan_rows.any()):
        return NOTHING
    return from_findings([*_listing_findings(batch, inspection), *_nan_findings(batch, inspection)])


def _listing_findings(batch: StepBatch, inspection: Inspection) -> Iterator[Finding]:
    listed = [(s, index, claim) for s in batch.segments for index, claim in enumerate(s.used_claims)]
    for row, column in inspection.violations.nonzero().tolist():
        segment, index, claim = listed[row]
        kind = LISTING_KINDS[column]
        expected = (claim.generation, segment.request, segment.scope, index)
        if kind in _COLUMN:
            want, got = str(expected[_COLUMN[kind]]), str(int(inspection.stamps[row, _COLUMN[kind]]))
        else:
            want, got = ("poison", "data") if kind is EvidenceKind.CANARY_BROKEN else ("data", "poison")
        yield Finding(kind, claim.page, segment.request, batch.ticket, want, got)


def _nan_findings(batch: StepBatch, inspection: Inspection) -> Iterator[Finding]:
    for segment, is_nan in zip(batch.segments, inspection.nan_rows.tolist(), strict=True):
        if is_nan:
            yield Finding(EvidenceKind.NAN_LOGITS, -1, segment.request, batch.ticket, "numbers", "NaN")
