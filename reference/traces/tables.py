"""The CSV formats: Azure's and Vidur's.

Azure, from Microsoft's public LLM inference traces (CRLF, seven fractional digits, no newline at the end):

    TIMESTAMP,ContextTokens,GeneratedTokens
    2023-11-16 18:17:03.9799600,4808,10

Vidur, for its trace replay (seconds from the start):

    arrived_at,num_prefill_tokens,num_decode_tokens
    0.125,547,248
"""

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from attrs import frozen

from kvescrow.reference.traces.fields import (
    Place,
    decimal_number,
    integer_cell,
    microseconds,
    read_lines,
    shown,
    token_count,
)
from kvescrow.reference.traces.record import SINGLE_TENANT, TraceRequest
from kvescrow.spec.vocabulary import MICROSECONDS_PER_SECOND

_TIMESTAMP = re.compile(r"(\d{4})-(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(?:\+00:00)?", flags=re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@frozen
class Columns:
    """Names of the three columns, and how the first is read as microseconds."""

    arrival: str
    input_tokens: str
    output_tokens: str
    parse: Callable[[Place, str, str], int]

    @property
    def names(self) -> tuple[str, str, str]:
        """The columns in their usual order; a file may have them in another."""
        return (self.arrival, self.input_tokens, self.output_tokens)


class TableReader:
    """Reads one CSV file; the header says in which order its columns stand."""

    def __init__(self, path: Path, columns: Columns) -> None:
        self._path = path
        self._columns = columns

    def requests(self) -> Iterator[TraceRequest]:
        """Yield the requests in the order of the file; arrivals are as the file states them."""
        columns = self._columns
        header: list[str] = []
        for place, text in read_lines(self._path):
            cells = [cell.strip() for cell in text.split(",")]
            if not header:
                header = cells
                check_header(place, header, columns)
                continue
            if len(cells) != len(header):
                place.fail(f"{len(cells)} cells, the header has {len(header)}; is the line cut off?")
            row = dict(zip(header, cells, strict=True))
            yield TraceRequest(
                request=f"line-{place.line}",
                tenant=SINGLE_TENANT,
                arrival=columns.parse(place, columns.arrival, row[columns.arrival]),
                input_tokens=tokens(place, columns.input_tokens, row[columns.input_tokens]),
                output_tokens=tokens(place, columns.output_tokens, row[columns.output_tokens]),
            )

    def remarks(self) -> list[str]:
        """Return what was read otherwise than it may have been meant: nothing."""
        return []


def check_header(place: Place, header: list[str], columns: Columns) -> None:
    """Refuse a header with a column unknown, missing or named twice."""
    for name in header:
        if name not in columns.names:
            place.fail(f"unknown column {shown(name)}; expected {','.join(columns.names)}")
        if header.count(name) > 1:
            place.fail(f"column {shown(name)} stands twice; expected {','.join(columns.names)}")
    for name in columns.names:
        if name not in header:
            place.fail(f"no column {shown(name)}; expected {','.join(columns.names)}")


def tokens(place: Place, column: str, text: str) -> int:
    """Return the number of tokens in a cell."""
    return token_count(place, column, integer_cell(place, column, text))


def instant(place: Place, column: str, text: str) -> int:
    """Return microseconds since 1970 of a date and time in UTC; digits below the microsecond are dropped."""
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        place.fail(f"expected a time such as 2023-11-16 18:17:03.9799600, found {shown(text)}", column)
    *date_and_time, fraction = match.groups()
    try:
        whole = datetime(*(int(part) for part in date_and_time), tzinfo=UTC)  # type: ignore[arg-type,misc]
    except ValueError as error:
        place.fail(f"{shown(text)} is no time: {error}", column)
    return (whole - _EPOCH) // timedelta(microseconds=1) + int((fraction or "").ljust(6, "0")[:6])


def elapsed(place: Place, column: str, text: str) -> int:
    """Return microseconds of a number of seconds from the start."""
    return microseconds(place, column, decimal_number(place, column, text), MICROSECONDS_PER_SECOND)


AZURE = Columns("TIMESTAMP", "ContextTokens", "GeneratedTokens", instant)
VIDUR = Columns("arrived_at", "num_prefill_tokens", "num_decode_tokens", elapsed)
