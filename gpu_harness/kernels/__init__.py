"""Triton kernels of the decoder on cuda: attention over the block table, the writes of keys and values, products.

Three rules hold in every kernel. The order of a sum depends on nothing but the row itself: tiles and splits have
fixed sizes in rows and tokens, and partial results are joined in order, so a row has the same bits whatever else is
in the batch, however its prompt was cut into chunks, and wherever its pages lie. A page is checked by the program
that reads or writes it, against the generation, owner, scope and logical index that the step was launched with, and
what is wrong is counted in memory that the step gives back (CON-2). Nothing beyond a context is loaded, so the poison
there cannot reach a sum.

`attention`, `writes`, `looks` and `products` are the kernels and what launches them; `contiguous` is the attention of
the independent decode, which knows no pages; `gates` hold a stream back. They import triton, which other parts of the
package never do. `compilation` builds every kernel for a device that is not here.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

import torch
from attrs import evolve

from kvescrow.gpu_harness.arithmetic import FAST, FAST_KERNELS, KERNELS, Recipe
from kvescrow.gpu_harness.device import Device
from kvescrow.gpu_harness.launching import cannot_launch
from kvescrow.gpu_harness.model import ModelShape, ModelWeights

HEAD_SIZES = (16, 32, 64, 128, 256)
"""Head sizes that a product on tensor cores can have as a side."""


def absent(shape: ModelShape, device: Device | None = None) -> str:
    """Why steps of `shape` cannot use the kernels here, or on `device` where one is given; empty where they can."""
    if find_spec("triton") is None:
        return "triton is not installed, which a build of torch for CUDA brings along"
    if shape.head_size not in HEAD_SIZES:
        return f"kernels have heads of {', '.join(map(str, HEAD_SIZES))}, and the model has heads of {shape.head_size}"
    return "" if device is None else cannot_launch(device.torch_device)


def fast_kernels(dtype: torch.dtype) -> Recipe:
    """What FAST is on cuda. Tiles of float32, multiplied without tensor cores, are as short as those of KERNELS: longer
    ones need more registers than there are.
    """
    return evolve(FAST_KERNELS, query_tile=KERNELS.query_tile) if dtype == torch.float32 else FAST_KERNELS


def on_device(recipe: Recipe, device: Device, weights: ModelWeights) -> Recipe:
    """`recipe`, or what FAST is on `device`: kernels, where they can be launched."""
    is_possible = recipe == FAST and device.is_cuda and not absent(weights.shape, device)
    return fast_kernels(weights.dtype) if is_possible else recipe


@contextmanager
def products_of(recipe: Recipe) -> Iterator[None]:
    """While this lasts, the thread's linear layers are what `recipe` says."""
    if not recipe.own_products:
        yield
        return
    from kvescrow.gpu_harness.kernels.products import fixed_products

    with fixed_products():
        yield
