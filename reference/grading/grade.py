"""The grade of a candidate against its baseline: gates in order, one verdict, one action (REL-3, REL-4).

A violated invariant is a failure whatever else holds, an invalid measurement included: what was seen was seen. Beside
that an invalid run decides nothing. Then a failed gate fails, a gate without data leaves nothing to promote, an
undecided one holds, and only where every gate is passed or waived may the candidate be shipped.
"""

from collections.abc import Callable, Mapping

from attrs import evolve, frozen

from kvescrow.reference.grading.gates import (
    Case,
    Gate,
    attainment_gate,
    correctness_gate,
    fairness_gate,
    non_inferiority_gate,
    run_gate,
    safety_gate,
    worst,
)
from kvescrow.reference.grading.objectives import Objectives
from kvescrow.reference.grading.outcomes import Judged, tally
from kvescrow.reference.grading.records import Run
from kvescrow.spec.vocabulary import MICROSECONDS_PER_SECOND, GradeVerdict

GATES: tuple[Callable[[Case], Gate], ...] = (
    run_gate,
    safety_gate,
    correctness_gate,
    fairness_gate,
    attainment_gate,
    non_inferiority_gate,
)
ACTIONS: Mapping[GradeVerdict, str] = {
    GradeVerdict.PASS: "SHIP",
    GradeVerdict.FAIL: "ROLLBACK",
    GradeVerdict.INCONCLUSIVE: "HOLD",
    GradeVerdict.NO_DATA: "HOLD",
    GradeVerdict.INVALID_RUN: "HOLD",
}


@frozen
class Grade:
    """What a candidate comes to."""

    verdict: GradeVerdict
    gates: tuple[Gate, ...]
    decided_by: str
    """The gate that decided; the last where all are passed."""
    goodput: Mapping[str, Mapping[str, object]]
    offered: Mapping[str, Mapping[str, object]]
    waived: Mapping[str, str]

    @property
    def action(self) -> str:
        """SHIP, HOLD or ROLLBACK."""
        return ACTIONS[self.verdict]

    @property
    def better(self) -> bool:
        """Whether the candidate passed and is better in some figure, at the stated confidence."""
        figures = next(gate.figures for gate in self.gates if gate.name == "non_inferiority")
        claims = [each for each in figures.values() if isinstance(each, Mapping) and each.get("better")]
        return self.verdict is GradeVerdict.PASS and bool(claims)

    def as_json(self) -> dict[str, object]:
        """Return the grade as JSON values."""
        return {
            "verdict": self.verdict.value,
            "action": self.action,
            "decided_by": self.decided_by,
            "better": self.better,
            "gates": [
                {"name": gate.name, "verdict": gate.verdict.value, "why": gate.why, "figures": dict(gate.figures)}
                for gate in self.gates
            ],
            "goodput": {name: dict(each) for name, each in self.goodput.items()},
            "offered": {name: dict(each) for name, each in self.offered.items()},
            "waived": dict(self.waived),
        }


def grade(base: Run, candidate: Run, objectives: Objectives) -> Grade:
    """Grade `candidate` against `base`."""
    case = Case.of(base, candidate, objectives)
    gates = tuple(_waived(gate(case), objectives.waive) for gate in GATES)
    asked = [gate for gate in gates if not _is_waived(gate)]
    safety = next(gate for gate in gates if gate.name == "safety")
    verdict = GradeVerdict.FAIL if safety.verdict is GradeVerdict.FAIL else worst(gate.verdict for gate in asked)
    decided = safety if safety.verdict is GradeVerdict.FAIL else _deciding(asked, verdict)
    judged = {"base": (base, case.base), "candidate": (candidate, case.candidate)}
    return Grade(
        verdict,
        gates,
        decided.name,
        {name: _goodput(run, of_run) for name, (run, of_run) in judged.items()},
        {name: {"offered": run.offered, **tally(of_run).as_json()} for name, (run, of_run) in judged.items()},
        {name: why for name, why in objectives.waive.items() if any(g.name == name and _is_waived(g) for g in gates)},
    )


def _deciding(gates: list[Gate], verdict: GradeVerdict) -> Gate:
    """Return the first gate with the verdict of all; the last gate where all are passed."""
    if verdict is GradeVerdict.PASS:
        return gates[-1]
    return next(gate for gate in gates if gate.verdict is verdict)


def _waived(gate: Gate, waive: Mapping[str, str]) -> Gate:
    """Note why a gate without data is waived; one that has data is never."""
    if gate.name not in waive or gate.verdict is not GradeVerdict.NO_DATA:
        return gate
    return evolve(gate, why=f"waived: {waive[gate.name]}", figures={**gate.figures, "waived": waive[gate.name]})


def _is_waived(gate: Gate) -> bool:
    return "waived" in gate.figures


def _goodput(run: Run, judged: tuple[Judged, ...]) -> Mapping[str, object]:
    """Return good requests, their share of those that count, and how many came each second of the run."""
    counts = tally(judged)
    lasted = run.ended - min((record.arrival for record in run.records), default=run.ended)
    return {
        "good": counts.good,
        "counted": counts.counted,
        "share": counts.share,
        "per_second": counts.good * MICROSECONDS_PER_SECOND / lasted if lasted else None,
    }
