"""The figures of a finished run, taken from gateways and worker."""

from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction

from attrs import asdict

from kvescrow.reference.replay.config import ReplayConfig
from kvescrow.reference.replay.front import Front
from kvescrow.reference.replay.measures import Histogram, quantiles
from kvescrow.reference.replay.offers import Offer, Stage
from kvescrow.reference.replay.result import (
    MICROSECONDS,
    Cancellations,
    ClassResult,
    Curves,
    FairnessPair,
    FairnessResult,
    Goodput,
    ReplayResult,
)
from kvescrow.reference.replay.shape import Shape
from kvescrow.reference.replay.terms import ClassConfig
from kvescrow.reference.replay.worker import Worker
from kvescrow.reference.scheduler.fairness import FairnessWatch, Party, shortfall
from kvescrow.reference.scheduler.reservations import EstimateWithGrowth
from kvescrow.reference.traces import Trace
from kvescrow.spec.vocabulary import Key

POINTS = 200
"""Points of a course over time: what a plot shows."""


def report(  # noqa: PLR0913 - a run has these parts, and each is used
    trace: Trace,
    config: ReplayConfig,
    shape: Shape,
    front: Front,
    worker: Worker,
    *,
    span: int,
    cancels_sent: int,
    hit_rate: float | None,
    ledger_events: int,
    page_changes: int,
    seconds: float,
) -> ReplayResult:
    """Return the result of a run that took `span` microseconds of virtual time."""
    offers = list(front.offers)
    met = {offer.key for offer in offers if meets(offer, config.classes[offer.class_name], config.times.deadline)}
    counted = len(offers) - front.ended[Stage.CANCELLED]
    all_gaps = merged(worker.gaps.values())
    return ReplayResult(
        trace=trace.name,
        attribution=trace.attribution,
        remarks=(*trace.remarks, *_remarks(config)),
        policy=_policy(config, shape),
        cost_model={"synthetic": True, "unit": "nanoseconds; of a pair femtoseconds", **asdict(config.cost)},
        offered=len(offers),
        admitted=sum(offer.admitted is not None for offer in offers),
        refused=by_name(front.refused),
        expired=by_name(front.expired),
        failed=by_name(front.failed),
        cancelled=front.ended[Stage.CANCELLED],
        completed=front.ended[Stage.COMPLETED],
        cancellations=_cancellations(config, front, cancels_sent),
        goodput=Goodput(len(met), share(len(met), counted), len(met) * MICROSECONDS / span if span else 0.0),
        classes={
            name: _class_result(name, [offer for offer in offers if offer.class_name == name], met, config, worker)
            for name in config.classes
        },
        utilisation=front.active.mean(span) / shape.tokens,
        peak_utilisation=front.active.peak / shape.tokens,
        queue_wait=quantiles(waits(offers)),
        first_token=quantiles(first_tokens(offers)),
        token_gap=all_gaps.quantiles(),
        held_back=by_name(worker.held_back),
        hit_rate=hit_rate,
        preemptions=front.preemptions,
        denials=front.denials,
        deferrals=worker.deferrals,
        broken_promises=sum(offer.preempted or offer.stage is Stage.FAILED for offer in offers),
        under_reserving=_under_reserving(front),
        fairness=_fairness(front, config, shape),
        prefill_tokens=worker.prefill_tokens,
        generated_tokens=worker.generated_tokens,
        steps=worker.steps,
        virtual_span=span,
        ledger_events=ledger_events,
        page_changes=page_changes,
        curves=_curves(offers, config, shape, front, worker, span),
        seconds=seconds,
    )


def meets(offer: Offer, objectives: ClassConfig, deadline: int) -> bool:
    """Return whether a request met every objective of its class, its completion included (REL-1)."""
    request = offer.request
    if offer.stage is not Stage.COMPLETED or offer.first_token is None:
        return False
    limits = (
        (offer.first_token, objectives.first_token),
        (offer.widest_gap, objectives.token_gap),
        (offer.finished - request.arrival, objectives.deadline or deadline),
    )
    return all(limit is None or measured <= limit for measured, limit in limits)


def waits(offers: Iterable[Offer]) -> list[int]:
    """Return the microseconds from arrival to the first admission, of each request that was admitted."""
    return [offer.admitted - offer.request.arrival for offer in offers if offer.admitted is not None]


def first_tokens(offers: Iterable[Offer]) -> list[int]:
    """Return the microseconds from arrival to the first token, of each request that got one."""
    return [offer.first_token for offer in offers if offer.first_token is not None]


def merged(histograms: Iterable[Histogram]) -> Histogram:
    """Return one histogram of all samples: quantiles come from merged samples (REL-2)."""
    together = Histogram()
    for each in histograms:
        together.counts.update(each.counts)
    return together


def share(part: int, whole: int) -> float | None:
    """Return `part` of `whole`; None where there is nothing to divide, since no data is never good (REL-2)."""
    return part / whole if whole else None


