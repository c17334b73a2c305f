"""A kernel that waits for the host, with which a gate holds a stream back.

It is bounded by the device's own clock: should the host wait for the device meanwhile, as it does where a kernel is
loaded or memory is given back, the window is lost and nothing hangs.
"""

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import globaltimer


@triton.jit(do_not_specialize=["limit"])
def wait_for_host(flag: tl.tensor, limit: tl.tensor) -> None:
    """Return when the host has set `flag` [1], or after `limit` nanoseconds. Grid (1,)."""
    begin = globaltimer()
    waits = tl.load(flag, volatile=True) == 0
    while waits:
        waits = (tl.load(flag, volatile=True) == 0) & (globaltimer() - begin < limit)


def hold(flag: torch.Tensor, microseconds: int) -> None:
    """Launch the kernel on the current stream; `flag` [1] int32 is pinned memory of the host, and 0."""
    wait_for_host[(1,)](flag, 1_000 * microseconds, num_warps=1)
