"""What a run reports."""

from enum import Enum

from attrs import asdict, frozen

from kvescrow.gpu_harness.conform.settings import FAST, SEEDED, Settings
from kvescrow.gpu_harness.conform.tally import Tally
from kvescrow.gpu_harness.conform.workload import SCALE
from kvescrow.gpu_harness.evidence import Evidence, EvidenceKind


class Verdict(Enum):
    """Whether the memory obeyed."""

    PASSED = "passed"
    """Nothing is wrong, and everything that the run is for has happened in it."""
    REFUTED = "refuted"
    """Evidence was found, or a journal or account that the tables do not allow."""
    VACUOUS = "vacuous"
    """Nothing is wrong, but something that the run is for did not happen in it."""


@frozen
class ConformResult:
    """One run."""

    settings: Settings
    trace: str
    attribution: str
    torch: str
    """Version."""
    hardware: str
    exact: bool
    """Whether logits were compared bit for bit."""
    reason: str
    """Why not; empty where they were."""
    recipe: str
    requests: int
    """Offered, twins included."""
    tokens: int
    """Given to clients."""
    tally: Tally
    evidence: Evidence
    journal_events: int
    rows: int
    """Rows of the tables that fired."""
    violations: tuple[str, ...]
    """What the tables do not allow: in the journal, or in the accounts when all work is over."""
    texts: tuple[tuple[str, str], ...]
    """Of some completed requests, the end of the prompt and the output, where tokens are text."""
    seconds: float

    @property
    def not_exercised(self) -> tuple[str, ...]:
        """What should have happened and did not."""
        tally = self.tally
        wanted = {
            "no token was given": self.tokens,
            "no request was completed": tally.completed,
            "no prefix was reused": tally.hits,
            "no cancel came while a step was in flight": tally.cancelled_in_flight,
            "no cancel came while a request was in the queue": tally.cancelled_queued,
            "no prompt was cached for another tenant and missed": tally.cross_scope_twins,
            "no page was reclaimed": tally.scrubbed_pages,
        }
        if self.settings.growth:
            wanted["no output grew beyond what was reserved at first"] = tally.grown
        if self.settings.epoch_after is not None:
            wanted["the weights did not change"] = tally.epochs
        if self.settings.kills:
            wanted["no worker was killed with a step in flight"] = tally.lost_in_flight
            wanted["no execution of a dead worker was suspect before its fence"] = tally.suspected
        if self.settings.kills and self.settings.own_process:
            wanted["no process was killed"] = tally.processes_killed
        return tuple(what for what, number in wanted.items() if not number)

    @property
    def verdict(self) -> Verdict:
        """The verdict. A run that exercised nothing cannot pass, and one that found something is refuted anyway."""
        if not self.evidence.clean or self.violations:
            return Verdict.REFUTED
        return Verdict.VACUOUS if self.not_exercised else Verdict.PASSED

    def as_json(self) -> dict[str, object]:
        """Return the result as JSON values."""
        tally = asdict(self.tally)
        return {
            "verdict": self.verdict.value,
            "device": self.settings.device,
            "hardware": self.hardware,
            "torch": self.torch,
            "weights": self.settings.weights,
            "shape": self._model,
            "dtype": self.settings.dtype,
            "seed": self.settings.seed,
            "trace": self.trace,
            "attribution": self.attribution,
            "mode": self.settings.mode,
            "exact": self.exact,
            "reason": self.reason,
            "recipe": self.recipe,
            "requests": self.requests,
            "steps": tally.pop("steps"),
            "tokens": self.tokens,
            **tally,
            "cancel_rate": self.settings.cancel_rate,
            "length_divisor": SCALE,
            "own_process": self.settings.own_process,
            "fixed_order": self.settings.fixed_order,
            "evidence": {kind.value: self.evidence.count(kind) for kind in EvidenceKind},
            "texts": [{"prompt_ends": prompt, "output": output} for prompt, output in self.texts],
            "findings": [str(finding) for finding in self.evidence.findings],
            "violations": list(self.violations),
            "not_exercised": list(self.not_exercised),
            "journal_events": self.journal_events,
            "rows": self.rows,
            "seconds": round(self.seconds, 2),
        }

    @property
    def _model(self) -> str:
        return self.settings.shape if self.settings.weights == SEEDED else self.settings.weights

    @property
    def summary(self) -> str:
        """A few lines for people."""
        t = self.tally
        inexact = "nothing compared" if self.settings.mode == FAST else "tokens only"
        comparison = "logits and pages bit for bit" if self.exact else f"{inexact}, since {self.reason}"
        lines = [
            f"{self.requests} requests of {self.trace}, {t.steps} steps, {self.tokens} tokens on {self.hardware} "
            f"({self._model}, {self.settings.dtype}, torch {self.torch}); {comparison}",
            f"{t.completed} completed; cancelled: {t.cancelled_in_flight} with a step in flight, "
            f"{t.cancelled_queued} in the queue; {t.hits} hits ({t.cached_tokens} tokens), {t.cross_scope} lookups "
            f"that another tenant's pages would have answered; {t.scrubbed_pages} pages reclaimed",
            f"{t.grown} growths granted, {t.growth_denied} denied at first; {t.epochs} change(s) of weights; "
            f"{t.workers_killed} worker(s) killed with {t.lost_in_flight} request(s) in flight, "
            f"{t.processes_killed} of them by SIGKILL of a process",
            *(f"...{prompt!r} -> {output!r}" for prompt, output in self.texts[:2]),
            f"{self.journal_events} decisions agree with the tables" if not self.violations else "",
            *(f"evidence: {finding}" for finding in self.evidence.findings),
            *(f"violation: {violation}" for violation in self.violations),
            *(f"not exercised: {what}" for what in self.not_exercised),
            f"conform: {self.verdict.value} in {self.seconds:.1f} s",
        ]
        return "\n".join(line for line in lines if line)
