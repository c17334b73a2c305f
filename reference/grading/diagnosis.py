"""Why a run lost time: hypotheses ranked by what they account for, with the evidence for and against each (DIA-1).

Time that is lost in one place is mostly spent in another: behind a slow device everything queues. So a hypothesis
accounts for the parts that its mechanism causes directly, and each is believed as far as other facts agree with it.
Waits for the pool are laid on the pool only if it became smaller, waits for the batch only if fewer ran at once, and a
device is called slower only if its probe says so, or if everything that it computes became slower alike.
"""

from collections.abc import Callable, Iterable, Iterator
from enum import Enum

from attrs import frozen

from kvescrow.reference.grading.facts import Facts, facts_of
from kvescrow.reference.grading.losses import DECODE, DEVICE, MORE_TOKENS, PREFILL, UNEXPLAINED, Losses, split
from kvescrow.reference.grading.records import Pairing, Run

DOUBTED = 0.05
"""What a symptom counts of which another fact says that the cause is not there."""
UNSURE = 0.5
"""What it counts where the fact that would decide was not measured."""
NOTICEABLE = 0.01
"""Share of the base's time below which nothing is said to be lost."""
APART = 0.15
"""How far the scores of the leading two must be apart to call the first the cause."""
GROWN = 1.1
"""What is a tenth more is more than runs differ by themselves."""


class Cause(Enum):
    """What may have happened."""

    DEVICE_SLOWER = "device_slower"
    """The device computes everything more slowly."""
    SCOPE_LOST = "prefix_scope_lost"
    """The prefixes of one scope are not found any more, such as after a change of salt, weights or adapter."""
    CACHE_TOO_SMALL = "cache_too_small"
    """Prefixes of all scopes are found less often: they are evicted before they are asked for again."""
    RECLAIM_LAG = "reclaim_lag"
    """Pages of ended requests become free later."""
    TENANT_LIMIT = "tenant_limit_lower"
    """A tenant may hold less."""
    POOL_SMALLER = "pool_smaller"
    """There is less room."""
    BATCH_SMALLER = "batch_smaller"
    """Fewer requests may run at once."""
    CHUNK_LARGER = "chunk_larger"
    """Prompts are computed in larger chunks, so that decodes wait longer between two tokens."""
    CHUNK_SMALLER = "chunk_smaller"
    """Prompts are computed in smaller chunks, so that they take more steps."""
    GROWTH_DENIED = "growth_denied"
    """Reservations start too small, and what they need later is not there."""
    PREEMPTIONS = "preemptions"
    """Running requests are set aside."""
    HOST_SLOWER = "host_slower"
    """The host launches steps more slowly."""
    CLIENTS_SLOWER = "clients_slower"
    """Clients do not take their tokens in time."""
    OUTPUTS_LONGER = "outputs_longer"
    """More output tokens are generated for the same requests."""
    REFUSALS = "more_refused"
    """Requests are refused, time out or fail that were served before."""


MEASUREMENTS = {
    Cause.DEVICE_SLOWER: "time one fixed step on the idle device in both: it is slower only if the device is",
    Cause.SCOPE_LOST: "send one prompt twice in each scope, and count cached tokens: none where it is lost",
    Cause.CACHE_TOO_SMALL: "count hits by scope while nothing else runs: they return if room was the cause",
    Cause.RECLAIM_LAG: "cancel one running request, and time until its pages are free",
    Cause.TENANT_LIMIT: "send one tenant's requests alone, and count how many run at once",
    Cause.POOL_SMALLER: "read the usable pool of both, sink and head-room excluded",
    Cause.BATCH_SMALLER: "send many short requests at once, and count how many run at once",
    Cause.CHUNK_LARGER: "send one long prompt beside one decode, and look at the decode's widest gap",
    Cause.CHUNK_SMALLER: "send one long prompt alone, and count its steps",
    Cause.GROWTH_DENIED: "reserve the worst case in both: denials vanish if estimates were the cause",
    Cause.PREEMPTIONS: "count preemptions by reason, and run with half the load: they vanish if memory was the cause",
    Cause.HOST_SLOWER: "time the host between two launches while the device is idle",
    Cause.CLIENTS_SLOWER: "let one client on the server's own machine take the tokens",
    Cause.OUTPUTS_LONGER: "fix the output length of every request in both",
    Cause.REFUSALS: "submit the refused requests again, alone: what never fits is refused again",
}
"""For each cause the one measurement that shows it apart from others."""


