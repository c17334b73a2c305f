"""Cancellations that a replay injects, since recorded traces have none (LIF-7).

They are the replay's own and are counted apart. The same seed gives the same ones; raising the rate adds some and
moves none.
"""

from collections.abc import Mapping
from random import Random

from kvescrow.reference.replay.config import CancellationConfig
from kvescrow.reference.traces import Trace


def injected(trace: Trace, config: CancellationConfig) -> Mapping[str, int]:
    """Return the time of the cancel, in microseconds of the trace's clock, of each request that gets one."""
    random = Random(config.seed)
    times: dict[str, int] = {}
    for request in trace.requests:
        chosen, moment = random.random(), random.random()
        if chosen < config.rate:
            times[request.request] = request.arrival + int(moment * config.within)
    return times
