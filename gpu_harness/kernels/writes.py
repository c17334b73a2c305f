"""The write of a step's keys and values into their pages, each page checked by the program that writes it."""

import torch
import triton
import triton.language as tl

from kvescrow.gpu_harness.inspection import Counters
from kvescrow.gpu_harness.kernels.stamps import DESCRIPTOR_ARGUMENTS, count_wrong_stamps
from kvescrow.gpu_harness.pages import PAGE_LENGTH
from kvescrow.gpu_harness.plan import Listing, StepPlan


@triton.jit(do_not_specialize_on_alignment=DESCRIPTOR_ARGUMENTS)
def write_rows(
    key: tl.tensor,
    value: tl.tensor,
    pages: tl.tensor,
    stamps: tl.tensor,
    expected: tl.tensor,
    write_pages: tl.tensor,
    write_slots: tl.tensor,
    listings: tl.tensor,
    evidence: tl.tensor,
    found: tl.tensor,
    WIDTH: tl.constexpr,
    LANES: tl.constexpr,
    PAGE: tl.constexpr,
    IS_WATCHED: tl.constexpr,
) -> None:
    """Copy the key and the value of one row to its slot, and look whose page that is.

    Grid (rows,). key, value [rows, WIDTH]; pages is one layer of the pool; listings [rows]: the listing of the page
    that the row writes, -1 for a padding row. A wrong page is written all the same: what watches must not heal.
    """
    row = tl.program_id(0)
    page = tl.load(write_pages + row)
    slot = tl.load(write_slots + row)
    if IS_WATCHED:
        one = tl.arange(0, 1)
        listing = tl.load(listings + row) + one
        is_listed = listing >= 0
        count_wrong_stamps(stamps, expected, evidence, found, page + one, listing, is_listed, is_listed)
    lane = tl.arange(0, LANES)
    is_lane = lane < WIDTH
    target = pages + page * (2 * PAGE * WIDTH) + slot * WIDTH + lane
    tl.store(target, tl.load(key + row * WIDTH + lane, mask=is_lane), mask=is_lane)
    tl.store(target + PAGE * WIDTH, tl.load(value + row * WIDTH + lane, mask=is_lane), mask=is_lane)


def write(
    key: torch.Tensor,
    value: torch.Tensor,
    pages: torch.Tensor,
    stamps: torch.Tensor,
    plan: StepPlan,
    write_listings: torch.Tensor,
    counters: Counters | None,
) -> None:
    """Write `key` and `value` [rows, kv_heads, head_size] of every row of the step into one layer `pages`."""
    listing: Listing = plan.listing
    width = key.shape[1] * key.shape[2]
    evidence, found = (counters.counts, counters.found) if counters else (stamps, stamps)
    write_rows[(len(key),)](
        key,
        value,
        pages,
        stamps,
        listing.expected,
        plan.write_pages,
        plan.write_slots,
        write_listings,
        evidence,
        found,
        WIDTH=width,
        LANES=triton.next_power_of_2(width),
        PAGE=PAGE_LENGTH,
        IS_WATCHED=counters is not None,
    )