@frozen
class Hypothesis:
    """One cause that may account for what was lost."""

    cause: Cause
    symptom: int
    """Microseconds that its mechanism would account for directly."""
    belief: float
    """How far other facts agree, from 0 to 1."""
    for_: tuple[str, ...]
    against: tuple[str, ...]

    @property
    def weight(self) -> float:
        """What ranks it."""
        return self.symptom * self.belief


@frozen
class Diagnosis:
    """What is said of two runs."""

    losses: Losses
    hypotheses: tuple[Hypothesis, ...]
    """The likeliest first."""
    insufficient: str
    """Why the first is not called the cause; empty where it is."""
    separating: str
    """The one measurement that would tell the leading two apart; empty where there are no two."""

    def score(self, hypothesis: Hypothesis) -> float:
        """Return its share of all that hypotheses account for."""
        total = sum(each.weight for each in self.hypotheses)
        return hypothesis.weight / total if total else 0.0

    def as_json(self) -> dict[str, object]:
        """Return the diagnosis as JSON values; seconds are for reading, microseconds add up."""
        losses = self.losses
        return {
            "verdict": "insufficient" if self.insufficient else "diagnosed",
            "why": self.insufficient,
            "lost_seconds": losses.lost / 1e6,
            "parts": {part: amount / 1e6 for part, amount in losses.parts.items()},
            "lost_microseconds": losses.lost,
            "parts_microseconds": dict(losses.parts),
            "pairs": losses.pairs,
            "left_out": losses.left_out,
            "penalty_seconds": losses.penalty / 1e6,
            "hypotheses": [
                {
                    "cause": each.cause.value,
                    "score": round(self.score(each), 4),
                    "for": list(each.for_),
                    "against": list(each.against),
                }
                for each in self.hypotheses
            ],
            "separating_measurement": self.separating,
        }


def diagnose(base: Run, candidate: Run) -> Diagnosis:
    """Split the time between two runs of one workload, and rank what may have caused it."""
    pairing = Pairing(base, candidate)
    losses = split(pairing)
    facts = facts_of(pairing, losses)
    found = [each for rule in RULES for each in rule(facts) if each.symptom > 0]
    ranked = tuple(sorted(found, key=lambda each: (-each.weight, each.cause.value)))
    return Diagnosis(losses, ranked, _insufficient(losses, ranked), _separating(ranked))


def _insufficient(losses: Losses, ranked: tuple[Hypothesis, ...]) -> str:
    if losses.pairs == 0:
        return "no request counts in both runs; record two runs of one workload"
    if not ranked or ranked[0].weight < NOTICEABLE * losses.base:
        if losses.parts.get(UNEXPLAINED, 0) >= NOTICEABLE * losses.base:
            return "the records do not tell how time was spent; write spans with them"
        return "what was lost is not more than two equal runs may differ by"
    total = sum(each.weight for each in ranked)
    if len(ranked) > 1 and (ranked[0].weight - ranked[1].weight) / total < APART:
        return f"{ranked[0].cause.value} and {ranked[1].cause.value} account for it about equally well"
    if ranked[0].belief <= UNSURE:
        return f"what would decide on {ranked[0].cause.value} was not measured"
    return ""


