"""A conformance run, or sabotaged ones, from a bare checkout: needs torch and attrs, and nothing installed.

python gpu_harness/run.py --device cuda --shape small --out results
python gpu_harness/run.py --device cuda --sabotage all --out results
python gpu_harness/run.py --device cuda --everything --out results
"""

import argparse
import json
import runpy
import sys
from collections.abc import Mapping
from pathlib import Path

if not __package__:
    runpy.run_path(str(Path(__file__).with_name("checkout.py")))["enable"]()

from kvescrow.gpu_harness.front import AUTO, NOT_RUN, Asked, run
from kvescrow.gpu_harness.model import SHAPES
from kvescrow.gpu_harness.sabotage import ALL, CAUGHT, SABOTAGES
from kvescrow.gpu_harness.throughput import Asked as Rates
from kvescrow.gpu_harness.throughput import measured
from kvescrow.spec.vocabulary import UserError

STATUS = {"passed": 0, CAUGHT: 0, NOT_RUN: 3}
"""Exit status by verdict; 1 for every other one, 2 for a user's mistake."""
BATCHES, CONTEXT, STEPS, PREFILL, ROUNDS = (1, 8, 32), 128, 8, 512, 5
"""Sizes of the rates in `--everything`."""


def main(arguments: list[str]) -> int:
    """Parse, run, print, write. Returns the exit status."""
    defaults = Asked()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default=AUTO, help="auto, cpu, cuda or cuda:N")
    parser.add_argument("--sabotage", help=", ".join([*SABOTAGES, ALL]))
    parser.add_argument("--requests", type=int, help="requests of the trace")
    parser.add_argument("--seed", type=int, default=defaults.seed, help="of weights, tokens and cancels")
    parser.add_argument("--seeds", type=int, default=defaults.seeds, help="seeds for sabotages, from --seed on")
    parser.add_argument("--dtype", default=defaults.dtype, help="float32 or bfloat16")
    parser.add_argument("--shape", default=defaults.shape, help=", ".join(SHAPES))
    parser.add_argument("--trace", help="a packaged trace, or a file")
    parser.add_argument("--weights", default=defaults.weights, help="seeded, or smollm2")
    parser.add_argument("--mode", default=defaults.mode, help="exact or fast")
    parser.add_argument("--calm", action="store_true", help="no growth, no change of weights, no killed worker")
    parser.add_argument("--minutes", type=float, help="run after run for so long")
    parser.add_argument("--out", type=Path, help="folder for the result; made where it is missing")
    parser.add_argument(
        "--everything", action="store_true", help="a run, all sabotages on the tiny shape, and rates of --shape"
    )
    options = vars(parser.parse_args(arguments))
    folder: Path | None = options.pop("out")
    everything: bool = options.pop("everything")
    asked = Asked(**options)
    parts = [asked]
    if everything:
        parts.append(Asked(device=asked.device, dtype=asked.dtype, sabotage=ALL))
    try:
        statuses = [_reported(part, folder) for part in parts]
        if everything and all(status == 0 for status in statuses):
            _rates(asked, folder)
    except UserError as mistake:
        print(f"run: {mistake}", file=sys.stderr)
        return 2
    return max(statuses)


def _reported(asked: Asked, folder: Path | None) -> int:
    report = run(asked)
    what = "conform" if asked.sabotage is None else f"sabotage-{asked.sabotage}"
    _write(folder, f"{what}.{asked.shape}.{asked.dtype}.json", report.json)
    print(report.summary, flush=True)
    return STATUS.get(report.json["verdict"], 1)


def _rates(asked: Asked, folder: Path | None) -> None:
    device = asked.settings.device
    sizes = Rates(device, asked.weights, asked.shape, asked.dtype, BATCHES, CONTEXT, STEPS, PREFILL, ROUNDS)
    found = measured(sizes, lambda what: print(what, flush=True))
    _write(folder, f"decode.{asked.shape}.{asked.dtype}.json", found.to_json())
    for (what, engine, size), rate in found.rates.items():
        print(f"{what}, batch {size}, {engine}: {rate:,.0f} tokens/s")
    print(f"weights alone could be read {found.floor:,.0f} times a second")


def _write(folder: Path | None, name: str, values: Mapping[str, object]) -> None:
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise UserError(f"{folder}: {error.strerror}: name a folder that can be written") from error


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
