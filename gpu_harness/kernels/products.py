"""Products of activations and weights whose bits do not depend on the number of rows.

A library chooses its kernel by the sizes of a product. This one has one tile for all: a row is multiplied in blocks of
BLOCK_K columns, in order, wherever it stands and whatever stands beside it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import triton
import triton.language as tl
from torch.overrides import TorchFunctionMode

TILE_ROWS, TILE_COLUMNS = 64, 64
BLOCK_K = {torch.float32: 32, torch.bfloat16: 64}
"""Columns of one block, by dtype: 8 KiB of weights. Widths must be multiples of it."""
STAGES = 4
"""Blocks that are on their way from memory while one is multiplied."""


@triton.jit(do_not_specialize=["rows"])
def multiply_tiles(
    x: tl.tensor,
    weight: tl.tensor,
    result: tl.tensor,
    rows: tl.tensor,
    columns: tl.tensor,
    WIDTH: tl.constexpr,
    TILE_ROWS: tl.constexpr,
    TILE_COLUMNS: tl.constexpr,
    BLOCK_K: tl.constexpr,
) -> None:
    """One tile of x [rows, WIDTH] times weight [columns, WIDTH] transposed. Grid (row tiles, column tiles)."""
    # Row tiles come first, so that the programs that read the same weights run together.
    row = tl.program_id(0) * TILE_ROWS + tl.arange(0, TILE_ROWS)
    column = tl.program_id(1) * TILE_COLUMNS + tl.arange(0, TILE_COLUMNS)
    step = tl.arange(0, BLOCK_K)
    is_row, is_column = row < rows, column < columns
    left = x + row[:, None].to(tl.int64) * WIDTH + step[None, :]
    right = weight + column[None, :].to(tl.int64) * WIDTH + step[:, None]
    total = tl.zeros([TILE_ROWS, TILE_COLUMNS], tl.float32)
    for _ in range(0, WIDTH, BLOCK_K):
        a = tl.load(left, mask=is_row[:, None], other=0.0)
        b = tl.load(right, mask=is_column[None, :], other=0.0)
        total = tl.dot(a, b, acc=total, input_precision="ieee")
        left += BLOCK_K
        right += BLOCK_K
    place = row[:, None].to(tl.int64) * columns + column[None, :]
    tl.store(result + place, total.to(result.dtype.element_ty), mask=is_row[:, None] & is_column[None, :])


def product(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """x [rows, width] times weight [columns, width] transposed."""
    rows, width = x.shape
    columns = weight.shape[0]
    block = BLOCK_K[x.dtype]
    if width % block:
        raise ValueError(f"a product over {width} columns: the kernel needs a multiple of {block}")
    result = torch.empty(rows, columns, dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(rows, TILE_ROWS), triton.cdiv(columns, TILE_COLUMNS))
    multiply_tiles[grid](
        x.contiguous(),
        weight,
        result,
        rows,
        columns,
        WIDTH=width,
        TILE_ROWS=TILE_ROWS,
        TILE_COLUMNS=TILE_COLUMNS,
        BLOCK_K=block,
        num_stages=STAGES,
    )
    return result


class _Products(TorchFunctionMode):
    """Every `linear` of the model by the kernel above, whoever calls it."""

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, arguments: tuple[Any, ...] = (), options: Any = None
    ) -> Any:
        if function is torch.nn.functional.linear:
            return product(*arguments)
        return function(*arguments, **(options or {}))


@contextmanager
def fixed_products() -> Iterator[None]:
    """While this lasts, the thread's linear layers are products of fixed tiles."""
    with _Products():
        yield
