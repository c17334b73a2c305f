"""The replay of a packaged trace, and of the same trace repeated: one run with what it took."""

import cProfile
import pstats
import resource
from pathlib import Path
from time import process_time

from attrs import evolve, frozen

from kvescrow.reference.replay import replay
from kvescrow.reference.traces import Trace, packaged_trace

TRACE = "mooncake"


@frozen
class Took:
    """What one run did and took."""

    requests: int
    completed: int
    span: int
    """Virtual time from the first arrival to the last end, in microseconds."""
    steps: int
    seconds: float
    """Of one processor."""
    memory: int
    """Most bytes that the process had in memory beyond what it had before the trace was read; at least a page."""


@frozen
class Spent:
    """One function's part of the time of a profiled run."""

    function: str
    """`module:function`."""
    calls: int
    share: float
    """Of the time of all functions, without those that it calls."""


def repeated(requests: int) -> Trace:
    """Return the packaged trace, repeated until there are so many requests.

    Each repeat comes later by the trace's span, with names and block ids of its own, so that none of them lives off
    what another has computed.
    """
    trace = packaged_trace(TRACE)
    span = trace.requests[-1].arrival + trace.requests[-1].arrival // len(trace.requests)
    blocks = 1 + max(block for request in trace.requests for block in request.block_ids)
    copies = (
        evolve(
            request,
            request=f"{request.request}/{number}",
            arrival=request.arrival + number * span,
            block_ids=tuple(block + number * blocks for block in request.block_ids),
        )
        for number in range(-(-requests // len(trace.requests)))
        for request in trace.requests
    )
    return evolve(trace, requests=tuple(copy for copy, _ in zip(copies, range(requests), strict=False)))


def run(requests: int) -> Took:
    """Replay so many requests with every invariant of the replay on. Memory is that of the calling process."""
    before = _peak()
    trace = repeated(requests)
    began = process_time()
    result = replay(trace)
    seconds = process_time() - began
    grown = max(resource.getpagesize(), _peak() - before)
    return Took(requests, result.completed, result.virtual_span, result.steps, seconds, grown)


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def profiled(requests: int, most: int = 15) -> tuple[Spent, ...]:
    """Replay so many requests under cProfile and return the functions that took most themselves."""
    trace = repeated(requests)
    profile = cProfile.Profile()
    profile.enable()
    replay(trace)
    profile.disable()
    rows = pstats.Stats(profile).get_stats_profile().func_profiles
    whole = sum(each.tottime for each in rows.values())
    ordered = sorted(rows.items(), key=lambda item: -item[1].tottime)[:most]
    return tuple(
        Spent(f"{Path(each.file_name).stem}:{name}", int(each.ncalls.partition("/")[0]), each.tottime / whole)
        for name, each in ordered
    )
