"""Per-request output of other load generators, read into request-level records by their documented fields.

vLLM `bench serve --save-result --save-detailed`: one JSON object; lists with one entry a request, in seconds: `ttfts`,
`itls`, `start_times`, `latencies`, `queue_times`, `output_lens`, `input_lens`, `errors`. The wait for a free slot of
the client comes before the start, so the intended arrival is the start less it.

AIPerf `profile_export.jsonl`: one JSON object a request: `metadata` with times in nanoseconds, `metrics` as values with
units, `error`. Requests that the generator cancelled on purpose stand for users' cancels.

Neither names tenants or classes, nor checks safety or correctness; gates that need these have no data unless the
objectives waive them with a reason.
"""

import hashlib
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path

from kvescrow.reference.grading.files import RECORDS, read_run
from kvescrow.reference.grading.records import Ending, Frame, RequestRecord, Run
from kvescrow.reference.traces.fields import (
    MAXIMUM_COUNT,
    MAXIMUM_MICROSECONDS,
    Place,
    decoded,
    json_object,
    microseconds,
    read_lines,
    required,
    shown,
    whole_number,
)
from kvescrow.spec.vocabulary import MICROSECONDS_PER_SECOND, UserError

TENANT = CLASS = "default"
_PER_MICROSECOND = {"ns": Decimal(1) / 1000, "us": Decimal(1), "ms": Decimal(1000), "sec": Decimal(10**6)}
_VLLM_LISTS = ("ttfts", "itls", "start_times", "output_lens", "errors")


def read_any_run(path: Path) -> Run:
    """Read the records of one run in any of the known formats; the first line tells which.

    Raises:
        UserError: The file cannot be read, or is in none of the formats; the message names file, line and field.

    """
    first = next(read_lines(path), None)
    if first is None:
        raise UserError(f"{path}: holds no records; an empty file is no run")
    place, text = first
    if text == "{":
        text = decoded(
            place, path.read_bytes()
        )  # an object over several lines: a result of vLLM that was laid out by hand
    line = json_object(place, text)
    if RECORDS in line:
        return read_run(path)
    if "metadata" in line and "metrics" in line:
        return _aiperf(path)
    if "ttfts" in line or "completed" in line:
        return _vllm(place, line)
    place.fail(
        "neither records of kvescrow, nor a result of vLLM's `bench serve --save-result --save-detailed`, nor a "
        "profile_export.jsonl of AIPerf"
    )


def _vllm(place: Place, line: dict[str, object]) -> Run:
    lists = {name: _list(place, line, name) for name in _VLLM_LISTS}
    lists |= {name: _list(place, line, name) for name in ("queue_times", "latencies", "input_lens") if name in line}
    count = len(lists["ttfts"])
    for name, values in lists.items():
        if len(values) != count:
            place.fail(f"has {len(values)} entries, but ttfts has {count}; every request has one in each", name)
    starts = [_seconds(place, "start_times", lists["start_times"][n]) for n in range(count)]
    origin = min(starts, default=0)
    waits = [_seconds(place, "queue_times", lists["queue_times"][n]) if "queue_times" in lists else 0
             for n in range(count)]  # fmt: skip
    lead = max((wait - (start - origin) for wait, start in zip(waits, starts, strict=True)), default=0)
    origin -= max(0, lead)
    texts = line.get("generated_texts")
    records = tuple(
        _vllm_record(place, lists, n, starts[n] - origin, waits[n], texts if isinstance(texts, list) else [])
        for n in range(count)
    )
    duration = _seconds(place, "duration", required(place, line, "duration"))
    ended = max([duration, *(record.ended or 0 for record in records)])
    return Run(
        place.path.name,
        records,
        ended,
        offered=count,
        remarks=("times are the client's; a chunk that carries several tokens is one frame",),
    )


def _vllm_record(
    place: Place, lists: Mapping[str, list[object]], n: int, sent: int, wait: int, texts: list[object]
) -> RequestRecord:
    error = lists["errors"][n]
    gaps = lists["itls"][n]
    if not isinstance(gaps, list):
        place.fail(f"expected a list, found {shown(gaps)}", f"itls[{n}]")
    first = sent + _seconds(place, f"ttfts[{n}]", lists["ttfts"][n])
    times = [first]
    for gap in gaps:
        times.append(times[-1] + _seconds(place, f"itls[{n}]", gap))
    tokens = whole_number(place, f"output_lens[{n}]", lists["output_lens"][n], 0, MAXIMUM_COUNT)
    latency = _seconds(place, f"latencies[{n}]", lists["latencies"][n]) if "latencies" in lists else 0
    failed = bool(error) or tokens == 0
    text = texts[n] if n < len(texts) else None
    return RequestRecord(
        request=str(n),
        tenant=TENANT,
        class_name=CLASS,
        arrival=sent - wait,
        sent=sent - wait,
        ending=Ending.FAILED if failed else Ending.COMPLETED,
        reason=((str(error).strip().splitlines() or ["error"])[-1][:120] if error else "no token") if failed else "",
        frames=() if failed else _spread(times, tokens),
        ended=max(sent + latency, sent if failed else times[-1]),
        input_tokens=whole_number(place, f"input_lens[{n}]", lists["input_lens"][n], 0, MAXIMUM_COUNT)
        if "input_lens" in lists
        else None,
        output=hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        if isinstance(text, str) and text
        else "",
    )


