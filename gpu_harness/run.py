"""A conformance run, or sabotaged ones, from a bare checkout: needs torch and attrs, and nothing installed.

python gpu_harness/run.py --device cuda --shape small --out results
python gpu_harness/run.py --device cuda --sabotage all --out results
python gpu_harness/run.py --device cuda --everything --out results
"""

import argparse
import runpy
import sys
from pathlib import Path

if not __package__:
    runpy.run_path(str(Path(__file__).with_name("checkout.py")))["enable"]()

from kvescrow.gpu_harness.everything import SECONDS, everything
from kvescrow.gpu_harness.files import refuse_unwritable, write
from kvescrow.gpu_harness.front import Asked, run
from kvescrow.gpu_harness.options import OPTIONS
from kvescrow.gpu_harness.results import status_of
from kvescrow.spec.vocabulary import UserError


def main(arguments: list[str]) -> int:
    """Parse, run, print, write. Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for option in OPTIONS:
        if option.kind is bool:
            parser.add_argument(option.flag, action="store_true", help=option.help)
        else:
            parser.add_argument(option.flag, type=option.kind, default=option.default, help=option.help)
    parser.add_argument("--out", type=Path, help="folder for the result; made where it is missing")
    parser.add_argument(
        "--everything",
        action="store_true",
        help="the recipes, runs in both types, all sabotages, and steps beside the speed of memory",
    )
    parser.add_argument(
        "--seconds", type=int, help=f"with --everything: no part begins after so many seconds, {SECONDS} where left out"
    )
    options = vars(parser.parse_args(arguments))
    folder: Path | None = options.pop("out")
    seconds: int | None = options.pop("seconds")
    is_everything: bool = options.pop("everything")
    asked = Asked(**options)
    try:
        refuse_unwritable(folder)
        if is_everything:
            return everything(asked, folder, SECONDS if seconds is None else seconds)
        if seconds is not None:
            raise UserError("seconds: only --everything has parts that are begun in time; leave it out")
        report = run(asked)
        what = "conform" if asked.sabotage is None else f"sabotage-{asked.sabotage}"
        write(folder, f"{what}.{asked.shape}.{asked.dtype}.json", report.json)
    except UserError as mistake:
        print(f"run: {mistake}", file=sys.stderr)
        return 2
    print(report.summary, flush=True)
    return status_of(report.json["verdict"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
