"""`read_trace`: find out the format, read the whole file, bring the requests into order."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from attrs import evolve

from kvescrow.reference.traces.fields import json_object, read_lines, shown
from kvescrow.reference.traces.mooncake import MooncakeReader
from kvescrow.reference.traces.ragpulse import RagPulseReader
from kvescrow.reference.traces.record import Trace, TraceFormat, TraceRequest
from kvescrow.reference.traces.tables import AZURE, VIDUR, TableReader
from kvescrow.reference.traces.vtc import VtcReader
from kvescrow.spec.vocabulary import UserError

AUTO = "auto"
"""Find out the format from the first line."""
UNATTRIBUTED = "Source and licence: not stated in the file."


class Reader(Protocol):
    """Reads one file of one format."""

    def requests(self) -> Iterator[TraceRequest]:
        """Yield the requests in the order of the file."""

    def remarks(self) -> list[str]:
        """Return, after the last request, what was changed or left out."""


def read_trace(path: str | Path, format: str = AUTO) -> Trace:
    """Read a workload, whole or not at all.

    Arrivals are counted from the earliest one. Lines out of order are sorted by arrival, and a remark in the
    trace says how many there were.

    Args:
        path: A file in one of the formats of `TraceFormat`.
        format: The value of a `TraceFormat`, or "auto".

    Raises:
        UserError: The file cannot be read, holds no request, or a line is not what its format says.

    """
    path = Path(path)
    known = detected_format(path) if format == AUTO else named_format(format)
    reader = reader_of(path, known)
    requests = list(reader.requests())
    if not requests:
        raise UserError(f"{path}: holds no request; give a trace with at least one")
    return Trace(
        name=path.name,
        format=known,
        requests=in_order(requests),
        attribution=UNATTRIBUTED,
        remarks=(*reader.remarks(), *order_remarks(requests)),
    )


def named_format(name: str) -> TraceFormat:
    """Return the format that a user named."""
    try:
        return TraceFormat(name)
    except ValueError:
        choices = ", ".join([AUTO, *(each.value for each in TraceFormat)])
        raise UserError(f"unknown trace format {shown(name)}; choose from {choices}") from None


def reader_of(path: Path, format: TraceFormat) -> Reader:
    """Return the reader of a format."""
    match format:
        case TraceFormat.MOONCAKE:
            return MooncakeReader(path)
        case TraceFormat.AZURE:
            return TableReader(path, AZURE)
        case TraceFormat.VIDUR:
            return TableReader(path, VIDUR)
        case TraceFormat.VTC:
            return VtcReader(path)
        case TraceFormat.RAGPULSE:
            return RagPulseReader(path)


def detected_format(path: Path) -> TraceFormat:
    """Return the format that the first line shows."""
    place, first = next(read_lines(path), (None, ""))
    if place is None:
        raise UserError(f"{path}: empty; give a trace with at least one request")
    if first.startswith("{"):
        members = json_object(place, first)
        if isinstance(members.get("hash_ids"), dict):
            return TraceFormat.RAGPULSE
        return TraceFormat.VTC if "result" in members else TraceFormat.MOONCAKE
    columns = {cell.strip() for cell in first.split(",")}
    for format, names in ((TraceFormat.AZURE, AZURE.names), (TraceFormat.VIDUR, VIDUR.names)):
        if columns & set(names):
            return format
    place.fail(
        f"no known format begins with {shown(first)}; a trace is JSON Lines with timestamp, input_length and "
        f"output_length, or CSV with the columns {','.join(AZURE.names)} or {','.join(VIDUR.names)}"
    )


def in_order(requests: Sequence[TraceRequest]) -> tuple[TraceRequest, ...]:
    """Return the requests by arrival, the first at 0; equal arrivals keep the order of the file."""
    origin = min(request.arrival for request in requests)
    ordered = sorted(requests, key=lambda request: request.arrival)
    return tuple(evolve(request, arrival=request.arrival - origin) for request in ordered)


def order_remarks(requests: Sequence[TraceRequest]) -> list[str]:
    """Return a remark where requests stand in the file before others that arrived earlier."""
    latest, late = -1, 0
    for request in requests:
        late += request.arrival < latest
        latest = max(latest, request.arrival)
    return [f"{late} requests stood after later ones; all were sorted by arrival."] if late else []