def _spread(times: list[int], tokens: int) -> tuple[Frame, ...]:
    """Return frames at `times` with `tokens` in all: as even as they can be, since only the sum is known."""
    each, more = divmod(max(tokens, len(times)), len(times))
    return tuple((time, each + (n < more)) for n, time in enumerate(times))


def _aiperf(path: Path) -> Run:
    lines = [(place, json_object(place, text)) for place, text in read_lines(path)]
    places = [(place, line, _object(place, line, "metadata")) for place, line in lines]
    kept = [(p, line, meta) for p, line, meta in places if meta.get("benchmark_phase", "profiling") == "profiling"]
    starts = [_nanoseconds(place, meta, "request_start_ns") for place, _, meta in kept]
    origin = min(starts, default=0)
    records = tuple(_aiperf_record(place, line, meta, origin) for place, line, meta in kept)
    if len({(r.tenant, r.request) for r in records}) != len(records):
        kept[0][0].fail("two records have one session_num and turn_index; pair them by another run", "metadata")
    return Run(
        path.name,
        records,
        ended=max((record.ended or 0 for record in records), default=0),
        offered=len(records),
        remarks=(
            f"{len(places) - len(kept)} records of other phases than profiling were left out",
            "the clock starts when the generator started the request: it writes no intended arrival",
        ),
    )


def _aiperf_record(place: Place, line: dict[str, object], meta: dict[str, object], origin: int) -> RequestRecord:
    metrics = line.get("metrics")
    metrics = metrics if isinstance(metrics, dict) else {}
    error = line.get("error")
    began = _nanoseconds(place, meta, "request_start_ns") - origin
    ended = max(began, _nanoseconds(place, meta, "request_end_ns") - origin)
    frames: tuple[Frame, ...] = ()
    tokens = _metric(place, metrics, "output_sequence_length", _count)
    if first := _metric(place, metrics, "time_to_first_token", _time):
        times = [began + first[0]]
        for gap in _metric(place, metrics, "inter_chunk_latency", _time):
            times.append(times[-1] + gap)
        frames = _spread(times, tokens[0] if tokens else len(times))
    elif tokens:
        frames = ((ended, tokens[0]),)  # not streamed: everything came at the end
    ending, reason = _aiperf_ending(error, meta, bool(frames))
    prompt = _metric(place, metrics, "input_sequence_length", _count)
    return RequestRecord(
        request=f"{meta.get('session_num', place.line)}/{meta.get('turn_index', 0)}",
        tenant=TENANT,
        class_name=CLASS,
        arrival=began,
        ending=ending,
        reason=reason,
        sent=began,
        frames=frames,
        ended=max([ended, *(time for time, _ in frames)]),
        input_tokens=prompt[0] if prompt else None,
    )


def _aiperf_ending(error: object, meta: dict[str, object], has_tokens: bool) -> tuple[Ending, str]:
    if meta.get("was_cancelled") is True:
        return Ending.CANCELLED, "cancelled by the generator on purpose"
    if isinstance(error, dict):
        return Ending.FAILED, f"{error.get('code', '')} {error.get('type', '')}".strip() or "error"
    return (Ending.COMPLETED, "") if has_tokens else (Ending.FAILED, "no token")


Reading = Callable[[Place, str, object, str], int]


def _metric(place: Place, metrics: dict[str, object], name: str, read: Reading) -> list[int]:
    """Return the values of a metric; empty where it is missing."""
    metric = metrics.get(name)
    if metric is None:
        return []
    if not isinstance(metric, dict) or "value" not in metric:
        place.fail(f"expected a value with a unit, found {shown(metric)}", f"metrics.{name}")
    value, unit = metric["value"], str(metric.get("unit", ""))
    values = value if isinstance(value, list) else [value]
    return [read(place, f"metrics.{name}", each, unit) for each in values]


def _time(place: Place, field: str, value: object, unit: str) -> int:
    if unit not in _PER_MICROSECOND:
        place.fail(f"the unit {shown(unit)} is not known; it is one of {', '.join(_PER_MICROSECOND)}", field)
    if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
        place.fail(f"expected a time, found {shown(value)}", field)
    scale = _PER_MICROSECOND[unit]
    if not 0 <= value <= MAXIMUM_MICROSECONDS / scale:
        place.fail(f"{shown(value)} {unit} is outside 0 to {MAXIMUM_MICROSECONDS} microseconds", field)
    return round(value * scale)


def _count(place: Place, field: str, value: object, _: str) -> int:
    # Larger fractions are not made integers: one of a few characters may have a milliard digits.
    small = isinstance(value, Decimal) and 0 <= value <= MAXIMUM_COUNT
    return whole_number(place, field, int(value) if small else value, 0, MAXIMUM_COUNT)  # type: ignore[call-overload]


def _nanoseconds(place: Place, meta: dict[str, object], field: str) -> int:
    within = Place(place.path, place.line, "metadata.")
    return whole_number(within, field, required(within, meta, field), 0, 2**63) // 1000


def _seconds(place: Place, field: str, value: object) -> int:
    return microseconds(place, field, value, MICROSECONDS_PER_SECOND)


def _object(place: Place, line: dict[str, object], field: str) -> dict[str, object]:
    value = required(place, line, field)
    if not isinstance(value, dict):
        place.fail(f"expected an object, found {shown(value)}", field)
    return value


def _list(place: Place, line: dict[str, object], field: str) -> list[object]:
    if field not in line:
        place.fail("missing; run `vllm bench serve` with --save-result --save-detailed", field)
    value = line[field]
    if not isinstance(value, list):
        place.fail(f"expected a list, found {shown(value)}", field)
    return value
