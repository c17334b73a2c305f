"""Rows of `kvescrow bench decode`, from rates that were measured elsewhere: this knows no decoder."""

from collections.abc import Mapping, Sequence

from kvescrow.checks.bench.report import BenchReport, BenchRow, machine

UNIT = "tokens/s of processor time"

Rates = Mapping[tuple[str, str, int], float]
"""Tokens a second by (what, engine, batch size)."""


def report(
    rates: Rates, batches: Sequence[int], *, context: int, prefill: int, floor: float, about: str
) -> BenchReport:
    """Fast beside transformers where it is installed, exact beside fast, fast with evidence beside fast without.

    One token at a time stands beside `floor` too, the rate at which the weights alone could be read. `about` names
    model, type and device.
    """
    rows = []
    for size in batches:
        decode = {
            engine: rates["decode", engine, size] for what, engine, batch in rates if (what, batch) == ("decode", size)
        }
        name = f"decode, batch {size}, context {context}"
        rows += [
            BenchRow(f"{name}, fast", decode["fast"], decode.get("transformers"), "transformers generate", UNIT),
            BenchRow(f"{name}, exact", decode["exact"], decode["fast"], "fast", UNIT),
            BenchRow(
                f"{name}, evidence on",
                decode["fast with evidence"],
                decode["fast without evidence"],
                "evidence off",
                UNIT,
            ),
        ]
    if 1 in batches:
        rows.append(BenchRow("decode, batch 1, fast", rates["decode", "fast", 1], floor, "reading the weights", UNIT))
    fast, exact = (rates["prefill", engine, 1] for engine in ("fast", "exact"))
    theirs = rates.get(("prefill", "transformers", 1))
    rows += [
        BenchRow(f"prefill of {prefill}, fast", fast, theirs, "transformers", UNIT),
        BenchRow(f"prefill of {prefill}, exact", exact, fast, "fast", UNIT),
    ]
    return BenchReport({**machine(), "decoder": about}, tuple(rows))
