"""Workers that make one known mistake, each of which the evidence on the device must catch (FRM-5, CON-2).

A sabotage is a `Conduct` with one decision turned wrong; everything else of the run is as it is. The ledger, the page
pool and the journal agree with the tables all the while, since they are told what is not so: what shows the mistake
is memory.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from attrs import evolve, frozen

from kvescrow.gpu_harness.conform import Conduct, ConformResult, LaunchedStep, Progress, Settings, conform
from kvescrow.gpu_harness.evidence import EvidenceKind
from kvescrow.reference.traces import Trace
from kvescrow.spec.vocabulary import PrefixScope, UserError

ALL = "all"
"""Stands for every sabotage."""
REQUESTS = 24
CANCEL_RATE = 0.4
"""Fewer requests than a conformance run, and more of them cancelled: a mistake must be caught early."""


class ReleaseAtCancel(Conduct):
    """An accepted cancel counts as the end of the steps in flight: pages and charge are given back at once."""

    def over_at_cancel(self, steps: Sequence[LaunchedStep]) -> Sequence[LaunchedStep]:
        """All of them."""
        return steps


class CrossScopeReuse(Conduct):
    """Prefixes are looked up by tokens alone, whoever they belong to."""

    def scope(self, scope: int) -> PrefixScope:
        """One scope for all tenants."""
        return super().scope(0)


class ReuseBeforeTicketEnds(Conduct):
    """A step counts as over with the one before it on its stream: the last known end instead of the last launch."""

    def is_over(self, step: LaunchedStep) -> bool:
        """Whether the step before it has ended."""
        return step.before is None or step.before.query()


_CONTENT = frozenset(
    {
        EvidenceKind.CANARY_BROKEN,
        EvidenceKind.POISON_READ,
        EvidenceKind.NAN_LOGITS,
        EvidenceKind.LOGITS_DIFFER,
    }
)
"""A step that outlives its pages writes where poison should stay, or reads poison or what another has written."""


@frozen
class Sabotage:
    """One mistake, and the evidence that must show it: by stamps and by content. Host laws are not enough."""

    conduct: Callable[[], Conduct]
    all_of: frozenset[EvidenceKind]
    any_of: frozenset[EvidenceKind]

    def mark(self, kind: EvidenceKind) -> str:
        """How `matrix` marks the kind: must be found, one of several, or nothing."""
        return "*" if kind in self.all_of else "+" if kind in self.any_of else ""

    def missing(self, result: ConformResult) -> frozenset[EvidenceKind]:
        """What should have been found and was not. Logits count where the device is exact."""
        uncounted = frozenset() if result.exact else frozenset({EvidenceKind.LOGITS_DIFFER})
        any_of = self.any_of - uncounted
        found = result.evidence.kinds
        return (self.all_of - found) | (frozenset() if any_of & found else any_of)


SABOTAGES: Mapping[str, Sabotage] = MappingProxyType(
    {
        "release-at-cancel": Sabotage(
            ReleaseAtCancel, all_of=frozenset({EvidenceKind.GENERATION_MISMATCH}), any_of=_CONTENT
        ),
        "cross-scope-reuse": Sabotage(
            CrossScopeReuse,
            all_of=frozenset({EvidenceKind.SCOPE_MISMATCH}),
            any_of=frozenset({EvidenceKind.LOGITS_DIFFER}),
        ),
        "reuse-before-ticket-ends": Sabotage(
            ReuseBeforeTicketEnds, all_of=frozenset({EvidenceKind.GENERATION_MISMATCH}), any_of=_CONTENT
        ),
    }
)
"""By the name that a user gives."""

CAUGHT, MISSED = "caught", "missed"


@frozen
class SabotageResult:
    """A sabotaged run, and whether the evidence that must show it was found."""

    name: str
    run: ConformResult

    @property
    def missing(self) -> frozenset[EvidenceKind]:
        """What should have been found and was not."""
        return SABOTAGES[self.name].missing(self.run)

    @property
    def verdict(self) -> str:
        """CAUGHT or MISSED."""
        return MISSED if self.missing else CAUGHT

    def as_json(self) -> dict[str, object]:
        """The run's result, with the verdict on the sabotage in place of the verdict on the memory."""
        return {
            "sabotage": self.name,
            **self.run.as_json(),
            "verdict": self.verdict,
            "expected": {
                "all_of": _values(SABOTAGES[self.name].all_of),
                "any_of": _values(SABOTAGES[self.name].any_of),
            },
            "missing": _values(self.missing),
        }


def _values(kinds: frozenset[EvidenceKind]) -> list[str]:
    return sorted(kind.value for kind in kinds)


def sabotaged(name: str, trace: Trace, settings: Settings, progress: Progress | None = None) -> SabotageResult:
    """Run `trace` under a sabotage; `settings` with `CANCEL_RATE`. Raises UserError for an unknown name, and what
    `conform` raises.
    """
    if name not in SABOTAGES:
        raise UserError(f"no sabotage is called {name!r}; choose from {', '.join(SABOTAGES)}, or {ALL}")
    conduct = SABOTAGES[name].conduct()
    return SabotageResult(
        name, conform(trace, evolve(settings, cancel_rate=CANCEL_RATE), conduct=conduct, progress=progress)
    )


def matrix(results: Sequence[SabotageResult]) -> list[tuple[str, ...]]:
    """Rows of a table: evidence by sabotage, with `*` where it must be found and `+` where it or another `+` must; the
    last row is the verdict.
    """
    rows: list[tuple[str, ...]] = [("evidence", *(result.name for result in results))]
    for kind in EvidenceKind:
        counts = [result.run.evidence.count(kind) for result in results]
        marks = [SABOTAGES[result.name].mark(kind) for result in results]
        if any(counts) or any(marks):
            rows.append((kind.value, *(f"{count}{mark}" for count, mark in zip(counts, marks, strict=True))))
    return [*rows, ("verdict", *(result.verdict for result in results))]
