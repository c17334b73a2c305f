"""Runs made of a few numbers, for the tests of grading."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from attrs import evolve

from kvescrow.reference.grading.objectives import ClassObjectives, Confidence, Margins, Objectives
from kvescrow.reference.grading.records import Ending, Evidence, RequestRecord, Run

SECOND = 1_000_000
GOOD = ClassObjectives(attainment=0.95, first_token=500_000, token_gap=200_000, completion=5 * SECOND)
OBJECTIVES = Objectives(
    classes={"chat": GOOD}, non_inferiority=Margins(good=0.02, first_token=0.05, token_gap=0.02, completion=0.05)
)
SAFE = Evidence(1, (), "a monitor")


def record(
    request: str = "1", arrival: int = 0, tokens: Sequence[int] = (100_000, 110_000), **changes: Any
) -> RequestRecord:
    """A completed request whose tokens came at `tokens` after its arrival."""
    frames = tuple((arrival + time, 1) for time in tokens)
    made = RequestRecord(
        request,
        "t",
        "chat",
        arrival,
        Ending.COMPLETED,
        sent=arrival,
        frames=frames,
        ended=frames[-1][0] if frames else arrival,
        correct=True,
        started=arrival,
        amount=10,
    )
    return evolve(made, **changes)


def ended_as(ending: Ending, reason: str = "", request: str = "1", arrival: int = 0, **changes: Any) -> RequestRecord:
    """A request that ended so at once, without a token."""
    values = {"ending": ending, "reason": reason, "correct": None, "started": None, "amount": None, **changes}
    return record(request, arrival, (), **values)


def run(*records: RequestRecord, **changes: Any) -> Run:
    """A safe run of these requests."""
    last = max((max(r.ended or 0, r.arrival, *(time for time, _ in r.frames), 0) for r in records), default=0)
    return evolve(Run("run", records, last, len(records), safety=SAFE), **changes)


def drawn(seed: int, count: int = 600, *, gaps: float = 1.0, first: float = 1.0, failed: float = 0.0) -> Run:
    """A run of one fixed workload: 20 tokens a request, times spread by a tenth, gaps and first token scaled."""
    draw = np.random.default_rng(seed)
    firsts = (np.exp(draw.normal(11.5, 0.1, count)) * first).astype(int)
    between = (np.exp(draw.normal(9.5, 0.1, (count, 19))) * gaps).astype(int)
    fails = draw.random(count) < failed
    records = []
    for n in range(count):
        arrival = n * 50_000
        if fails[n]:
            records.append(ended_as(Ending.FAILED, "503", str(n), arrival))
            continue
        times = np.concatenate(([0], np.cumsum(between[n]))) + firsts[n]
        records.append(record(str(n), arrival, [int(time) for time in times]))
    return run(*records, workload="fixed")


def at(confidence: Confidence) -> Objectives:
    """The usual objectives at another confidence."""
    return evolve(OBJECTIVES, confidence=confidence)
