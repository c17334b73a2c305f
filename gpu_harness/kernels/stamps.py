"""The check of a page's stamps inside a kernel, by the program that has just read the page or is about to write it."""

import triton
import triton.language as tl

from kvescrow.gpu_harness.pages import SHARED_OWNER

KINDS = 7
"""Counters of a listing in the evidence, in the order of `inspection.LISTING_KINDS`."""

DESCRIPTOR_ARGUMENTS = (
    "stamps",
    "block_table",
    "expected",
    "is_written",
    "filled",
    "ticket",
    "first_rows",
    "lengths",
    "starts",
    "listings",
    "write_pages",
    "write_slots",
    "evidence",
    "found",
)
"""Arguments that are parts of a descriptor, at any of its words: one kernel serves every alignment."""

_KINDS = tl.constexpr(KINDS)
_SHARED_OWNER = tl.constexpr(SHARED_OWNER)


@triton.jit
def count_wrong_stamps(
    stamps: tl.tensor,
    expected: tl.tensor,
    evidence: tl.tensor,
    found: tl.tensor,
    page: tl.tensor,
    place: tl.tensor,
    is_listed: tl.tensor,
    is_written: tl.tensor,
) -> None:
    """Compare the stamps of `page` [n] with what the step expects of its listing `place` [n]; count what differs.

    stamps [pages, 4] and expected [listings, 4] int64: generation, owner, scope, index. evidence [listings, KINDS]
    int32; found [listings, 4] takes the stamps that are wrong. The loads are volatile: another stream may be writing.
    """
    own = stamps + page * 4
    wanted = expected + place * 4
    generation = tl.load(own, mask=is_listed, other=0, volatile=True)
    owner = tl.load(own + 1, mask=is_listed, other=0, volatile=True)
    scope = tl.load(own + 2, mask=is_listed, other=0, volatile=True)
    index = tl.load(own + 3, mask=is_listed, other=0, volatile=True)
    other_generation = is_listed & (generation != tl.load(wanted, mask=is_listed, other=0))
    other_owner = is_listed & (owner != tl.load(wanted + 1, mask=is_listed, other=0))
    other_scope = is_listed & (scope != tl.load(wanted + 2, mask=is_listed, other=0))
    other_index = is_listed & (index != tl.load(wanted + 3, mask=is_listed, other=0))
    is_shared = owner == _SHARED_OWNER
    foreign = other_owner & (owner != _SHARED_OWNER)
    written = other_owner & is_shared & is_written
    one = tl.full(page.shape, 1, tl.int32)
    counters = evidence + place * _KINDS
    tl.atomic_add(counters, one, mask=other_generation, sem="relaxed")
    tl.atomic_add(counters + 1, one, mask=foreign, sem="relaxed")
    tl.atomic_add(counters + 2, one, mask=other_scope, sem="relaxed")
    tl.atomic_add(counters + 3, one, mask=other_index, sem="relaxed")
    tl.atomic_add(counters + 4, one, mask=written, sem="relaxed")
    is_wrong = other_generation | foreign | other_scope | other_index | written
    tl.store(found + place * 4, generation, mask=is_wrong)
    tl.store(found + place * 4 + 1, owner, mask=is_wrong)
    tl.store(found + place * 4 + 2, scope, mask=is_wrong)
    tl.store(found + place * 4 + 3, index, mask=is_wrong)
