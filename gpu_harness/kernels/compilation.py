"""Every kernel, built for a device that is not in this machine: what compiles here is what runs there.

A specialisation is a kernel with its types and constants. They are derived from the shapes of models, so none is
forgotten that a named shape needs.
"""

import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import triton
from attrs import frozen
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from kvescrow.gpu_harness.arithmetic import KERNELS
from kvescrow.gpu_harness.kernels import fast_kernels
from kvescrow.gpu_harness.kernels.attention import BLOCK, SPLIT, attend_splits, join_splits, query_rows
from kvescrow.gpu_harness.kernels.contiguous import attend_contiguous
from kvescrow.gpu_harness.kernels.gates import wait_for_host
from kvescrow.gpu_harness.kernels.looks import PAGES_A_PROGRAM, look_at_pages
from kvescrow.gpu_harness.kernels.products import BLOCK_K, STAGES, TILE_COLUMNS, TILE_ROWS, multiply_tiles
from kvescrow.gpu_harness.kernels.rows import GATE_LANES, gate_rows, normalise_rows, turn_rows
from kvescrow.gpu_harness.kernels.stamps import DESCRIPTOR_ARGUMENTS
from kvescrow.gpu_harness.kernels.writes import write_rows
from kvescrow.gpu_harness.model import ModelShape
from kvescrow.gpu_harness.pages import PAGE_LENGTH

COMPUTE_CAPABILITY = 90
"""Of an H100 and an H200."""
WARP = 32

_MODEL = {torch.float32: "*fp32", torch.bfloat16: "*bf16"}
_BITS = {torch.float32: "*i32", torch.bfloat16: "*i16"}
_OTHERS = {
    "evidence": "*i32",
    "flag": "*i32",
    "limit": "i64",
    "tops": "*fp32",
    "totals": "*fp32",
    "outputs": "*fp32",
    "is_written": "*i1",
    "scale": "fp32",
    "eps": "fp32",
    "turns": "*fp32",
    "layer_words": "i64",
    **dict.fromkeys(("splits", "begin", "count", "capacity", "rows", "columns", "words", "stride"), "i32"),
}
_OF_THE_MODEL = frozenset(
    {"projected", "gate_up", "query", "pages", "attended", "cache", "result", "x", "weight", "key", "value"}
)
"""Operands in the type of the model; every other one that is not among the above is a descriptor of int64."""


@frozen
class Specialisation:
    """One kernel with the types of its operands and its constants."""

    kernel: Any
    dtype: torch.dtype
    constants: Mapping[str, int | bool]
    stages: int = 3
    warps: int = 4

    @property
    def name(self) -> str:
        """Kernel, type and constants, as text."""
        values = ", ".join(f"{name.lower()} {int(value)}" for name, value in self.constants.items())
        return f"{self.kernel.__name__} {str(self.dtype).removeprefix('torch.')}: {values}"

    def source(self) -> Any:
        """What the compiler is given."""
        names = self.kernel.arg_names
        aligned = [["tt.divisibility", 16]]
        attributes = {
            (place,): aligned
            for place, name in enumerate(names)
            if name not in self.constants and name not in DESCRIPTOR_ARGUMENTS and self._type(name).startswith("*")
        }
        signature = {name: "constexpr" if name in self.constants else self._type(name) for name in names}
        return ASTSource(self.kernel, signature, constexprs=dict(self.constants), attrs=attributes)

    def _type(self, name: str) -> str:
        if name in _OF_THE_MODEL:
            return _MODEL[self.dtype]
        return _BITS[self.dtype] if name in ("bits", "poison") else _OTHERS.get(name, "*i64")


@frozen
class Built:
    """What came of one specialisation: registers and spilled bytes of a thread, bytes of shared memory of a program."""

    name: str
    seconds: float
    registers: int
    spilled: int
    shared: int
    tensor_cores: bool
    error: str = ""


def specialisations(shapes: Sequence[ModelShape], dtypes: Sequence[torch.dtype]) -> list[Specialisation]:
    """All that models of these shapes and types need, each once."""
    every = [each for shape in shapes for dtype in dtypes for each in _of_shape(shape, dtype)]
    gates = [Specialisation(wait_for_host, torch.int32, {}, warps=1)]
    return list({each.name: each for each in every + gates}.values())


