"""The gates of a grade, in the order in which they are asked (REL-1 to REL-4).

A gate looks at one thing and says PASS, FAIL, INCONCLUSIVE, NO_DATA or INVALID_RUN, with its figures. No data is never
good; only a reason in the objectives lets a gate go without.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from attrs import frozen

from kvescrow.reference.grading.compare import attained, compared, paired_of
from kvescrow.reference.grading.fairness import RESOURCE, watch_fairness
from kvescrow.reference.grading.objectives import Objectives
from kvescrow.reference.grading.outcomes import Fate, Judged, judge_run, quantile, tally
from kvescrow.reference.grading.records import Ending, Pairing, RequestRecord, Run
from kvescrow.reference.grading.statistics import Bounds, Floats, share_bounds
from kvescrow.spec.vocabulary import GradeVerdict

PASS, FAIL = GradeVerdict.PASS, GradeVerdict.FAIL
INCONCLUSIVE, NO_DATA, INVALID_RUN = GradeVerdict.INCONCLUSIVE, GradeVerdict.NO_DATA, GradeVerdict.INVALID_RUN
_WORST_FIRST = (INVALID_RUN, FAIL, NO_DATA, INCONCLUSIVE, PASS)

Figures = Mapping[str, object]


@frozen
class Gate:
    """What one gate says."""

    name: str
    verdict: GradeVerdict
    why: str
    """In one line, for people."""
    figures: Figures


@frozen
class Case:
    """Two runs and what they are graded by."""

    pairing: Pairing
    objectives: Objectives
    base: tuple[Judged, ...]
    candidate: tuple[Judged, ...]

    @classmethod
    def of(cls, base: Run, candidate: Run, objectives: Objectives) -> "Case":
        """Judge every request of both runs."""
        pairing = Pairing(base, candidate)
        return cls(pairing, objectives, judge_run(base, objectives), judge_run(candidate, objectives))


def worst(verdicts: Iterable[GradeVerdict]) -> GradeVerdict:
    """Return what several verdicts come to; nothing comes to NO_DATA."""
    found = set(verdicts)
    return next((verdict for verdict in _WORST_FIRST if verdict in found), NO_DATA)


# --- run validity ---------------------------------------------------------------------------------------------------


def run_gate(case: Case) -> Gate:
    """Did the generators keep their schedules, are the clocks sane, and do the counts add up?"""
    runs = {"base": case.pairing.base, "candidate": case.pairing.candidate}
    problems = [f"{name}: {problem}" for name, run in runs.items() for problem in _problems(run, case.objectives)]
    problems += _between(case)
    figures: dict[str, object] = {name: _schedule(run, case.objectives) for name, run in runs.items()}
    figures["pairs"] = len(case.pairing.pairs)
    figures["problems"] = problems
    if problems:
        return Gate("run", INVALID_RUN, problems[0], figures)
    empty = [name for name, run in runs.items() if not run.records]
    if empty:
        return Gate("run", NO_DATA, f"{' and '.join(empty)}: no request was recorded", figures)
    offered = ", ".join(f"{name} {len(run.records)}" for name, run in runs.items())
    return Gate("run", PASS, f"schedules, clocks and counts agree; offered: {offered}", figures)


def _problems(run: Run, objectives: Objectives) -> list[str]:
    limits, problems = objectives.run, []
    if run.offered != len(run.records):
        problems.append(f"{run.offered} requests were offered, but {len(run.records)} are recorded")
    disordered = [record for record in run.records if not _in_order(record, run.ended)]
    if disordered:
        problems.append(f"{len(disordered)} records have times out of order, such as {disordered[0].request}")
    late = _late(run, limits.late)
    if late > limits.late_share * len(run.records):
        problems.append(f"{late} of {len(run.records)} requests were sent more than {limits.late} us late")
    apart = _apart(run)
    if apart > limits.drift:
        problems.append(f"the server's clock moved {apart} us against the generator's, more than {limits.drift}")
    return problems


def _schedule(run: Run, objectives: Objectives) -> Figures:
    return {
        "offered": run.offered,
        "recorded": len(run.records),
        "endings": dict(sorted(Counter(record.ending.value for record in run.records).items())),
        "late": _late(run, objectives.run.late),
        "send_times": sum(record.sent is not None for record in run.records),
        "clock_readings": len(run.clock_readings),
        "clock_drift": _apart(run),
        "synthetic": run.synthetic,
    }


def _in_order(record: RequestRecord, ended: int) -> bool:
    times = [record.arrival, *(time for time, _ in record.frames)]
    if record.ended is not None:
        times.append(record.ended)
    inside = record.sent is None or record.sent >= record.arrival
    began = record.started is None or record.arrival <= record.started <= (record.ended or ended)
    return times == sorted(times) and inside and began and times[-1] <= ended


def _late(run: Run, slack: int) -> int:
    return sum(record.sent is not None and record.sent - record.arrival > slack for record in run.records)


def _apart(run: Run) -> int:
    offsets = [theirs - ours for ours, theirs in run.clock_readings]
    return max(offsets, default=0) - min(offsets, default=0)


def _between(case: Case) -> list[str]:
    """Return what says that the two runs are not of one workload on one clock."""
    base, candidate = case.pairing.base, case.pairing.candidate
    if not base.records or not candidate.records:
        return []
    problems = []
    if base.workload and candidate.workload and base.workload != candidate.workload:
        problems.append(f"the workloads differ: {base.workload} and {candidate.workload}")
    alone = len(base.by_request.keys() ^ candidate.by_request.keys())
    if alone:
        problems.append(f"{alone} requests are in one run only; grade two runs of one workload")
    offsets = [after.arrival - before.arrival for before, after in case.pairing.pairs]
    apart = max(offsets, default=0) - min(offsets, default=0)
    if apart > case.objectives.run.drift:
        problems.append(f"equal requests arrive up to {apart} us apart: the clocks run apart, or the schedules do")
    return problems


# --- safety, correctness, fairness ----------------------------------------------------------------------------------


def safety_gate(case: Case) -> Gate:
    """Was any invariant violated? One is enough, whatever the speed (REL-4)."""
    found = case.pairing.candidate.safety
    if found is None or found.checked == 0:
        return Gate("safety", NO_DATA, "nobody checked the candidate's invariants", {"checked": 0})
    figures = {"checked": found.checked, "source": found.source, "violations": list(found.violations)}
    if found.violations:
        return Gate("safety", FAIL, f"{len(found.violations)} violation(s): {found.violations[0]}", figures)
    return Gate("safety", PASS, f"{found.checked} events by {found.source}, no violation", figures)


def correctness_gate(case: Case) -> Gate:
    """Are the outputs right? Asked before speed: a wrong answer that is fast is wrong."""
    limits = case.objectives.correctness
    completed = [record for record in _in_window(case) if record.ending is Ending.COMPLETED]
    verdicts = [_is_right(record, case) for record in completed]
    seen = [verdict for verdict in verdicts if verdict is not None]
    wrong = seen.count(False)
    figures = {"completed": len(completed), "looked_at": len(seen), "wrong": wrong, "allowed": limits.wrong}
    if not completed or not seen:
        return Gate("correctness", NO_DATA, "no output was looked at", figures)
    rates = case.objectives.confidence.rates
    bounds = share_bounds(len(seen) - wrong, len(seen), rates)
    if wrong and (limits.wrong == 0 or bounds.high < 1 - limits.wrong):
        return Gate("correctness", FAIL, f"{wrong} of {len(seen)} outputs are wrong", figures)
    if len(seen) < limits.looked_at * len(completed):
        why = f"{len(seen)} of {len(completed)} outputs were looked at, {limits.looked_at:.0%} are wanted"
        return Gate("correctness", NO_DATA, why, figures)
    if limits.wrong and bounds.low < 1 - limits.wrong:
        return Gate("correctness", INCONCLUSIVE, f"{wrong} of {len(seen)} wrong: too few to tell", figures)
    return Gate("correctness", PASS, f"{len(seen)} outputs looked at, {wrong} wrong", figures)


def _in_window(case: Case) -> list[RequestRecord]:
    return [each.record for each in case.candidate if each.fate is not Fate.LEFT_OUT]


def _is_right(record: RequestRecord, case: Case) -> bool | None:
    if record.correct is not None or not case.objectives.correctness.same_output:
        return record.correct
    before = case.pairing.base.by_request.get((record.tenant, record.request))
    if before is None or not before.output or not record.output:
        return None
    return before.output == record.output


def fairness_gate(case: Case) -> Gate:
    """Did tenants of a class that waited together get their shares, within the bound?"""
    found = watch_fairness(_in_window(case), case.objectives.fairness.weights)
    broken = [str(gap) for gap in found.broken]
    figures: dict[str, object] = {"resource": RESOURCE, "dispatched": found.dispatched, "broken": broken}
    if found.dispatched == 0:
        return Gate("fairness", NO_DATA, "no record tells when a request was dispatched, and for how much", figures)
    if found.worst is None:
        return Gate("fairness", PASS, "no tenant was served while it and another of its class waited", figures)
    gap, bound = float(found.worst.gap), float(found.worst.bound)
    figures |= {"gap": gap, "bound": bound, "pair": ["/".join(party) for party in found.worst.pair]}
    if broken:
        return Gate("fairness", FAIL, str(found.worst), figures)
    return Gate("fairness", PASS, f"widest gap {gap:g} of at most {bound:g} normalised tokens", figures)


# --- attainment and non-inferiority ---------------------------------------------------------------------------------


def attainment_gate(case: Case) -> Gate:
    """Is the share of offered requests that met everything at least the target, in each class?

    A tenant can fail the gate, so that no average hides it; it need not prove its own share.
    """
    by_class: dict[str, list[Judged]] = defaultdict(list)
    for each in case.candidate:
        by_class[each.record.class_name].append(each)
    names = sorted({*by_class, *case.objectives.classes})
    tenants = {(each.record.class_name, each.record.tenant) for each in case.candidate}
    classes = {name: _class_attainment(name, by_class[name], case, len(names) + len(tenants)) for name in names}
    verdict = worst(found.verdict for found in classes.values())
    decisive = next((found for found in classes.values() if found.verdict is verdict), None)
    why = decisive.why if decisive else "there is no class"
    return Gate("attainment", verdict, why, {name: found.figures for name, found in classes.items()})


def _class_attainment(name: str, judged: Sequence[Judged], case: Case, comparisons: int) -> Gate:
    objectives = case.objectives.classes.get(name)
    counts = tally(judged)
    figures: dict[str, object] = counts.as_json()
    if objectives is None:
        return Gate(name, NO_DATA, f"class {name} has no objective in the file", figures)
    if objectives.no_objective is not None:
        figures["no_objective_since"] = objectives.no_objective
        return Gate(name, PASS, f"class {name} is not graded: {objectives.no_objective}", figures)
    if counts.counted < objectives.least:
        why = f"class {name}: {counts.counted} requests count, at least {objectives.least} are wanted"
        return Gate(name, NO_DATA, why, figures)
    rates = case.objectives.confidence.rates.shared(comparisons)
    block = case.objectives.confidence.block
    verdict, bounds = attained(_goods(judged), objectives.attainment, block, rates)
    figures |= {"target": objectives.attainment, "low": bounds.low, "high": bounds.high, **_percentiles(judged)}
    figures["tenants"] = tenants = {}
    why = f"class {name}: {_shares(counts.good, counts.counted, bounds, objectives.attainment)}"
    for tenant in sorted({each.record.tenant for each in judged}):
        own = [each for each in judged if each.record.tenant == tenant]
        told = tally(own)
        tenants[tenant] = told.as_json()
        if not told.counted:
            continue
        alone, of_tenant = attained(_goods(own), objectives.attainment, block, rates)
        tenants[tenant] |= {"low": of_tenant.low, "high": of_tenant.high, "verdict": alone.value}
        if alone is FAIL and verdict is not FAIL:
            shares = _shares(told.good, told.counted, of_tenant, objectives.attainment)
            verdict, why = FAIL, f"class {name}, tenant {tenant}: {shares}"
    return Gate(name, verdict, why, {**figures, "verdict": verdict.value})


def _goods(judged: Iterable[Judged]) -> Floats:
    return np.array([each.fate is Fate.GOOD for each in judged if each.fate in (Fate.GOOD, Fate.MISS)], np.float64)


def _shares(good: int, count: int, bounds: Bounds, target: float) -> str:
    return f"{good} of {count} met all, {bounds.low:.2%} to {bounds.high:.2%} for {target:.2%}"


def _percentiles(judged: Sequence[Judged]) -> Figures:
    """Return quantiles over the offered requests, misses without a sample beyond all; samples are merged first."""
    counted = [each.record for each in judged if each.fate in (Fate.GOOD, Fate.MISS)]
    reads: Mapping[str, Callable[[RequestRecord], int | None]] = {
        "first_token": lambda record: record.first_token,
        "token_gap": lambda record: max(record.gaps, default=0 if record.token_times else None),
        "completion": lambda record: record.completion,
    }
    found: dict[str, object] = {}
    for name, read in reads.items():
        values = [read(record) for record in counted]
        samples = [value for value in values if value is not None]
        shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
        found[name] = {key: quantile(samples, len(values) - len(samples), share) for key, share in shares.items()}
    return found


def non_inferiority_gate(case: Case) -> Gate:
    """Is the candidate no worse than the base by more than the margins, request by request?"""
    margins = case.objectives.non_inferiority.given
    if not margins:
        return Gate("non_inferiority", NO_DATA, "the objectives have no margin", {})
    candidate = {(each.record.tenant, each.record.request): each for each in case.candidate}
    pairs = [
        (each, candidate[key]) for each in case.base if (key := (each.record.tenant, each.record.request)) in candidate
    ]
    confidence = case.objectives.confidence
    found = compared(paired_of(pairs), margins, confidence.block, confidence.rates)
    verdict = worst(each.verdict for each in found.values())
    figures = {
        name: {
            "verdict": each.verdict.value,
            "pairs": each.pairs,
            "margin": each.margin,
            "gain": each.bounds.estimate if each.bounds else None,
            "low": each.bounds.low if each.bounds else None,
            "high": each.bounds.high if each.bounds else None,
            "better": each.better,
        }
        for name, each in found.items()
    }
    decisive = next(name for name, each in found.items() if each.verdict is verdict)
    return Gate("non_inferiority", verdict, _told(decisive, figures[decisive]), figures)


def _told(name: str, figures: Figures) -> str:
    if figures["gain"] is None:
        return f"{name}: {figures['pairs']} pairs are too few"
    figure = f"{name}: gain {figures['gain']:+.3f}, {figures['low']:+.3f} to {figures['high']:+.3f}"
    return f"{figure}, margin {figures['margin']}{', better' if figures['better'] else ''}"
