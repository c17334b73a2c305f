"""Incidents as recipes: what was changed, within which range, and so which cause is the true one.

Each recipe changes one thing of a worker. The ranges reach from an incident that is felt to one that is severe. Some
hide themselves: what they cause elsewhere is larger than what they cause directly, or something else improved.
"""

from collections.abc import Callable
from random import Random
from typing import Any

from attrs import evolve, frozen

from kvescrow.reference.grading.diagnosis import Cause
from kvescrow.reference.grading.incidents.worker import WorkerSettings, simulate, workload
from kvescrow.reference.grading.records import Run

TENANTS = "abc"
NORMAL = WorkerSettings()
Change = Callable[[WorkerSettings, Random], WorkerSettings]


@frozen
class Recipe:
    """One kind of incident."""

    name: str
    cause: Cause
    change: Change
    """What happened to the worker of the base."""
    base: WorkerSettings = NORMAL
    conflicting: str = ""
    """What points elsewhere; empty where nothing does."""
    unrecorded: frozenset[str] = frozenset()
    """Facts that neither run tells: `probe`, `pool`."""


RECIPES: tuple[Recipe, ...] = (
    Recipe("device throttled", Cause.DEVICE_SLOWER, lambda w, r: evolve(w, device=w.device * r.uniform(1.08, 1.6))),
    Recipe(
        "device throttled behind a busy pool",
        Cause.DEVICE_SLOWER,
        lambda w, r: evolve(w, device=w.device * r.uniform(1.2, 1.6)),
        base=evolve(NORMAL, pool=5_500),
        conflicting="requests wait longer for the pool than the device takes longer",
    ),
    Recipe(
        "device throttled while the cache became better",
        Cause.DEVICE_SLOWER,
        lambda w, r: evolve(w, device=w.device * r.uniform(1.25, 1.6), hits={}),
        base=evolve(NORMAL, hits=dict.fromkeys(TENANTS, 0.7)),
        conflicting="prompts are computed faster, since more of them is cached",
    ),
    Recipe(
        "device throttled, and nobody measured it",
        Cause.DEVICE_SLOWER,
        lambda w, r: evolve(w, device=w.device * r.uniform(1.2, 1.6)),
        conflicting="prompts take longer, as they do in smaller chunks",
        unrecorded=frozenset({"probe"}),
    ),
    Recipe("salt of one scope changed", Cause.SCOPE_LOST, lambda w, r: evolve(w, hits={r.choice(TENANTS): 0.0})),
    Recipe(
        "weights of one scope's adapter loaded again behind a busy pool",
        Cause.SCOPE_LOST,
        lambda w, r: evolve(w, hits={r.choice(TENANTS): 0.0}),
        base=evolve(NORMAL, pool=9_000),
        conflicting="other tenants' decodes wait for its prompts, and all wait for the pool",
    ),
    Recipe(
        "cache shrunk",
        Cause.CACHE_TOO_SMALL,
        lambda w, r: evolve(w, hits=dict.fromkeys(TENANTS, r.uniform(0.1, 0.75))),
    ),
    Recipe(
        "stops confirmed late",
        Cause.RECLAIM_LAG,
        lambda w, r: evolve(w, reclaim_lag=r.randint(100_000, 1_500_000)),
        base=evolve(NORMAL, pool=10_000),
        conflicting="requests wait for a pool that is as large as before",
    ),
    Recipe(
        "limit of one tenant lowered",
        Cause.TENANT_LIMIT,
        lambda w, r: evolve(w, tenant_limit={r.choice(TENANTS): r.randint(2_600, 3_400)}),
    ),
    Recipe("pool shrunk", Cause.POOL_SMALLER, lambda w, r: evolve(w, pool=r.randint(4_500, 7_000))),
    Recipe(
        "pool shrunk while the device became faster",
        Cause.POOL_SMALLER,
        lambda w, r: evolve(w, pool=r.randint(4_000, 5_500), device=w.device * r.uniform(0.85, 0.95)),
        conflicting="everything that is computed is faster",
    ),
    Recipe(
        "pool shrunk, and nobody wrote down its size",
        Cause.POOL_SMALLER,
        lambda w, r: evolve(w, pool=r.randint(4_500, 7_000)),
        unrecorded=frozenset({"pool"}),
    ),
    Recipe("places taken away", Cause.BATCH_SMALLER, lambda w, r: evolve(w, places=r.randint(2, 5))),
    Recipe(
        "chunk widened",
        Cause.CHUNK_LARGER,
        lambda w, r: evolve(w, chunk=r.choice((1_024, 1_536, 2_048))),
        base=evolve(NORMAL, chunk=256),
        conflicting="prompts are computed faster, and the time of all requests together hardly changes",
    ),
    Recipe(
        "chunk narrowed",
        Cause.CHUNK_SMALLER,
        lambda w, r: evolve(w, chunk=r.choice((48, 64, 96))),
        conflicting="prompts wait for prompts longer than they take longer",
    ),
    Recipe(
        "estimates of the output too small",
        Cause.GROWTH_DENIED,
        lambda w, r: evolve(w, reserved_output=r.uniform(0.02, 0.2)),
        base=evolve(NORMAL, pool=5_200, output=6.0),
        conflicting="more requests are admitted sooner",
    ),
    Recipe(
        "requests preempted",
        Cause.PREEMPTIONS,
        lambda w, r: evolve(w, preemption=r.uniform(0.002, 0.03)),
        conflicting="what is set aside is held, so requests wait for the pool",
    ),
    Recipe("host busy", Cause.HOST_SLOWER, lambda w, r: evolve(w, launch=r.randint(500, 4_000))),
    Recipe("clients behind a slow network", Cause.CLIENTS_SLOWER, lambda w, r: evolve(w, stall=r.uniform(0.002, 0.03))),
    Recipe("answers became longer", Cause.OUTPUTS_LONGER, lambda w, r: evolve(w, output=r.uniform(1.1, 2.0))),
    Recipe(
        "longest prompt cut down",
        Cause.REFUSALS,
        lambda w, r: evolve(w, longest_prompt=r.randint(1_500, 2_150)),
        conflicting="all that are served are served faster",
    ),
)


def incident(recipe: Recipe, seed: int, requests: int = 70) -> tuple[Run, Run]:
    """Return a run before and a run after the incident; the same seed gives the same."""
    wishes = workload(seed, requests)
    changed = recipe.change(recipe.base, Random(f"{recipe.name} {seed}"))
    untold: dict[str, Any] = dict.fromkeys(recipe.unrecorded)
    before = simulate(f"before: {recipe.name}", wishes, recipe.base, 2 * seed)
    after = simulate(f"after: {recipe.name}", wishes, changed, 2 * seed + 1)
    return evolve(before, **untold), evolve(after, **untold)
