"""Sabotaged runs, and whether the evidence that must show the mistake was found."""

from collections.abc import Sequence

from attrs import frozen

from kvescrow.gpu_harness.conform import Conduct, ConformResult, Settings
from kvescrow.gpu_harness.conform.harness import conform_on, of_hazards
from kvescrow.gpu_harness.conform.platform import Platform
from kvescrow.gpu_harness.evidence import EvidenceKind
from kvescrow.gpu_harness.sabotage.catalogue import SABOTAGES
from kvescrow.spec.vocabulary import UserError

ALL = "all"
"""Stands for every sabotage."""
NONE = "none"
"""The name, in a matrix, of the run without any."""
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


def check_name(name: str) -> None:
    """Raise UserError where no sabotage is called so."""
    if name not in SABOTAGES:
        raise UserError(f"no sabotage is called {name!r}; choose from {', '.join(SABOTAGES)}, or {ALL}")


def sabotaged(name: str, platform: Platform, settings: Settings) -> SabotageResult:
    """Run the workload of all hazards under a sabotage. Raises UserError for an unknown name, and what `conform`
    raises.
    """
    check_name(name)
    return SabotageResult(name, _run(platform, settings, SABOTAGES[name].conduct()))


def unsabotaged(platform: Platform, settings: Settings) -> ConformResult:
    """Run the same workload rightly: what a sabotage shows there is to be shown by the sabotage alone."""
    return _run(platform, settings, Conduct())


def _run(platform: Platform, settings: Settings, conduct: Conduct) -> ConformResult:
    offered, small = of_hazards(settings, platform)
    return conform_on(platform, offered, small, conduct=conduct)


def matrix(results: Sequence[SabotageResult], right: Sequence[ConformResult]) -> list[tuple[str, str, str]]:
    """Rows of a table: sabotage, verdict, and the evidence, with `*` where it must be found and `+` where it or another
    `+` must. `right` are the runs without a sabotage.

    Of one run the evidence is counted; of several, the runs in which it was found.
    """
    rows = [("sabotage", "verdict", "evidence found")]
    if right:
        clean = sum(run.evidence.clean and not run.violations for run in right)
        rows.append((NONE, f"clean{_of(clean, right)}", _found(right, "") or "nothing"))
    for name in dict.fromkeys(result.name for result in results):
        own = [result for result in results if result.name == name]
        missed = [result for result in own if result.missing]
        verdict = MISSED if missed else CAUGHT
        rows.append((name, f"{verdict}{_of(len(missed or own), own)}", _found([result.run for result in own], name)))
    return rows


def counted(results: Sequence[SabotageResult]) -> list[dict[str, object]]:
    """The same as JSON values: for each sabotage its runs, those in which it was caught, and by evidence those in which
    that was found.
    """
    rows: list[dict[str, object]] = []
    for name in dict.fromkeys(result.name for result in results):
        own = [result for result in results if result.name == name]
        found = {kind.value: sum(kind in each.run.evidence.kinds for each in own) for kind in EvidenceKind}
        rows.append(
            {
                "sabotage": name,
                "runs": len(own),
                "caught": sum(not each.missing for each in own),
                "all_of": _values(SABOTAGES[name].all_of),
                "any_of": _values(SABOTAGES[name].any_of),
                "found_in": {kind: runs for kind, runs in found.items() if runs},
            }
        )
    return rows


def _of(count: int, runs: Sequence[object]) -> str:
    return f" {count} of {len(runs)}" if len(runs) > 1 else ""


def _found(runs: Sequence[ConformResult], name: str) -> str:
    parts = []
    for kind in EvidenceKind:
        mark = SABOTAGES[name].mark(kind) if name else ""
        counts = [run.evidence.count(kind) for run in runs]
        count = sum(map(bool, counts)) if len(runs) > 1 else counts[0]
        if count or mark:
            parts.append(f"{kind.value} {count}{mark}")
    return ", ".join(parts)
