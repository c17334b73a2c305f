"""The figures of a replay as text for people."""

from collections.abc import Iterator, Mapping
from typing import Any

from kvescrow.checks.cli.output import columns

Figures = Mapping[str, Any]


def summary(result: Figures) -> str:
    """Return the table of a replay's result, as `kvescrow replay` prints it."""
    parts = [columns(list(_facts(result)))]
    if len(result["classes"]) > 1:
        parts.append(columns(list(_classes(result["classes"]))))
    parts.append(f"replay {result['trace']}: {result['verdict']} in {result['seconds']:.1f} s")
    return "\n".join(parts)


def _facts(result: Figures) -> Iterator[tuple[str, str]]:
    hit_rate, goodput, policy = result["hit_rate"], result["goodput"], result["policy"]
    yield "policy", f"{policy['reserved']}, {policy['order']}"
    yield "offered", str(result["offered"])
    yield "admitted", str(result["admitted"])
    yield "refused", _reasons(result["refused"])
    yield "expired", _reasons(result["expired"])
    if result["failed"]:
        yield "failed", _reasons(result["failed"])
    yield "cancelled (injected)", str(result["cancelled"])
    yield "completed", str(result["completed"])
    yield "goodput", f"{_share(goodput['share'])} of those offered, {goodput['per_second']:.2f} a second"
    yield "utilisation", f"{result['utilisation']:.1%} mean, {result['peak_utilisation']:.1%} peak"
    yield "queue wait", _quantiles(result["queue_wait"])
    yield "first token", _quantiles(result["first_token"])
    yield "token gap", _quantiles(result["token_gap"], "ms")
    yield "prefix hit rate", "no prompt looked up" if hit_rate is None else f"{hit_rate:.1%} of prompt tokens"
    yield (
        "memory",
        (
            f"{result['preemptions']} preemptions, {result['denials']} growths denied, {result['deferrals']} deferred, "
            f"{result['broken_promises']} broken promises"
        ),
    )
    if result["under_reserving"]:
        yield "reserve too little", ", ".join(result["under_reserving"])
    yield from _fairness(result["fairness"])
    yield "virtual span", _seconds(result["virtual_span"])
    yield "journal", f"{result['events']} events, {len(result['rows'])} rows fired"


def _fairness(fairness: Figures | None) -> Iterator[tuple[str, str]]:
    if fairness is None:
        return
    for level in ("classes", "tenants"):
        pair = fairness[level]
        if pair is not None:
            names = " and ".join(pair["parties"])
            yield f"fairness of {level}", f"{names}: gap {pair['gap']:.0f}, bound {pair['bound']:.0f}"
    for name, tokens in fairness["shortfall"].items():
        verdict = "kept" if tokens <= fairness["largest"] else "NOT kept"
        yield f"share of {name}", f"{verdict}: at most {tokens:.0f} tokens below, largest request {fairness['largest']}"


def _classes(classes: Figures) -> Iterator[tuple[str, ...]]:
    yield "class", "share", "offered", "completed", "expired", "refused", "attainment", "wait p99", "first token p99"
    for name, each in classes.items():
        counts = (str(each[key]) for key in ("offered", "completed", "expired", "refused"))
        last = (_p99(each["queue_wait"]), _p99(each["first_token"]))
        yield name, f"{each['share']:.0%}", *counts, _share(each["attainment"]), *last


def _share(value: float | None) -> str:
    return "no data" if value is None else f"{value:.1%}"


def _p99(found: Figures) -> str:
    return "none" if found["p99"] is None else _seconds(found["p99"])


def _seconds(microseconds: float) -> str:
    return f"{microseconds / 1e6:.2f} s"


def _quantiles(found: Figures, unit: str = "s") -> str:
    factor = 1e6 if unit == "s" else 1e3
    shown = {name: value for name, value in found.items() if name != "count" and value is not None}
    return ", ".join(f"{name} {value / factor:.2f} {unit}" for name, value in shown.items()) or "none"


def _reasons(found: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in found.items()) or "0"