def by_name(counts: Counter[str]) -> dict[str, int]:
    """Return the counts by name, so that equal runs give equal text."""
    return dict(sorted(counts.items()))


def _class_result(name: str, offers: list[Offer], met: set[Key], config: ReplayConfig, worker: Worker) -> ClassResult:
    stages = Counter(offer.stage for offer in offers)
    good = sum(offer.key in met for offer in offers)
    settings = config.classes[name]
    return ClassResult(
        share=settings.share,
        objectives={
            "first_token": settings.first_token,
            "token_gap": settings.token_gap,
            "deadline": settings.deadline or config.times.deadline,
        },
        offered=len(offers),
        admitted=sum(offer.admitted is not None for offer in offers),
        refused=stages[Stage.REFUSED],
        expired=stages[Stage.EXPIRED],
        cancelled=stages[Stage.CANCELLED],
        failed=stages[Stage.FAILED],
        completed=stages[Stage.COMPLETED],
        met=good,
        attainment=share(good, len(offers) - stages[Stage.CANCELLED]),
        queue_wait=quantiles(waits(offers)),
        first_token=quantiles(first_tokens(offers)),
        token_gap=worker.gaps[name].quantiles(),
    )


def _fairness(front: Front, config: ReplayConfig, shape: Shape) -> FairnessResult | None:
    """Return what the watch saw; None where nobody waited before the ledger."""
    watch = front.watch
    if not front.largest:
        return None
    shortfalls: dict[str, float] = {}
    for (ahead, behind), lead in watch.leads.items():
        if len(behind) == 1:
            below = float(shortfall(lead, watch.weight(behind), watch.weight(ahead)))
            shortfalls[behind[0]] = max(shortfalls.get(behind[0], 0.0), below)
    return FairnessResult(
        largest=front.largest,
        classes=worst_pair(watch, 1, front.largest, shape.tokens),
        tenants=worst_pair(watch, 2, front.largest, shape.tokens),
        shortfall=dict(sorted(shortfalls.items())),
        broken=watch.broken(front.largest, shape.tokens),
    )


def worst_pair(watch: FairnessWatch, level: int, largest: int, pool: int) -> FairnessPair | None:
    """Return the pair of classes (level 1) or of tenants (2) that came nearest to its bound."""
    pairs: Mapping[tuple[Party, Party], Fraction] = {
        pair: gap for pair, gap in watch.gaps.items() if len(pair[0]) == level
    }
    if not pairs:
        return None
    pair = max(pairs, key=lambda each: (pairs[each] / watch.bound(each, largest, pool), each))
    return FairnessPair(
        parties=("/".join(pair[0]), "/".join(pair[1])),
        gap=float(pairs[pair]),
        bound=float(watch.bound(pair, largest, pool)),
    )


def _curves(offers: list[Offer], config: ReplayConfig, shape: Shape, front: Front, worker: Worker, span: int) -> Curves:
    by_class: dict[str, list[Offer]] = {name: [] for name in config.classes}
    for offer in offers:
        by_class[offer.class_name].append(offer)
    return Curves(
        utilisation=[round(value / shape.tokens, 4) for value in front.active.course(span, POINTS)],
        queue_wait={name: _distribution(waits(each)) for name, each in by_class.items()},
        token_gap={name: each.distribution() for name, each in worker.gaps.items()},
        service=dict(sorted(("/".join(party), tokens) for party, tokens in front.watch.service.items())),
    )


def _distribution(samples: list[int]) -> list[int]:
    return Histogram(Counter(samples)).distribution()


def _under_reserving(front: Front) -> list[str]:
    return sorted(front.policy.under_reserving) if isinstance(front.policy, EstimateWithGrowth) else []


def _remarks(config: ReplayConfig) -> list[str]:
    if not config.scheduler.baseline:
        return []
    return [f"The order {config.scheduler.order} is a baseline: it may starve a class."]


def _policy(config: ReplayConfig, shape: Shape) -> dict[str, object]:
    reservation = {key: value for key, value in asdict(config.reservation).items() if key != "policy"}
    return {
        "reserved": config.reservation.policy,
        **reservation,
        "order": config.scheduler.order,
        "workers": 1,
        "pool_tokens": shape.tokens,
        "tenant_tokens": shape.tenant_tokens,
        "page_length": shape.page_length,
        "queue_limit": config.pool.queue_limit,
        **asdict(config.times),
        "sequences": config.scheduler.sequences,
        "prefill_chunk": config.scheduler.prefill_chunk,
        "gap_budget": config.scheduler.gap_budget,
        "classes": {name: asdict(each) for name, each in config.classes.items()},
        "tenants": {name: asdict(each) for name, each in config.tenants.items()},
        **{f"arrivals_{key}": value for key, value in asdict(config.arrivals).items()},
    }


def _cancellations(config: ReplayConfig, front: Front, sent: int) -> Cancellations:
    injected = config.cancellations
    return Cancellations(
        injected=True,
        rate=injected.rate,
        seed=injected.seed,
        within=injected.within,
        sent=sent,
        late=front.late_cancels,
    )
