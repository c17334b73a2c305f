"""Build every kernel for a device that is not here: `python -m kvescrow.gpu_harness.kernels`.

Needs triton, which brings its own assembler, and no device. Exit status 0: all were built; 1: one was not; 3: not run.
"""

import argparse
import json
import os
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from kvescrow.gpu_harness.conform.platform import TORCH_DTYPES
from kvescrow.gpu_harness.files import refuse_unwritable_file
from kvescrow.gpu_harness.model import SHAPES, named_shape
from kvescrow.spec.vocabulary import UserError

if TYPE_CHECKING:
    from kvescrow.gpu_harness.kernels.compilation import Built

CAPABILITIES = (80, 86, 89, 90)
"""Of devices with bfloat16 that triton's plain assembler knows. For others LLVM or that ends without saying why."""


def main(arguments: list[str]) -> int:
    """Parse, build, print, write. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="kvescrow.gpu_harness.kernels", description=__doc__)
    parser.add_argument("--shapes", default=",".join(SHAPES), help="named shapes of models, separated by commas")
    parser.add_argument("--dtypes", default=",".join(TORCH_DTYPES), help="types, separated by commas")
    parser.add_argument("--capability", type=int, default=90, help="of the device: 90 for an H100 or H200")
    parser.add_argument("--json", type=Path, help="a file for the result")
    options = parser.parse_args(arguments)
    try:
        shapes = [named_shape(name) for name in options.shapes.split(",")]
        if options.capability not in CAPABILITIES:
            known = ", ".join(map(str, CAPABILITIES))
            raise UserError(f"capability: {options.capability} is not known; choose from {known}")
        if options.json is not None:
            refuse_unwritable_file(options.json)
        if odd := set(options.dtypes.split(",")) - set(TORCH_DTYPES):
            unknown = ", ".join(map(repr, sorted(odd)))
            raise UserError(f"dtypes: {unknown} is not known; choose from {', '.join(TORCH_DTYPES)}")
    except UserError as mistake:
        print(f"kernels: {mistake}", file=sys.stderr)
        return 2
    if find_spec("triton") is None:
        print("kernels: not_run: triton is not installed (make kernels)")
        return 3
    os.environ.pop("TRITON_INTERPRET", None)  # what is interpreted cannot be built
    from kvescrow.gpu_harness.kernels.compilation import checked, versions

    began = time.monotonic()
    results = checked(shapes, [TORCH_DTYPES[name] for name in options.dtypes.split(",")], _show, options.capability)
    failed = [each for each in results if each.error]
    verdict = "failed" if failed else "passed"
    if options.json is not None:
        record = {"verdict": verdict, "capability": options.capability, **versions()}
        record["kernels"] = [attrs.asdict(each) for each in results]
        options.json.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    spilled = sum(each.spilled > 0 for each in results)
    print(
        f"kernels: {verdict}: {len(results) - len(failed)} of {len(results)} built for sm_{options.capability} "
        f"in {time.monotonic() - began:.0f} s, {spilled} of them with spilled registers"
    )
    return 1 if failed else 0


def _show(each: "Built") -> None:
    if each.error:
        print(f"{each.name}\n  NOT BUILT: {each.error}", flush=True)
        return
    spilled = f", {each.spilled} bytes spilled" if each.spilled else ""
    cores = ", tensor cores" if each.tensor_cores else ""
    shared = f"{each.shared / 1024:.1f} KiB shared"
    print(f"{each.name}\n  {each.registers} registers{spilled}, {shared}{cores}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
