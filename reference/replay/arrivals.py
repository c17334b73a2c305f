"""What is offered: the trace at the configured speed, and the synthetic streams beside it."""

from collections.abc import Iterator

from attrs import evolve

from kvescrow.reference.replay.config import ReplayConfig
from kvescrow.reference.replay.terms import StreamConfig
from kvescrow.reference.traces import Trace, TraceRequest
from kvescrow.spec.vocabulary import UserError


def offered(trace: Trace, config: ReplayConfig) -> Trace:
    """Return what a replay of `trace` under `config` offers, in order of arrival.

    Raises:
        UserError: It offers nothing.

    """
    if config.arrivals == type(config.arrivals)() and not config.streams:
        return trace
    speed = config.arrivals.speed
    requests = [
        evolve(request, arrival=round(request.arrival / speed))
        for request in (trace.requests if config.arrivals.trace else ())
    ]
    for number, stream in enumerate(config.streams):
        requests += _synthetic(number, stream)
    if not requests:
        raise UserError(f"{config.source}: arrivals.trace is false and there is no stream: nothing would be offered")
    requests.sort(key=lambda request: request.arrival)
    return evolve(trace, requests=tuple(requests), remarks=(*trace.remarks, *_remarks(config)))


def _synthetic(number: int, stream: StreamConfig) -> Iterator[TraceRequest]:
    for index in range(stream.requests):
        yield TraceRequest(
            request=f"stream-{number}-{index}",
            tenant=stream.tenant,
            arrival=stream.at + index * stream.every,
            input_tokens=stream.input_tokens,
            output_tokens=stream.output_tokens,
        )


def _remarks(config: ReplayConfig) -> Iterator[str]:
    if config.arrivals.speed != 1:
        yield f"The trace's clock runs {config.arrivals.speed:g} times faster."
    if not config.arrivals.trace:
        yield "The trace itself is left out."
    if config.streams:
        count = sum(stream.requests for stream in config.streams)
        yield f"{count} requests are synthetic, in {len(config.streams)} streams."
