"""Every sabotage by name, with the evidence that must show it (FRM-5, CON-2).

A sabotage is a `Conduct` with one decision turned wrong; everything else of the run is as it is. The ledger, the page
pool and the journal agree with the tables all the while, since they are told what is not so: what shows the mistake
is memory, output, or what a client sees.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from attrs import frozen

from kvescrow.gpu_harness.conform import Conduct, ConformResult
from kvescrow.gpu_harness.evidence import EvidenceKind as Kind
from kvescrow.gpu_harness.sabotage import ends, memory, sharing

OF_BITS = frozenset({Kind.LOGITS_DIFFER, Kind.PAGE_DIFFERS})
"""Kinds that count where the device is exact."""
CONTENT = frozenset({Kind.CANARY_BROKEN, Kind.POISON_READ, Kind.NAN_LOGITS, Kind.LOGITS_DIFFER})
"""A step that outlives its pages writes where poison should stay, or reads poison or what another has written."""


@frozen
class Sabotage:
    """One mistake, and the evidence that must show it: every kind of `all_of`, and one of `any_of` if it names any."""

    conduct: Callable[[], Conduct]
    all_of: frozenset[Kind]
    any_of: frozenset[Kind] = frozenset()

    @property
    def summary(self) -> str:
        """What the mistake is."""
        return (self.conduct.__doc__ or "").partition("\n")[0]

    def mark(self, kind: Kind) -> str:
        """How a matrix marks the kind: must be found, one of several, or nothing."""
        return "*" if kind in self.all_of else "+" if kind in self.any_of else ""

    def missing(self, result: ConformResult) -> frozenset[Kind]:
        """What should have been found and was not. Bits count where the device is exact."""
        uncounted = frozenset() if result.exact else OF_BITS
        all_of, any_of = self.all_of - uncounted, self.any_of - uncounted
        found = result.evidence.kinds
        missing = (all_of - found) | (frozenset() if any_of & found else any_of)
        # Where nothing that must show it can count on this device, nothing has.
        return missing if all_of or any_of else self.all_of | self.any_of


def _sabotage(conduct: Callable[[], Conduct], *all_of: Kind, any_of: frozenset[Kind] = frozenset()) -> Sabotage:
    return Sabotage(conduct, frozenset(all_of), any_of)


SABOTAGES: Mapping[str, Sabotage] = MappingProxyType(
    {
        # When work is over.
        "release-at-cancel": _sabotage(ends.ReleaseAtCancel, Kind.GENERATION_MISMATCH, any_of=CONTENT),
        "reuse-before-ticket-ends": _sabotage(ends.ReuseBeforeTicketEnds, Kind.GENERATION_MISMATCH, any_of=CONTENT),
        "event-unrecorded": _sabotage(ends.UnrecordedEvent, Kind.EVENT_REFUSED),
        "event-unrecorded-believed": _sabotage(ends.UnrecordedEventBelieved, Kind.GENERATION_MISMATCH, any_of=CONTENT),
        "event-on-wrong-stream": _sabotage(ends.EventOnWrongStream, Kind.GENERATION_MISMATCH, any_of=CONTENT),
        "event-reused": _sabotage(ends.EventReused, Kind.EVENT_REFUSED),
        "descriptor-slot-reused": _sabotage(ends.DescriptorSlotReused, Kind.DESCRIPTOR_MISMATCH, Kind.LOGITS_DIFFER),
        "cancel-ignored": _sabotage(ends.CancelIgnored, Kind.LAUNCH_AFTER_CANCEL, Kind.OUTPUT_AFTER_CANCEL),
        "output-after-cancel": _sabotage(ends.OutputAfterCancel, Kind.OUTPUT_AFTER_CANCEL),
        # Who may share a prefix, and when.
        "scope-without-tenant": _sabotage(sharing.ScopeWithoutTenant, Kind.SCOPE_MISMATCH, Kind.LOGITS_DIFFER),
        "scope-without-adapter": _sabotage(sharing.ScopeWithoutAdapter, Kind.SCOPE_MISMATCH, Kind.LOGITS_DIFFER),
        "scope-without-epoch": _sabotage(sharing.ScopeWithoutEpoch, Kind.SCOPE_MISMATCH, Kind.LOGITS_DIFFER),
        "weights-changed-under-work": _sabotage(sharing.WeightsChangedUnderWork, Kind.LOGITS_DIFFER),
        "hash-only-match": _sabotage(sharing.HashOnlyMatch, Kind.LOGITS_DIFFER, Kind.PAGE_DIFFERS),
        "partial-page-matched": _sabotage(sharing.PartialPageMatched, Kind.SHARED_PAGE_WRITTEN, any_of=CONTENT),
        "shared-page-written": _sabotage(sharing.SharedPageWritten, Kind.SHARED_PAGE_WRITTEN),
        "publish-before-compute": _sabotage(
            sharing.PublishBeforeCompute, Kind.SHARED_PAGE_WRITTEN, Kind.PARKED_PAGE_CHANGED
        ),
        "evict-in-flight": _sabotage(
            sharing.EvictInFlight, Kind.GENERATION_MISMATCH, Kind.POISON_READ, Kind.NAN_LOGITS
        ),
        # Pages on the device.
        "missing-event-wait": _sabotage(memory.MissingEventWait, Kind.CANARY_BROKEN, Kind.GENERATION_MISMATCH),
        "scrub-skipped": _sabotage(memory.ScrubSkipped, Kind.CANARY_BROKEN),
        "canary-skipped": _sabotage(memory.CanarySkipped, Kind.CHECK_MISSING),
        "double-release": _sabotage(memory.DoubleRelease, Kind.GENERATION_MISMATCH),
        "growth-without-grant": _sabotage(memory.GrowthWithoutGrant, Kind.GENERATION_MISMATCH, Kind.OWNER_MISMATCH),
        "padding-rows-on-page-0": _sabotage(memory.PaddingRowsOnPageZero, Kind.CANARY_BROKEN),
        "page-order-swapped": _sabotage(memory.PageOrderSwapped, Kind.INDEX_MISMATCH),
        "ulp-in-cached-page": _sabotage(memory.UlpInCachedPage, Kind.PARKED_PAGE_CHANGED),
        "ulp-in-private-page": _sabotage(memory.UlpInPrivatePage, Kind.PAGE_DIFFERS),
    }
)
"""By the name that a user gives."""
