"""What was seen on the device: kinds, findings, and counters that only grow.

No torch here, so that a report can read evidence on a machine without it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import Enum
from types import MappingProxyType

from attrs import field, frozen

FINDINGS_KEPT = 8
"""How many instances of each kind are kept beside the exact count."""


class EvidenceKind(Enum):
    """One way in which memory or output can differ from what the tables promise (CON-2)."""

    GENERATION_MISMATCH = "generation_mismatch"
    """A step listed a page whose generation stamp is not the one it was granted: the page was reused under
    it (PAG-4).
    """

    OWNER_MISMATCH = "owner_mismatch"
    """A step listed a page that belongs to another request and is not shared (PAG-3, PAG-6)."""

    SCOPE_MISMATCH = "scope_mismatch"
    """A step listed a page stamped with another prefix scope (SCO-1, SCO-4)."""

    INDEX_MISMATCH = "index_mismatch"
    """A step listed a page at another place of its block table than the page was granted for (SCO-2)."""

    SHARED_PAGE_WRITTEN = "shared_page_written"
    """A step listed a shared page for writing; shared pages are read-only (PAG-7)."""

    CANARY_BROKEN = "canary_broken"
    """Poison is missing where nobody should have written: in a free page, or in the unwritten tail of a
    granted one.
    """

    POISON_READ = "poison_read"
    """A page that a step reads holds its poison where the request's tokens should be: it was reclaimed
    (PAG-4).
    """

    NAN_LOGITS = "nan_logits"
    """A step produced a NaN logit: it read poison or unwritten memory."""

    LOGITS_DIFFER = "logits_differ"
    """The logits are not bit for bit those of the independent dense decode."""

    TOKENS_DIFFER = "tokens_differ"
    """The chosen token is not that of the independent dense decode."""

    PARKED_PAGE_CHANGED = "parked_page_changed"
    """A page that nobody may write (shared, cached, or of a paused request) changed its bits (PAG-7)."""

    GRANT_BEFORE_TICKET_DONE = "grant_before_ticket_done"
    """A page was granted while a launched ticket that lists it was not done, whatever memory shows of it
    (PAG-4).
    """

    PAGE_DIFFERS = "page_differs"
    """A page of a completed request is not bit for bit what the independent dense decode has in its cache (CON-2)."""

    DESCRIPTOR_MISMATCH = "descriptor_mismatch"
    """A step read the descriptor of another step: its slot of the ring was written too early (PAG-4)."""

    EVENT_REFUSED = "event_refused"
    """An event was asked that nothing ever recorded, or recorded a second time: it could only have guessed (PAG-4)."""

    CHECK_MISSING = "check_missing"
    """Pages were handed out without the look at every word that each grant begins with (CON-2)."""

    LAUNCH_AFTER_CANCEL = "launch_after_cancel"
    """A step was launched for a request whose cancel had been accepted (LIF-3)."""

    OUTPUT_AFTER_CANCEL = "output_after_cancel"
    """A client was given a token after its cancel was accepted (LIF-6)."""


@frozen
class Finding:
    """One instance. Page, request and ticket are -1 where they do not apply; expected and found are
    printable.
    """

    kind: EvidenceKind
    page: int
    request: int
    ticket: int
    expected: str
    found: str

    def __str__(self) -> str:
        place = f"page {self.page}, request {self.request}, ticket {self.ticket}"
        return f"{self.kind.name}: {place}: expected {self.expected}, found {self.found}"


def _counts(counts: Mapping[EvidenceKind, int]) -> Mapping[EvidenceKind, int]:
    return MappingProxyType({kind: n for kind, n in counts.items() if n})


@frozen
class Evidence:
    """Counts by kind, with the first few findings of each. Immutable; evidence is added with `+`."""

    counts: Mapping[EvidenceKind, int] = field(factory=dict, converter=_counts)
    findings: tuple[Finding, ...] = ()

    def __add__(self, other: "Evidence") -> "Evidence":
        counts = Counter(self.counts)
        counts.update(other.counts)
        return Evidence(counts, _first_of_each(self.findings + other.findings))

    def count(self, kind: EvidenceKind) -> int:
        """How often `kind` was found, 0 included."""
        return self.counts.get(kind, 0)

    @property
    def clean(self) -> bool:
        """Whether nothing at all was found."""
        return not self.counts

    @property
    def kinds(self) -> frozenset[EvidenceKind]:
        """The kinds that were found at all."""
        return frozenset(self.counts)


NOTHING = Evidence()


def from_findings(findings: Iterable[Finding]) -> Evidence:
    """Evidence in which every finding counts once."""
    found = tuple(findings)
    return Evidence(Counter(finding.kind for finding in found), _first_of_each(found)) if found else NOTHING


def _first_of_each(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    seen: Counter[EvidenceKind] = Counter()
    kept = []
    for finding in findings:
        seen[finding.kind] += 1
        if seen[finding.kind] <= FINDINGS_KEPT:
            kept.append(finding)
    return tuple(kept)
