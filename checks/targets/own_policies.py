"""The reference's reservation policies, each on the same workload."""

import json
from collections.abc import Callable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from attrs import evolve

from kvescrow.reference.replay import read_config, replay
from kvescrow.reference.replay.terms import POLICIES
from kvescrow.reference.traces import packaged_trace

SATURATION = "saturation"
"""The packaged configuration: the Mooncake trace at 0.9 of what the pool can carry."""


def figures_by_policy(requests: int | None, show: Callable[[str], None]) -> Mapping[str, Mapping[str, Any]]:
    """Replay the saturated workload under each policy, and return the figures of each run.

    With `requests`, only so many from its beginning. The replay's own invariants are on; a broken one is raised.
    """
    settings = read_config(Path(str(files("kvescrow.reference.replay").joinpath("configs", f"{SATURATION}.toml"))))
    trace = packaged_trace("mooncake")
    trace = evolve(trace, requests=trace.requests[:requests])
    found: dict[str, Mapping[str, Any]] = {}
    for policy in POLICIES:
        show(f"replaying {len(trace.requests)} requests under {policy}")
        chosen = evolve(settings, reservation=evolve(settings.reservation, policy=policy))
        found[policy] = json.loads(replay(trace, chosen).to_json())
    return found