def _of_shape(shape: ModelShape, dtype: torch.dtype) -> Iterator[Specialisation]:
    heads = {"KV_HEADS": shape.kv_heads, "GROUP": shape.group, "HEAD": shape.head_size}
    for recipe in (KERNELS, fast_kernels(dtype)):
        size = recipe.query_tile or 1
        tile = {**heads, "ROWS": query_rows(shape.group, size), "SPLIT": SPLIT}
        for watched in (True, False):
            blocks = {"BLOCK": BLOCK, "PAGE": PAGE_LENGTH, "IS_WATCHED": watched}
            yield Specialisation(attend_splits, dtype, {**tile, **blocks})
        yield Specialisation(join_splits, dtype, tile)
    size = KERNELS.query_tile or 1
    rows = {"ROWS": query_rows(shape.group, size), "TILE": size, "SPLIT": SPLIT, "BLOCK": BLOCK}
    yield Specialisation(attend_contiguous, dtype, {**heads, **rows})
    width = shape.kv_width
    for watched in (True, False):
        lanes = {"WIDTH": width, "LANES": triton.next_power_of_2(width), "PAGE": PAGE_LENGTH, "IS_WATCHED": watched}
        yield Specialisation(write_rows, dtype, lanes)
    for before in (True, False):
        page = {"SLOT": width, "PAGE": PAGE_LENGTH, "PAGES": PAGES_A_PROGRAM, "IS_BEFORE": before}
        yield Specialisation(look_at_pages, dtype, page)
    for columns in (shape.hidden, shape.query_width, shape.feed_forward):
        tiles = {"TILE_ROWS": TILE_ROWS, "TILE_COLUMNS": TILE_COLUMNS, "BLOCK_K": BLOCK_K[dtype]}
        yield Specialisation(multiply_tiles, dtype, {"WIDTH": columns, **tiles}, STAGES)
    yield from _of_rows(shape, dtype)


def _of_rows(shape: ModelShape, dtype: torch.dtype) -> Iterator[Specialisation]:
    width = {"WIDTH": shape.hidden, "LANES": triton.next_power_of_2(shape.hidden)}
    yield Specialisation(normalise_rows, dtype, width)
    heads = {"HEADS": shape.heads, "KV_HEADS": shape.kv_heads, "HEAD": shape.head_size}
    yield Specialisation(turn_rows, dtype, heads, warps=1)
    yield Specialisation(gate_rows, dtype, {"WIDTH": shape.feed_forward, "LANES": GATE_LANES})


def built(each: Specialisation, capability: int = COMPUTE_CAPABILITY) -> Built:
    """Compile one for devices of `capability`, to the machine code itself; an error is part of the answer."""
    began = time.monotonic()
    try:
        compiled = triton.compile(
            each.source(),
            target=GPUTarget("cuda", capability, WARP),
            options={"num_stages": each.stages, "num_warps": each.warps},
        )
    except Exception as error:  # a compiler raises whatever it likes, and the others are still to be built
        return Built(each.name, time.monotonic() - began, 0, 0, 0, False, f"{type(error).__name__}: {error}")
    ptx: str = compiled.asm["ptx"]
    registers, spilled = _assembled(ptx)
    tensor_cores = "mma.sync" in ptx or "wgmma" in ptx
    seconds = time.monotonic() - began
    return Built(each.name, seconds, registers, spilled, int(compiled.metadata.shared), tensor_cores)


def _assembled(ptx: str) -> tuple[int, int]:
    """Registers and bytes of spilled registers of a thread, as the assembler that triton brings tells them."""
    target = re.search(r"^\.target (\w+)", ptx, re.MULTILINE)
    assert target is not None
    assembler = Path(triton.__file__).with_name("backends") / "nvidia" / "bin" / "ptxas"
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.ptx"
        source.write_text(ptx, encoding="utf-8")
        command: list[str | Path] = [assembler, "-v", f"-arch={target[1]}", source, "-o", os.devnull]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    spilled = sum(map(int, re.findall(r"(\d+) bytes spill", said)))
    return max(map(int, re.findall(r"Used (\d+) registers", said))), spilled


def checked(
    shapes: Sequence[ModelShape],
    dtypes: Sequence[torch.dtype],
    show: Callable[[Built], None],
    capability: int = COMPUTE_CAPABILITY,
) -> list[Built]:
    """Build all that models of these shapes and types need, and show each as it is done."""
    results = []
    for each in specialisations(shapes, dtypes):
        results.append(built(each, capability))
        show(results[-1])
    return results


def versions() -> dict[str, str]:
    """What built it."""
    return {"triton": str(triton.__version__), "torch": torch.__version__}
