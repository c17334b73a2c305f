"""What a calibration comes to, as JSON values and as text for people."""

from collections.abc import Iterable, Mapping
from typing import Any

from attrs import asdict, frozen

from kvescrow.gpu_harness.calibration.serve import Served
from kvescrow.reference.replay.measures import quantiles
from kvescrow.reference.scheduler import Checked, CostModel, GapBudget, MeasuredStep
from kvescrow.reference.scheduler.calibration import COVERAGE, OUTSIDE_AT_MOST
from kvescrow.reference.scheduler.cost import PERMILLE
from kvescrow.spec.vocabulary import Reason

PASSED, FAILED = "passed", "failed"
UNITS = {
    "fixed": "ns a step",
    "per_prefill_token": "ns a prompt token",
    "per_decode_sequence": "ns a decode",
    "per_context_token": "ns a token read",
    "per_attended_pair": "fs a pair",
}


@frozen
class Infeasible:
    """Something that cannot be done, and what the rule said."""

    asked: str
    reason: Reason


WANTED = (Reason.GAP_TOO_SMALL_FOR_DECODE, Reason.DEADLINE_UNREACHABLE, Reason.OUT_OF_MODEL_RANGE, Reason.MODEL_FAILED)
"""The reasons that the questions of a run must be answered with, in their order."""


@frozen
class Calibration:
    """One run. Times are in microseconds."""

    model: CostModel
    gap: int
    """The token-gap budget that is to be kept."""
    budget: GapBudget
    """What the rule is given of it."""
    fit_to: tuple[MeasuredStep, ...]
    banded_by: tuple[MeasuredStep, ...]
    held_out: tuple[MeasuredStep, ...]
    check: Checked
    with_rule: Served
    with_fixed: Served
    infeasible: tuple[Infeasible, ...]

    @property
    def problems(self) -> tuple[str, ...]:
        """What was not as it must be; the run passes where there is nothing."""
        return tuple(self._problems())

    def _problems(self) -> Iterable[str]:
        check, gap = self.check, self.gap
        if not check.holds:
            yield f"{check.steps - check.inside} of {check.steps} held-out steps lie outside the band"
        if self.with_rule.drifted:
            yield "the model left its band while it was used"
        if p99(self.with_rule) > gap:
            yield f"with the rule the 99th percentile of the token gap is {p99(self.with_rule)} us of {gap} us"
        if self.with_rule.given_up is not Reason.NONE and not self.with_rule.prompts_done:
            yield f"with the rule no prompt was computed: {self.with_rule.given_up.value}"
        if p99(self.with_fixed) <= gap:
            yield f"a fixed chunk keeps the gap too: {gap} us is no budget that needs a rule; give a smaller one"
        for each, wanted in zip(self.infeasible, WANTED, strict=True):
            if each.reason is not wanted:
                yield f"{each.asked}: the rule says {each.reason.value}, not {wanted.value}"

    @property
    def gaps_inside(self) -> int:
        """How many gaps under the rule lie inside the band around what was predicted of their step (CHK-5)."""
        served = self.with_rule
        return sum(
            abs(gap - predicted) * PERMILLE <= self.model.band * predicted
            for gap, predicted in zip(served.gaps, served.predicted, strict=True)
        )

    @property
    def verdict(self) -> str:
        """Return `passed` or `failed`."""
        return FAILED if self.problems else PASSED

    def as_json(self) -> dict[str, Any]:
        """Return everything, the measured steps included."""
        return {
            "verdict": self.verdict,
            "problems": list(self.problems),
            "coefficients": asdict(self.model.cost),
            "units": UNITS,
            "range": asdict(self.model.range) if self.model.range else None,
            "band_permille": self.model.band,
            "band_coverage_permille": COVERAGE,
            "held_out": {**asdict(self.check), "outside_at_most_permille": OUTSIDE_AT_MOST},
            "gap_budget": self.gap,
            "gap_given_to_the_rule": self.budget.gap,
            "with_rule": {**_served(self.with_rule), "gaps_inside_band": self.gaps_inside},
            "with_fixed_chunk": {"chunk": self.budget.largest, **_served(self.with_fixed)},
            "infeasible": [{"asked": each.asked, "answer": each.reason.value} for each in self.infeasible],
            "steps": {
                name: [_step(self.model, step) for step in steps]
                for name, steps in (("fit", self.fit_to), ("band", self.banded_by), ("held_out", self.held_out))
            },
        }

    @property
    def summary(self) -> str:
        """Return the figures as text."""
        check, gap = self.check, self.gap
        lines = [f"  {name:20} {getattr(self.model.cost, name):>12,} {unit}" for name, unit in UNITS.items()]
        lines = [
            f"fitted to {len(self.fit_to)} steps, band from {len(self.banded_by)} others:",
            *lines,
            f"  band                 {self.model.band / 10:>12.1f} % above or below, for {COVERAGE / 10:g} % of steps",
            f"held out: {check.steps} steps, {check.inside} inside the band ({check.inside / check.steps:.1%}); "
            f"typically {check.typical / 10:.1f} % off, median {check.median / 10:+.1f} %",
            f"token gap, budget {gap / 1000:.2f} ms:",
            _line("chunk rule", self.with_rule, gap),
            _line(f"fixed chunk of {self.budget.largest}", self.with_fixed, gap),
            f"  {self.gaps_inside} of {len(self.with_rule.gaps)} gaps with the rule lie in the predicted band",
            *(f"{each.asked}: {each.reason.value}" for each in self.infeasible),
            *self.problems,
        ]
        return "\n".join(lines)


def p99(served: Served) -> int:
    """Return the 99th percentile of the gaps, by nearest rank; 0 where there is none."""
    return quantiles(served.gaps).p99 or 0


def _line(name: str, served: Served, gap: int) -> str:
    seen, over = quantiles(served.gaps), sum(each > gap for each in served.gaps)
    return (
        f"  {name:20} p50 {(seen.p50 or 0) / 1000:.2f} ms, p99 {p99(served) / 1000:.2f} ms, "
        f"{over} of {seen.count} over; {served.prompts_done} prompts in chunks of {_sizes(served)}"
    )


def _sizes(served: Served) -> str:
    sizes = [size for size in served.chunks if size]
    return f"{min(sizes)} to {max(sizes)}" if sizes else "none"


def _served(served: Served) -> Mapping[str, Any]:
    return {
        "gap": asdict(quantiles(served.gaps)),
        "gaps": list(served.gaps),
        "predicted": list(served.predicted),
        "chunks": list(served.chunks),
        "prompts_done": served.prompts_done,
        "steps_without_chunk": {reason.value: steps for reason, steps in _named(served.answers)},
        "drifted": served.drifted,
    }


def _named(answers: Mapping[Reason, int]) -> Iterable[tuple[Reason, int]]:
    return sorted(answers.items(), key=lambda item: item[0].value)


def _step(model: CostModel, step: MeasuredStep) -> Mapping[str, int]:
    return {
        **asdict(step.work),
        "measured": step.microseconds,
        "predicted": model.cost.duration(step.work),
    }
