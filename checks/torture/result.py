"""The result of a campaign, and how it is judged."""

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import field, frozen

from kvescrow.checks.concurrency import Fault, Finding, HistoryVerdict, check_history
from kvescrow.checks.monitor import Monitor
from kvescrow.checks.torture.clock import LONGEST_STEP
from kvescrow.checks.torture.faults import FaultKind
from kvescrow.checks.torture.log import Logged
from kvescrow.checks.torture.physical import overcommitment
from kvescrow.checks.torture.site import Evidence, Site
from kvescrow.checks.torture.workload import Move
from kvescrow.spec.vocabulary import CHARGED_STATES, ReservationState, UserError

LOSSES = (Fault.LOST,)
DOUBLES = (Fault.DOUBLED, Fault.UNASKED, Fault.NOT_APPLIED_BUT_THERE)


@frozen
class TortureResult:
    """What a campaign comes to."""

    store: str
    seed: int
    minutes: float
    gateways: int
    pace: int
    """Seconds that a second of the campaign's clock took: more than one on a busy machine."""
    faults: Mapping[str, int]
    """How often each kind of fault happened, of those that the store can suffer."""
    moves: Mapping[str, int]
    """How often clients made each move out of the plain course."""
    not_applicable: Sequence[str]
    """Kinds that this store cannot suffer."""
    calls: int
    acknowledged: int
    """Changes whose answer reached its caller."""
    unanswered: int
    """Calls of which the caller never learnt what became."""
    not_kept: int
    """Calls of which the store said that it could not keep them."""
    decisions: Mapping[str, int]
    """Answers by decision, and by reason where they are refusals."""
    lost: int
    doubled: int
    violations: int
    """Everything else that is wrong."""
    findings: Sequence[str]
    causes: Sequence[str]
    """The names of the faults found, the first one first."""
    verdict: str
    """`passed`, `failed`, or `incomplete` where nothing is wrong but some kind of fault or move never happened."""
    repeat: str = field(default="")

    def as_json(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return {
            "store": self.store,
            "seed": self.seed,
            "minutes": self.minutes,
            "gateways": self.gateways,
            "pace": self.pace,
            "faults": dict(self.faults),
            "moves": dict(self.moves),
            "not_applicable": list(self.not_applicable),
            "calls": self.calls,
            "acknowledged": self.acknowledged,
            "unanswered": self.unanswered,
            "not_kept": self.not_kept,
            "decisions": dict(self.decisions),
            "lost": self.lost,
            "doubled": self.doubled,
            "violations": self.violations,
            "findings": list(self.findings),
            "causes": list(self.causes),
            "verdict": self.verdict,
            "repeat": self.repeat,
        }


@frozen
class Observed:
    """What a campaign saw with its own eyes."""

    faults: Mapping[FaultKind, int]
    deaths: Mapping[str, int]
    """When each killed process was known to be dead."""
    troubles: Sequence[str]
    """What went wrong with the processes themselves."""


def findings_of(
    site: Site, logged: Logged, observed: Observed, evidence: Evidence | None
) -> tuple[HistoryVerdict | None, list[str]]:
    """Return the verdict over the history, and what else is wrong, each with its name in front."""
    others = [f"trouble: {trouble}" for trouble in observed.troubles]
    if evidence is None:
        return None, others
    slack = LONGEST_STEP if site.forgets_the_clock else 0
    history = check_history(logged.calls, site.terms, journal=evidence.changes, final=evidence.final, slack=slack)
    over = overcommitment(logged.works, observed.deaths, site.terms.pool_limit)
    if over is not None:
        others.append(f"overcommitted: {over}")
    live = [
        f"{key.tenant}/{key.request} {record.state.value}"
        for key, record in evidence.final.reservations.items()
        if record.state in CHARGED_STATES or record.state is ReservationState.QUEUED
    ]
    if live or evidence.final.pool_active:
        others.append(f"not_drained: {evidence.final.pool_active} active at the end, live: {', '.join(live) or 'none'}")
    others += _by_the_monitor(evidence)
    return history, others


def _by_the_monitor(evidence: Evidence) -> list[str]:
    if not evidence.lines:
        return ["empty: the journal has no change"]
    monitor = Monitor(evidence.config, most_findings=3)
    try:
        for line in evidence.lines:
            monitor.feed(line)
    except UserError as error:
        return [f"journal: {error}"]
    return [f"journal: {finding}" for finding in monitor.finish().findings]


def judge(
    store: str,
    seed: int,
    minutes: float,
    gateways: int,
    site: Site,
    logged: Logged,
    observed: Observed,
    evidence: Evidence | None,
) -> TortureResult:
    """Return the result of a campaign; without `evidence` the store could not be opened at the end."""
    history, others = findings_of(site, logged, observed, evidence)
    counts = history.counts if history is not None else {}
    found = history.findings if history is not None else ()
    moves = {move.value: logged.moves.get(move.value, 0) for move in Move}
    missing = [kind.value for kind, times in observed.faults.items() if times == 0]
    missing += [move for move, times in moves.items() if times == 0]
    lost = sum(counts.get(fault, 0) for fault in LOSSES)
    doubled = sum(counts.get(fault, 0) for fault in DOUBLES)
    violations = sum(counts.values()) - lost - doubled + len(others)
    findings = [*(str(finding) for finding in found), *others]
    never = [f"never happened: {name}" for name in missing]
    return TortureResult(
        store=store,
        seed=seed,
        minutes=minutes,
        gateways=gateways,
        pace=site.clock.pace,
        faults={kind.value: times for kind, times in observed.faults.items()},
        moves=moves,
        not_applicable=[kind.value for kind in FaultKind if kind not in observed.faults],
        calls=len(logged.calls),
        acknowledged=sum(call.answer is not None and call.answer.changes for call in logged.calls),
        unanswered=sum(call.answer is None and not call.failed for call in logged.calls),
        not_kept=sum(call.failed for call in logged.calls),
        decisions=_decisions(logged),
        lost=lost,
        doubled=doubled,
        violations=violations,
        findings=[*findings, *never],
        causes=_causes(found, others),
        verdict="failed" if findings else "incomplete" if missing else "passed",
        repeat=f"kvescrow torture --store {store} --minutes {minutes:g} --seed {seed} --gateways {gateways}",
    )


def _decisions(logged: Logged) -> dict[str, int]:
    found: dict[str, int] = {}
    for call in logged.calls:
        if call.answer is not None:
            refused = not call.answer.changes and call.answer.reason.value != "NONE"
            name = call.answer.reason.value if refused else call.answer.decision.value
            found[name] = found.get(name, 0) + 1
    return dict(sorted(found.items()))


def _causes(findings: Sequence[Finding], others: Sequence[str]) -> list[str]:
    named = [finding.fault.value for finding in findings] + [other.partition(":")[0] for other in others]
    return list(dict.fromkeys(named))