def _separating(ranked: tuple[Hypothesis, ...]) -> str:
    if len(ranked) < 2:
        return ""
    # Measuring what is believed least tells most.
    first, second = ranked[:2]
    asked = first if first.belief <= second.belief else second
    return f"{first.cause.value} or {second.cause.value}: {MEASUREMENTS[asked.cause]}"


# --- rules ----------------------------------------------------------------------------------------------------------

Rule = Callable[[Facts], Iterable[Hypothesis]]


def _part(facts: Facts, cause: Cause, told: str, *parts: str, minus: int = 0) -> Iterator[Hypothesis]:
    """Yield a cause of which its own part of the split is evidence enough."""
    lost = facts.lost(*parts) - minus
    if lost > 0:
        yield Hypothesis(cause, lost, 1.0, (f"{_seconds(lost)} more {told}",), ())


def _seconds(microseconds: float) -> str:
    return f"{microseconds / 1e6:.2f} s"


def _device(facts: Facts) -> Iterator[Hypothesis]:
    if facts.slower is not None:
        lost = facts.lost(DEVICE)
        told = f"the probe takes {facts.slower:.2f} times as long; {_seconds(lost)} of computing follow from that"
        if facts.slower > 1:
            yield Hypothesis(Cause.DEVICE_SLOWER, lost, 1.0, (told,), ())
        return
    prefill, decode = (_ratio(after, before) for after, before in (
        (facts.candidate.prefill_rate, facts.base.prefill_rate), (facts.candidate.decode_rate, facts.base.decode_rate)
    ))  # fmt: skip
    if min(prefill, decode) > 1:
        lost = facts.lost(PREFILL, DECODE)
        told = f"a prompt token takes {prefill:.2f} times as long, an output token {decode:.2f} times"
        alike = max(prefill, decode) < 1 + 2 * (min(prefill, decode) - 1)
        against = ("the device's probe was not measured in both",)
        yield Hypothesis(Cause.DEVICE_SLOWER, lost, UNSURE if alike else DOUBTED, (told,), against)


def _ratio(after: float, before: float) -> float:
    return after / before if before else 1.0


def _hits(facts: Facts) -> Iterator[Hypothesis]:
    shares = {s: (facts.base.hit_share(s), facts.candidate.hit_share(s)) for s in sorted(facts.base.hits)}
    fallen = {s: pair for s, pair in shares.items() if pair[1] < pair[0] / GROWN}
    lost = {s: max(0, facts.lost(f"lost_hits.{s or 'unnamed'}")) for s in fallen}
    told = tuple(f"scope {s}: {before:.0%} of prompt tokens were cached, now {after:.0%}" for s, (before, after)
                 in fallen.items())  # fmt: skip
    if not fallen:
        return
    spread = len(fallen) > 1 or len(shares) == 1
    alone = tuple(f"scope {s} is found as before" for s in shares if s not in fallen)
    if len(fallen) == 1:
        gone = next(iter(fallen.values()))[1] < 0.05
        kept = () if gone else ("some of it is still found",)
        yield Hypothesis(Cause.SCOPE_LOST, sum(lost.values()), 1.0 if gone else UNSURE + 0.1, (*told, *alone), kept)
    else:
        yield Hypothesis(Cause.SCOPE_LOST, sum(lost.values()), DOUBTED, told, (f"{len(fallen)} scopes lost hits",))
    yield Hypothesis(Cause.CACHE_TOO_SMALL, sum(lost.values()), 1.0 if spread else DOUBTED, told, alone)


