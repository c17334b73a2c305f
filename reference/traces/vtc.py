"""Result files of the artifact of "Fairness in Serving Large Language Models": one JSON object on one line.

    {"config": ..., "result": {..., "responses": [{"adapter_dir": ..., "prompt_len": 13, "output_len": 199,
     "request_latency": 9.4, "first_token_latency": 1.2, "req_time": 0.0}, ...]}}

The adapter is the tenant. `req_time` is in seconds. A `request_latency` of -1 says that the server of the
recorded run refused the request; it was offered, so it is kept.
"""

from collections.abc import Iterator
from pathlib import Path

from attrs import evolve

from kvescrow.reference.traces.fields import (
    Place,
    json_object,
    known_fields,
    microseconds,
    nonempty_text,
    read_lines,
    required,
    shown,
    token_count,
)
from kvescrow.reference.traces.record import TraceRequest
from kvescrow.spec.vocabulary import MICROSECONDS_PER_SECOND

FIELDS = frozenset({"adapter_dir", "prompt_len", "output_len", "request_latency", "first_token_latency", "req_time"})
REFUSED = -1


class VtcReader:
    """Reads one file; `remarks` is complete when `requests` is exhausted."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._refused = 0

    def requests(self) -> Iterator[TraceRequest]:
        """Yield the requests in the order of the file; arrivals are as the file states them."""
        seen = False
        for place, text in read_lines(self._path):
            if seen:
                place.fail("a second line; a results file is one JSON object on one line")
            seen = True
            for index, response in enumerate(responses(place, text)):
                yield self._request(evolve(place, within=f"result.responses[{index}]."), index, response)

    def remarks(self) -> list[str]:
        """Return how many requests the recorded run refused."""
        if not self._refused:
            return []
        return [f"The recorded run refused {self._refused} of these requests; they are offered all the same."]

    def _request(self, place: Place, index: int, response: object) -> TraceRequest:
        if not isinstance(response, dict):
            place.fail(f"expected a JSON object, found {shown(response)}")
        known_fields(place, response, FIELDS)
        latency = required(place, response, "request_latency")
        if latency == REFUSED and not isinstance(latency, bool):
            self._refused += 1
        else:
            microseconds(place, "request_latency", latency, MICROSECONDS_PER_SECOND)
        return TraceRequest(
            request=f"response-{index}",
            tenant=nonempty_text(place, "adapter_dir", required(place, response, "adapter_dir")),
            arrival=microseconds(place, "req_time", required(place, response, "req_time"), MICROSECONDS_PER_SECOND),
            input_tokens=token_count(place, "prompt_len", required(place, response, "prompt_len")),
            output_tokens=token_count(place, "output_len", required(place, response, "output_len")),
        )


def responses(place: Place, text: str) -> list[object]:
    """Return the list of responses in the object on this line."""
    result = required(place, json_object(place, text), "result")
    if not isinstance(result, dict):
        place.fail(f"expected a JSON object, found {shown(result)}", "result")
    listed = required(evolve(place, within="result."), result, "responses")
    if not isinstance(listed, list):
        place.fail(f"expected a list, found {shown(listed)}", "result.responses")
    return listed
