"""Whether kernels of ours can be launched on a device at all."""

from functools import cache
from importlib.util import find_spec

import torch

WIDTH = 16
"""Of the row that is tried."""


@cache
def cannot_launch(device: torch.device) -> str:
    """Why a small kernel cannot be built and run on `device`: triton needs a C compiler and a driver that it knows.

    Empty where it can.
    """
    if find_spec("triton") is None:
        return "triton is not installed"
    from kvescrow.gpu_harness.kernels.rows import normalised

    ones = torch.ones(1, WIDTH, device=device)
    try:
        right = bool((normalised(ones, ones[0], 0.0) == 1).all())
    except Exception as failure:  # whatever triton raises: steps do without it
        return f"kernels cannot be launched: {type(failure).__name__}: {failure}"
    return "" if right else "kernels cannot be launched rightly: a norm of ones is not one"
