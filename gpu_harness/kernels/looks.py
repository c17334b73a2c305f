"""The look at every listed page before the model reads and after it has written, by one small kernel."""

import triton
import triton.language as tl

from kvescrow.gpu_harness.inspection import CANARY_STRIDE, Counters, words_of_token
from kvescrow.gpu_harness.kernels.stamps import DESCRIPTOR_ARGUMENTS, KINDS, count_wrong_stamps
from kvescrow.gpu_harness.pages import PAGE_LENGTH, PagedMemory
from kvescrow.gpu_harness.plan import StepPlan

PAGES_A_PROGRAM = 16

_KINDS = tl.constexpr(KINDS)


@triton.jit(do_not_specialize=["count"], do_not_specialize_on_alignment=DESCRIPTOR_ARGUMENTS)
def look_at_pages(
    bits: tl.tensor,
    poison: tl.tensor,
    stamps: tl.tensor,
    block_table: tl.tensor,
    expected: tl.tensor,
    is_written: tl.tensor,
    filled: tl.tensor,
    ticket: tl.tensor,
    evidence: tl.tensor,
    found: tl.tensor,
    count: tl.tensor,
    layer_words: tl.tensor,
    words: tl.tensor,
    stride: tl.tensor,
    SLOT: tl.constexpr,
    PAGE: tl.constexpr,
    PAGES: tl.constexpr,
    IS_BEFORE: tl.constexpr,
) -> None:
    """Stamps of listed pages and, before the model reads, one word of every token slot against the page's poison.

    Grid (count / PAGES,). bits: the pool as integers, SLOT words a token slot, `layer_words` a layer. ticket [1] and
    `stride` choose one of the `words` that a token has, as `inspection.canary_word` does. filled [count]: slots that
    must hold tokens, the others must hold poison.
    """
    place = tl.program_id(0) * PAGES + tl.arange(0, PAGES)
    is_listed = place < count
    page = tl.load(block_table + place, mask=is_listed, other=0)
    writes = tl.load(is_written + place, mask=is_listed, other=0) != 0
    count_wrong_stamps(stamps, expected, evidence, found, page, place, is_listed, writes)
    if IS_BEFORE:
        slot = tl.arange(0, PAGE)
        word = tl.load(ticket) * stride % words
        own = word // (2 * SLOT) * layer_words + word // SLOT % 2 * (PAGE * SLOT) + word % SLOT
        address = own + page[:, None] * (2 * PAGE * SLOT) + slot[None, :] * SLOT
        seen = tl.load(bits + address, mask=is_listed[:, None], other=0)
        is_poison = seen == tl.load(poison + page, mask=is_listed, other=0)[:, None]
        holds_token = slot[None, :] < tl.load(filled + place, mask=is_listed, other=0)[:, None]
        broken = tl.sum(((is_poison | holds_token) == 0).to(tl.int32), 1)
        reclaimed = tl.sum((is_poison & holds_token).to(tl.int32), 1)
        one = tl.full([PAGES], 1, tl.int32)
        tl.atomic_add(evidence + place * _KINDS + 5, one, mask=is_listed & (broken > 0), sem="relaxed")
        tl.atomic_add(evidence + place * _KINDS + 6, one, mask=is_listed & (reclaimed > 0), sem="relaxed")


def look(memory: PagedMemory, plan: StepPlan, counters: Counters, *, is_before: bool) -> None:
    """Count in `counters` what is wrong with the pages that the step lists; one word of each slot, if `is_before`."""
    listing = plan.listing
    count = len(listing.pages)
    look_at_pages[(triton.cdiv(count, PAGES_A_PROGRAM),)](
        memory.bits,
        memory.poison,
        memory.stamps,
        listing.pages,
        listing.expected,
        listing.written,
        listing.filled,
        plan.ticket,
        counters.counts,
        counters.found,
        count,
        memory.bits.stride(0),
        words_of_token(memory.shape),
        CANARY_STRIDE,
        SLOT=memory.shape.kv_width,
        PAGE=PAGE_LENGTH,
        PAGES=PAGES_A_PROGRAM,
        IS_BEFORE=is_before,
    )
