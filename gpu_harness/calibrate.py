"""A calibration from a bare checkout: needs torch, scipy and attrs, and nothing installed.

python gpu_harness/calibrate.py --device cuda --shape llama-1b --dtype bfloat16 --out calibration.json
"""

import argparse
import json
import runpy
import sys
from pathlib import Path

if not __package__:
    runpy.run_path(str(Path(__file__).with_name("checkout.py")))["enable"]()

from kvescrow.gpu_harness.calibration.front import Asked, run
from kvescrow.gpu_harness.files import refuse_unwritable_file
from kvescrow.gpu_harness.front import AUTO, NOT_RUN
from kvescrow.gpu_harness.model import SHAPES
from kvescrow.spec.vocabulary import UserError


def main(arguments: list[str]) -> int:
    """Parse, run, print, write. Returns the exit status."""
    defaults = Asked()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default=AUTO, help="auto, cpu, cuda or cuda:N")
    parser.add_argument("--shape", default=defaults.shape, help=", ".join(SHAPES))
    parser.add_argument("--dtype", default=defaults.dtype, help="float32 or bfloat16")
    parser.add_argument("--seed", type=int, default=defaults.seed, help="of weights, tokens and sizes")
    parser.add_argument("--gap", type=int, help="token-gap budget in microseconds")
    parser.add_argument("--clock", default=defaults.clock, help="auto, wall or processor")
    parser.add_argument("--plot", type=Path, help="picture to write, .png or .svg")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    options = vars(parser.parse_args(arguments))
    out: Path | None = options.pop("out")
    try:
        if out is not None:
            refuse_unwritable_file(out)
        report = run(Asked(**options))
        if out is not None:
            _write(out, json.dumps(report.json, indent=2) + "\n")
    except UserError as mistake:
        print(f"calibrate: {mistake}", file=sys.stderr)
        return 2
    print(report.summary)
    return {"passed": 0, NOT_RUN: 3}.get(report.json["verdict"], 1)


def _write(out: Path, text: str) -> None:
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{out}: {error.strerror}: name a file that can be written") from error


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
