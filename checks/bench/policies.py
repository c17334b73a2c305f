"""What a reservation policy is worth: one saturated workload under each, ours beside the published ones (GRO-1)."""

from collections.abc import Callable, Mapping
from typing import Any

from attrs import frozen

from kvescrow.checks.bench.report import BenchReport, BenchRow, machine
from kvescrow.checks.targets.own_policies import figures_by_policy

OURS = "estimate"
SHOWN = ("utilisation", "denials", "deferrals", "preemptions", "broken_promises")


@frozen
class PolicyReport:
    """The figures of each policy's run."""

    figures: Mapping[str, Mapping[str, Any]]
    """Policy -> result of its replay."""

    @property
    def holds(self) -> bool:
        """Whether ours met as many objectives as every other, preempting nobody and breaking no promise."""
        ours = self.figures[OURS]
        kept = ours["preemptions"] == 0 and ours["broken_promises"] == 0
        return kept and all(self.met(OURS) >= self.met(policy) for policy in self.figures)

    def met(self, policy: str) -> int:
        """Return how many requests met their objectives under `policy`."""
        return int(self.figures[policy]["goodput"]["met"])

    def to_json(self) -> dict[str, object]:
        """Return the rows in the form of every measurement, and the figures beside them."""
        others = [policy for policy in self.figures if policy != OURS]
        rows = tuple(
            BenchRow("goodput", self.met(OURS), self.met(policy), policy, "requests that met their objectives")
            for policy in others
        )
        chosen = {
            policy: {"goodput": found["goodput"], "offered": found["offered"], **{name: found[name] for name in SHOWN}}
            for policy, found in self.figures.items()
        }
        return {**BenchReport(machine(), rows).to_json(), "ours": OURS, "policies": chosen}

    def rows(self) -> list[tuple[str, ...]]:
        """Return a table, a line a policy."""
        lines: list[tuple[str, ...]] = [("policy", "goodput", *(name.replace("_", " ") for name in SHOWN))]
        for policy, found in self.figures.items():
            cells = [f"{found['utilisation']:.1%}", *(str(found[name]) for name in SHOWN[1:])]
            lines.append((policy, f"{self.met(policy)} of {found['offered']}", *cells))
        return lines


def measure(requests: int | None, show: Callable[[str], None]) -> PolicyReport:
    """Replay the workload under each policy; with `requests`, only so many of its first ones."""
    return PolicyReport(figures_by_policy(requests, show))
