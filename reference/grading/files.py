"""Request-level records as JSON Lines: a header, one record a line, an ending line with counts.

A file without an ending was cut off, and an empty one holds no run; both are errors, as is an unknown field.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from attrs import evolve

from kvescrow.reference.grading.records import (
    Ending,
    Evidence,
    Frame,
    RequestRecord,
    Run,
    Span,
    SpanKind,
    check_spans,
)
from kvescrow.reference.traces.fields import (
    MAXIMUM_COUNT,
    MAXIMUM_MICROSECONDS,
    Place,
    json_object,
    known_fields,
    nonempty_text,
    read_lines,
    required,
    shown,
    whole_number,
)
from kvescrow.spec.vocabulary import UserError

VERSION = 1
RECORDS = "kvescrow_records"
END = "end"

_HEADER = frozenset({RECORDS, "name", "workload", "synthetic", "probe", "pool", "remarks"})
_RECORD = frozenset(
    {
        "request",
        "tenant",
        "class",
        "arrival",
        "ending",
        "reason",
        "sent",
        "frames",
        "ended",
        "input_tokens",
        "cached_tokens",
        "correct",
        "output",
        "started",
        "amount",
        "scope",
        "spans",
    }
)
_END = frozenset({"records", "offered", "ended", "safety", "clock_readings"})


def write_run(path: Path, run: Run) -> None:
    """Write `run` to the new file `path`. Raises `UserError` where it exists or cannot be written."""
    try:
        with path.open("x", encoding="utf-8") as file:
            for line in lines_of(run):
                file.write(json.dumps(line, separators=(",", ":")) + "\n")
    except FileExistsError:
        raise UserError(f"{path}: exists already; name a new file for the records") from None
    except OSError as error:
        raise UserError(
            f"{path}: cannot be written ({error.strerror or error}); name a file in a folder that exists"
        ) from None


def lines_of(run: Run) -> Iterable[dict[str, Any]]:
    """Yield the lines of a file of records as JSON objects; what is unknown is left out."""
    header = {
        RECORDS: VERSION,
        "name": run.name,
        "workload": run.workload,
        "synthetic": run.synthetic,
        "probe": run.probe,
        "pool": run.pool,
        "remarks": list(run.remarks),
    }
    yield {key: value for key, value in header.items() if value not in (None, "", [])}
    for record in run.records:
        yield _line_of(record)
    end: dict[str, Any] = {"records": len(run.records), "offered": run.offered, "ended": run.ended}
    if run.safety is not None:
        end["safety"] = {
            "checked": run.safety.checked,
            "violations": list(run.safety.violations),
            "source": run.safety.source,
        }
    if run.clock_readings:
        end["clock_readings"] = [list(each) for each in run.clock_readings]
    yield {END: end}


def _line_of(record: RequestRecord) -> dict[str, Any]:
    line = {
        "request": record.request,
        "tenant": record.tenant,
        "class": record.class_name,
        "arrival": record.arrival,
        "sent": record.sent,
        "ending": record.ending.value,
        "reason": record.reason or None,
        "ended": record.ended,
        "frames": [list(frame) for frame in record.frames] or None,
        "input_tokens": record.input_tokens,
        "cached_tokens": record.cached_tokens,
        "correct": record.correct,
        "output": record.output or None,
        "started": record.started,
        "amount": record.amount,
        "scope": record.scope or None,
        "spans": [[span.kind.value, span.cause, span.microseconds] for span in record.spans] or None,
    }
    return {key: value for key, value in line.items() if value is not None}


def read_run(path: Path) -> Run:
    """Read a file of records, whole or not at all.

    Raises:
        UserError: The file cannot be read, is empty or cut off, or a line is not what the schema says; the message
            names file, line and field.

    """
    lines = ((place, json_object(place, text)) for place, text in read_lines(path))
    first = next(lines, None)
    if first is None:
        raise UserError(f"{path}: holds no records; an empty file is no run")
    run = _header(*first)
    records: list[RequestRecord] = []
    seen: set[tuple[str, str]] = set()
    for place, line in lines:
        if END in line:
            known_fields(place, line, frozenset({END}))
            _nothing_after(lines)
            return _ended(place, line[END], run, records)
        record = _record(place, line)
        if (record.tenant, record.request) in seen:
            place.fail(
                f"{shown(record.request)} of this tenant is there twice; every offered request has one", "request"
            )
        seen.add((record.tenant, record.request))
        records.append(record)
    raise UserError(f"{path}: no ending line: the file was cut off; record the run again")


def _nothing_after(lines: Iterable[tuple[Place, dict[str, object]]]) -> None:
    for place, _ in lines:
        place.fail("there is something after the ending line; one file holds one run")


def _header(place: Place, line: dict[str, object]) -> Run:
    version = required(place, line, RECORDS)
    if type(version) is not int or version != VERSION:
        place.fail(f"{shown(version)} is not known; this release reads version {VERSION}", RECORDS)
    known_fields(place, line, _HEADER)
    synthetic = line.get("synthetic", False)
    remarks = line.get("remarks", [])
    if not isinstance(synthetic, bool):
        place.fail(f"expected true or false, found {shown(synthetic)}", "synthetic")
    if not isinstance(remarks, list):
        place.fail(f"expected a list of texts, found {shown(remarks)}", "remarks")
    return Run(
        name=nonempty_text(place, "name", required(place, line, "name")),
        records=(),
        ended=0,
        offered=0,
        workload=_text(place, line, "workload"),
        synthetic=synthetic,
        probe=_optional(place, line, "probe", MAXIMUM_MICROSECONDS),
        pool=_optional(place, line, "pool", MAXIMUM_MICROSECONDS),
        remarks=tuple(str(each) for each in remarks),
    )


def _record(place: Place, line: dict[str, object]) -> RequestRecord:
    known_fields(place, line, _RECORD)
    correct = line.get("correct")
    if correct is not None and not isinstance(correct, bool):
        place.fail(f"expected true or false, found {shown(correct)}", "correct")
    ending = _member(place, "ending", required(place, line, "ending"), Ending)
    record = RequestRecord(
        request=nonempty_text(place, "request", required(place, line, "request")),
        tenant=nonempty_text(place, "tenant", required(place, line, "tenant")),
        class_name=nonempty_text(place, "class", required(place, line, "class")),
        arrival=whole_number(place, "arrival", required(place, line, "arrival"), 0, MAXIMUM_MICROSECONDS),
        ending=ending,
        reason=_text(place, line, "reason"),
        sent=_optional(place, line, "sent", MAXIMUM_MICROSECONDS),
        frames=_frames(place, line),
        ended=_optional(place, line, "ended", MAXIMUM_MICROSECONDS),
        input_tokens=_optional(place, line, "input_tokens", MAXIMUM_COUNT),
        cached_tokens=_optional(place, line, "cached_tokens", MAXIMUM_COUNT),
        correct=correct,
        output=_text(place, line, "output"),
        started=_optional(place, line, "started", MAXIMUM_MICROSECONDS),
        amount=_optional(place, line, "amount", MAXIMUM_COUNT),
        scope=_text(place, line, "scope"),
        spans=_spans(place, line),
    )
    if (record.ended is None) != (ending is Ending.UNFINISHED):
        place.fail(f"a request that is {ending.value} has {'an' if record.ended is None else 'no'} end", "ended")
    try:
        check_spans(record)
    except UserError as error:
        place.fail(str(error))
    return record


def _frames(place: Place, line: dict[str, object]) -> tuple[Frame, ...]:
    return tuple(
        (
            whole_number(place, f"frames[{index}][0]", time, 0, MAXIMUM_MICROSECONDS),
            whole_number(place, f"frames[{index}][1]", tokens, 0, MAXIMUM_COUNT),
        )
        for index, (time, tokens) in enumerate(_lists(place, line, "frames", 2))
    )


def _spans(place: Place, line: dict[str, object]) -> tuple[Span, ...]:
    found = []
    for index, (kind, cause, duration) in enumerate(_lists(place, line, "spans", 3)):
        name = f"spans[{index}]"
        if not isinstance(cause, str):
            place.fail(f"expected text, found {shown(cause)}", f"{name}[1]")
        microseconds = whole_number(place, f"{name}[2]", duration, 0, MAXIMUM_MICROSECONDS)
        found.append(Span(_member(place, f"{name}[0]", kind, SpanKind), cause, microseconds))
    return tuple(found)


def _lists(place: Place, line: dict[str, object], field: str, length: int) -> list[list[object]]:
    """Return a list of lists of `length` parts; empty where the field is missing."""
    value = line.get(field, [])
    if not isinstance(value, list):
        place.fail(f"expected a list, found {shown(value)}", field)
    for index, each in enumerate(value):
        if not isinstance(each, list) or len(each) != length:
            place.fail(f"expected a list of {length}, found {shown(each)}", f"{field}[{index}]")
    return value


def _ended(place: Place, end: object, run: Run, records: list[RequestRecord]) -> Run:
    within = Place(place.path, place.line, f"{END}.")
    if not isinstance(end, dict):
        place.fail(f"expected an object, found {shown(end)}", END)
    known_fields(within, end, _END)
    count = whole_number(within, "records", required(within, end, "records"), 0, MAXIMUM_COUNT)
    if count != len(records):
        within.fail(f"{count} records were written, but there are {len(records)}; the file lost some", "records")
    return evolve(
        run,
        records=tuple(records),
        offered=whole_number(within, "offered", required(within, end, "offered"), 0, MAXIMUM_COUNT),
        ended=whole_number(within, "ended", required(within, end, "ended"), 0, MAXIMUM_MICROSECONDS),
        safety=_safety(within, end.get("safety")),
        clock_readings=tuple(
            (
                whole_number(within, f"clock_readings[{index}][0]", ours, 0, MAXIMUM_MICROSECONDS),
                whole_number(within, f"clock_readings[{index}][1]", theirs, 0, MAXIMUM_MICROSECONDS),
            )
            for index, (ours, theirs) in enumerate(_lists(within, end, "clock_readings", 2))
        ),
    )


def _safety(place: Place, value: object) -> Evidence | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        place.fail(f"expected an object, found {shown(value)}", "safety")
    within = Place(place.path, place.line, f"{place.within}safety.")
    known_fields(within, value, frozenset({"checked", "violations", "source"}))
    violations = required(within, value, "violations")
    if not isinstance(violations, list) or not all(isinstance(each, str) for each in violations):
        within.fail(f"expected a list of texts, found {shown(violations)}", "violations")
    return Evidence(
        whole_number(within, "checked", required(within, value, "checked"), 0, MAXIMUM_MICROSECONDS),
        tuple(violations),
        nonempty_text(within, "source", required(within, value, "source")),
    )


def _optional(place: Place, line: dict[str, object], field: str, most: int) -> int | None:
    value = line.get(field)
    return None if value is None else whole_number(place, field, value, 0, most)


def _text(place: Place, line: dict[str, object], field: str) -> str:
    value = line.get(field)
    return "" if value is None else nonempty_text(place, field, value)


def _member(place: Place, field: str, value: object, kind: Any) -> Any:
    known = [member.value for member in kind]
    if value not in known:
        place.fail(f"{shown(value)} is not known; it is one of {', '.join(known)}", field)
    return kind(value)
