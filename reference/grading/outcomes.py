"""What one request counts as: good, a miss with its cause, or in no share at all (REL-1, REL-2).

A request is good where it completed, its output is not known to be wrong, and every objective of its class is met, from
its intended arrival on. A stream without a token is a miss, and so is an answer of a request that the queue had timed
out. Membership in the measured window is by intended arrival.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum

from attrs import frozen

from kvescrow.reference.grading.objectives import ClassObjectives, Objectives
from kvescrow.reference.grading.records import Ending, RequestRecord, Run


class Fate(Enum):
    """What a request counts as."""

    GOOD = "good"
    """It met every objective."""
    MISS = "miss"
    """It did not, whatever the cause."""
    CANCELLED = "cancelled"
    """Its user ended it: a class of its own."""
    OWN_REFUSAL = "own_refusal"
    """Refused for a reason that the objectives call the caller's own."""
    UNDECIDED = "undecided"
    """Under way, and younger than its objectives, when recording ended."""
    LEFT_OUT = "left_out"
    """Withdrawn by the generator, or from before the window."""
    NO_OBJECTIVE = "no_objective"
    """Its class has none: neither good nor bad."""


@frozen
class Judged:
    """One request and what it counts as."""

    record: RequestRecord
    fate: Fate
    cause: str = ""
    """Of a miss: the first objective that was missed, or why it ended."""


def judge_run(run: Run, objectives: Objectives) -> tuple[Judged, ...]:
    """Judge every request of `run`, in the order of intended arrivals."""
    ordered = sorted(run.records, key=lambda record: (record.arrival, record.tenant, record.request))
    return tuple(judge(record, objectives, run.ended) for record in ordered)


def judge(record: RequestRecord, objectives: Objectives, cut: int) -> Judged:
    """Judge one request of a run whose recording ended at `cut`."""
    if record.arrival < objectives.run.warm_up or record.ending is Ending.WITHDRAWN:
        return Judged(record, Fate.LEFT_OUT)
    known = objectives.classes.get(record.class_name)
    if known is None or known.no_objective is not None:
        return Judged(record, Fate.NO_OBJECTIVE)
    if record.ending is Ending.CANCELLED:
        return Judged(record, Fate.CANCELLED, record.reason)
    if record.ending is Ending.REFUSED and record.reason in known.own_refusals:
        return Judged(record, Fate.OWN_REFUSAL, record.reason)
    cause = _cause(record, known, cut)
    if cause is None:
        return Judged(record, Fate.GOOD)
    return Judged(record, Fate.UNDECIDED) if not cause else Judged(record, Fate.MISS, cause)


def _cause(record: RequestRecord, objectives: ClassObjectives, cut: int) -> str | None:
    """Return why a request is a miss; None where it is none, and nothing where that is not decided."""
    if record.ending in (Ending.REFUSED, Ending.EXPIRED, Ending.FAILED):
        return f"{record.ending.value}: {record.reason}" if record.reason else record.ending.value
    first = record.first_token
    if record.ending is Ending.COMPLETED:
        if first is None:
            return "no token"
        if record.correct is False:
            return "wrong output"
    return _late(record, objectives, cut)


def _late(record: RequestRecord, objectives: ClassObjectives, cut: int) -> str | None:
    """Return the first objective that is missed; for a request under way, what its age so far has decided."""
    done = record.ending is Ending.COMPLETED
    first, age = record.first_token, cut - record.arrival
    times = record.token_times
    if objectives.first_token is not None and (age if first is None else first) > objectives.first_token:
        return "first token"
    gaps = record.gaps if done or not times else (*record.gaps, cut - times[-1])
    if objectives.token_gap is not None and max(gaps, default=0) > objectives.token_gap:
        return "token gap"
    per_token = record.time_per_token
    if done and objectives.time_per_token is not None and (per_token or 0) > objectives.time_per_token:
        return "time per token"
    lasted = record.completion if done else age
    if objectives.completion is not None and (lasted or 0) > objectives.completion:
        return "completion"
    return None if done else ""


@frozen
class Tally:
    """Requests by what they count as."""

    good: int
    missed: int
    causes: Mapping[str, int]
    """Of the misses."""
    cancelled: int
    own_refusals: int
    undecided: int
    left_out: int
    no_objective: int

    @property
    def counted(self) -> int:
        """Good and missed: what shares are taken of."""
        return self.good + self.missed

    @property
    def share(self) -> float | None:
        """Good, of those counted; None where there is none, which is not good."""
        return self.good / self.counted if self.counted else None

    def as_json(self) -> dict[str, object]:
        """Return the counts by name."""
        return {
            "good": self.good,
            "missed": self.missed,
            "share": self.share,
            "causes": dict(self.causes),
            "cancelled": self.cancelled,
            "own_refusals": self.own_refusals,
            "undecided": self.undecided,
            "left_out": self.left_out,
            "no_objective": self.no_objective,
        }


def tally(judged: Iterable[Judged]) -> Tally:
    """Count what requests count as."""
    listed = list(judged)
    fates = Counter(each.fate for each in listed)
    causes = Counter(each.cause for each in listed if each.fate is Fate.MISS)
    return Tally(
        good=fates[Fate.GOOD],
        missed=fates[Fate.MISS],
        causes=dict(sorted(causes.items(), key=lambda item: (-item[1], item[0]))),
        cancelled=fates[Fate.CANCELLED],
        own_refusals=fates[Fate.OWN_REFUSAL],
        undecided=fates[Fate.UNDECIDED],
        left_out=fates[Fate.LEFT_OUT],
        no_objective=fates[Fate.NO_OBJECTIVE],
    )


def quantile(samples: Sequence[int], misses: int, share: float) -> int | None:
    """Return the quantile of merged samples by nearest rank, with each miss beyond every sample.

    `share` is in (0, 1]; None where the quantile is not met, or where there is nothing.
    """
    count = len(samples) + misses
    rank = -int(-share * count // 1)
    return sorted(samples)[rank - 1] if 0 < rank <= len(samples) else None