def _queues(facts: Facts) -> Iterator[Hypothesis]:
    yield from _part(facts, Cause.TENANT_LIMIT, "of waiting for a tenant's own limit", "queue.TENANT_CAPACITY")
    yield from _part(facts, Cause.RECLAIM_LAG, "of waiting for pages of requests that had ended", "reclaim")
    waits = facts.lost("queue.POOL_CAPACITY", "queue.BEHIND_OTHERS")
    if waits > 0:
        before, after = facts.pools
        told = (f"{_seconds(waits)} more of waiting for the pool",)
        if before is None or after is None:
            yield Hypothesis(Cause.POOL_SMALLER, waits, UNSURE, told, ("the pool's size is not recorded in both",))
        elif after < before:
            yield Hypothesis(Cause.POOL_SMALLER, waits, 1.0, (*told, f"the pool has {after} tokens, was {before}"), ())
        else:
            against = (f"the pool has {after} tokens, was {before}: it is held longer, not smaller",)
            yield Hypothesis(Cause.POOL_SMALLER, waits, DOUBTED, told, against)
    full = facts.lost("queue.BATCH_FULL")
    if full > 0:
        peaks = f"at most {facts.candidate.peak} ran at once, were {facts.base.peak}"
        told = (f"{_seconds(full)} more of waiting for a place",)
        if facts.candidate.peak < facts.base.peak / GROWN:
            yield Hypothesis(Cause.BATCH_SMALLER, full, 1.0, (*told, peaks), ())
        else:
            yield Hypothesis(Cause.BATCH_SMALLER, full, DOUBTED, told, (peaks,))


def _chunks(facts: Facts) -> Iterator[Hypothesis]:
    slower = facts.slower or 1.0
    other_gaps = sum(max(0, facts.lost(part)) for part in ("gap.preempted", "gap.client", "gap.launch", "growth"))
    wider = round(facts.candidate.widest_gaps / slower) - facts.base.widest_gaps - other_gaps
    prefill = facts.lost(PREFILL)
    more = _ratio(facts.candidate.computed, facts.base.computed)
    rate = f"a prompt token takes {_ratio(facts.candidate.prefill_rate, facts.base.prefill_rate):.2f} times as long"
    if wider > (GROWN - 1) * facts.base.widest_gaps:
        told = (f"the widest gaps of all requests grew by {_seconds(wider)} beyond what else widens gaps",)
        if more > GROWN:
            against = (f"{more:.2f} times as many prompt tokens are computed beside the decodes",)
            yield Hypothesis(Cause.CHUNK_LARGER, wider, DOUBTED, told, against)
        elif prefill > 0:
            yield Hypothesis(Cause.CHUNK_LARGER, wider, UNSURE, told, (rate,))
        else:
            yield Hypothesis(Cause.CHUNK_LARGER, wider, 1.0, (*told, rate), ())
    if prefill > 0:
        seen = (f"{_seconds(prefill)} more for the same prompt tokens, the device apart", rate)
        decode = facts.lost(DECODE)
        if facts.slower is None and decode > prefill / 2:
            yield Hypothesis(Cause.CHUNK_SMALLER, prefill, DOUBTED, seen, ("output tokens became slower as well",))
        else:
            yield Hypothesis(Cause.CHUNK_SMALLER, prefill, 1.0, seen, ())


def _waits(facts: Facts) -> Iterator[Hypothesis]:
    yield from _part(facts, Cause.GROWTH_DENIED, "of waiting for growth that was denied", "growth", "growth.")
    yield from _part(facts, Cause.PREEMPTIONS, "of being set aside", "gap.preempted")
    yield from _part(facts, Cause.CLIENTS_SLOWER, "of waiting for clients", "gap.client")
    # More tokens take more launches, at the same pace.
    more = _ratio(facts.candidate.output, facts.base.output) - 1
    expected = round(max(0.0, more) * facts.lost(MORE_TOKENS))
    yield from _part(facts, Cause.HOST_SLOWER, "of launching", "gap.launch", minus=expected)
    yield from _part(facts, Cause.OUTPUTS_LONGER, "for tokens that the base did not generate", MORE_TOKENS)
    yield from _part(facts, Cause.REFUSALS, "for requests that were served before", "refused.", "expired.", "failed.")


RULES: tuple[Rule, ...] = (_device, _hits, _queues, _chunks, _waits)
