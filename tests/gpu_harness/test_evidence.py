"""Evidence only grows, counts exactly, and keeps the first findings of each kind."""

from __future__ import annotations

import inspect

import pytest
from attrs.exceptions import FrozenInstanceError

from kvescrow.gpu_harness import evidence
from kvescrow.gpu_harness.evidence import (
    FINDINGS_KEPT,
    NOTHING,
    Evidence,
    EvidenceKind,
    Finding,
    from_findings,
)

KIND = EvidenceKind


def finding(kind: EvidenceKind, page: int) -> Finding:
    return Finding(kind, page, 3, 9, "4", "6")


def test_counts_are_exact_and_the_first_findings_are_kept() -> None:
    many = from_findings(finding(KIND.GENERATION_MISMATCH, page) for page in range(20))
    total = many + from_findings([finding(KIND.NAN_LOGITS, 1)]) + many
    assert dict(total.counts) == {KIND.GENERATION_MISMATCH: 40, KIND.NAN_LOGITS: 1}
    assert [f.page for f in total.findings if f.kind is KIND.GENERATION_MISMATCH] == list(range(FINDINGS_KEPT))
    assert total.count(KIND.NAN_LOGITS) == 1
    assert total.count(KIND.SCOPE_MISMATCH) == 0
    assert total.kinds == {KIND.GENERATION_MISMATCH, KIND.NAN_LOGITS}
    assert not total.clean


def test_nothing_is_clean_and_neutral() -> None:
    one = from_findings([finding(KIND.NAN_LOGITS, 1)])
    assert NOTHING.clean
    assert one + NOTHING == one == NOTHING + one
    assert from_findings([]) == NOTHING == Evidence({KIND.NAN_LOGITS: 0})


def test_evidence_cannot_be_taken_back() -> None:
    one = from_findings([finding(KIND.NAN_LOGITS, 1)])
    with pytest.raises(FrozenInstanceError):
        one.findings = ()  # type: ignore[misc]
    with pytest.raises(TypeError):
        one.counts[KIND.NAN_LOGITS] = 0  # type: ignore[index]


def test_a_finding_reads_as_a_line() -> None:
    assert str(finding(KIND.OWNER_MISMATCH, 5)) == ("OWNER_MISMATCH: page 5, request 3, ticket 9: expected 4, found 6")


def test_every_kind_says_what_it_means() -> None:
    source = inspect.getsource(evidence.EvidenceKind)
    for kind in EvidenceKind:
        line = f'{kind.name} = "{kind.value}"\n    """'
        assert line in source, kind
        assert kind.value == kind.name.lower()
