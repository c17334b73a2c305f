"""Mooncake and aiperf JSON Lines.

    {"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1, 2, ...]}

`timestamp` is in milliseconds. `hash_ids` names the blocks of 512 tokens of the prompt, the last one being
partial unless the length is a multiple of 512; a file may leave the field out. A line of an aiperf session may
give `delay` in place of `timestamp`.
"""

from collections.abc import Iterator
from pathlib import Path

from kvescrow.reference.traces.fields import (
    MAXIMUM_BLOCK_ID,
    Place,
    json_object,
    known_fields,
    microseconds,
    nonempty_text,
    read_lines,
    required,
    shown,
    token_count,
    whole_number,
)
from kvescrow.reference.traces.record import SINGLE_TENANT, TraceRequest

BLOCK_LENGTH = 512
"""Tokens a block."""
MICROSECONDS_PER_MILLISECOND = 1000

FIELDS = frozenset({"timestamp", "input_length", "output_length", "hash_ids", "session_id", "delay"})
SESSIONS_REMARK = "Each line of a session is a request of its own; earlier turns are not added to its prompt."
DELAYS_REMARK = "A delay is counted from the arrival of the turn before, since no time of its answer is known."


class MooncakeReader:
    """Reads one file; `remarks` is complete when `requests` is exhausted."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._arrivals: dict[str, int] = {}
        self._delays = False

    def requests(self) -> Iterator[TraceRequest]:
        """Yield the requests in the order of the file; arrivals are as the file states them."""
        for place, text in read_lines(self._path):
            members = json_object(place, text)
            known_fields(place, members, FIELDS)
            input_tokens = token_count(place, "input_length", required(place, members, "input_length"))
            blocks = block_ids(place, members.get("hash_ids"), input_tokens)
            yield TraceRequest(
                request=f"line-{place.line}",
                tenant=SINGLE_TENANT,
                arrival=self._arrival(place, members),
                input_tokens=input_tokens,
                output_tokens=token_count(place, "output_length", required(place, members, "output_length")),
                block_ids=blocks,
                block_length=BLOCK_LENGTH if blocks else 0,
            )

    def remarks(self) -> list[str]:
        """Return what was read otherwise than it may have been meant."""
        return [SESSIONS_REMARK] * bool(self._arrivals) + [DELAYS_REMARK] * self._delays

    def _arrival(self, place: Place, members: dict[str, object]) -> int:
        if "timestamp" in members:
            if "delay" in members:
                place.fail("stands beside a timestamp; give one of the two", "delay")
            arrival = microseconds(place, "timestamp", members["timestamp"], MICROSECONDS_PER_MILLISECOND)
        else:
            arrival = self._delayed(place, members)
        if "session_id" in members:
            self._arrivals[nonempty_text(place, "session_id", members["session_id"])] = arrival
        return arrival

    def _delayed(self, place: Place, members: dict[str, object]) -> int:
        if "delay" not in members:
            place.fail("missing; every request needs a timestamp, or a delay inside a session", "timestamp")
        session = nonempty_text(place, "session_id", required(place, members, "session_id"))
        if session not in self._arrivals:
            place.fail(f"{shown(session)} has no earlier turn; its first turn needs a timestamp", "delay")
        self._delays = True
        delay = microseconds(place, "delay", members["delay"], MICROSECONDS_PER_MILLISECOND)
        return self._arrivals[session] + delay


def block_ids(place: Place, value: object, input_tokens: int) -> tuple[int, ...]:
    """Return the block ids of a prompt; none where the field is absent or null."""
    if value is None:
        return ()
    if not isinstance(value, list):
        place.fail(f"expected a list of integers, found {shown(value)}", "hash_ids")
    expected = -(-input_tokens // BLOCK_LENGTH)
    if len(value) != expected:
        place.fail(
            f"{len(value)} ids for {input_tokens} tokens, expected {expected}, one for each {BLOCK_LENGTH} tokens "
            "or part; a file with other blocks can be read without hash_ids",
            "hash_ids",
        )
    return tuple(
        whole_number(place, f"hash_ids[{index}]", each, 0, MAXIMUM_BLOCK_ID) for index, each in enumerate(value)
    )
