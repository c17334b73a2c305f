"""What the kernels over the block table compute, and that its bits depend on nothing but the row (CON-2)."""

from __future__ import annotations

import random

import pytest
import torch
from attrs import frozen

from kvescrow.gpu_harness.arithmetic import KERNELS
from kvescrow.gpu_harness.inspection import Counters
from kvescrow.gpu_harness.pages import PAGE_LENGTH, PageClaim
from kvescrow.gpu_harness.plan import Segment, StepBatch, plan_step

pytest.importorskip("triton", reason="not_run: triton is not installed (make kernels)")

POSITIONS = 320
"""Two splits of a context, the second one short."""
PAGES, SCRATCH = 64, 64


@frozen
class Content:
    """Queries, keys and values of one request, each [tokens, heads or kv_heads, head_size]."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor

    def attended(self) -> torch.Tensor:
        """By torch, [tokens, heads, head_size]."""
        group = self.query.shape[1] // self.key.shape[1]
        key, value = (each.repeat_interleave(group, 1).transpose(0, 1) for each in (self.key, self.value))
        attend = torch.nn.functional.scaled_dot_product_attention
        return attend(self.query.transpose(0, 1), key, value, is_causal=True).transpose(0, 1)


def drawn(tokens: int, heads: int, kv_heads: int, size: int, seed: int) -> Content:
    generator = torch.Generator().manual_seed(seed)
    return Content(*(torch.randn(tokens, each, size, generator=generator) for each in (heads, kv_heads, kv_heads)))


class Pool:
    """One layer of pages full of NaN, in which requests are written and attended by kernels."""

    def __init__(self, content: Content) -> None:
        kv_heads, size = content.key.shape[1:]
        self.kv = torch.full((PAGES + 1, 2, PAGE_LENGTH, kv_heads, size), torch.nan)
        self.stamps = torch.full((PAGES + 1, 4), -2)

    def claims(self, request: int, tokens: int, pages: list[int]) -> tuple[PageClaim, ...]:
        """Pages of a request, stamped as its own."""
        own = pages[: -(-tokens // PAGE_LENGTH)]
        for index, page in enumerate(own):
            self.stamps[page] = torch.tensor([1, request, 0, index])
        return tuple(PageClaim(page, 1) for page in own)

    def step(self, *work: tuple[Segment, Content]) -> tuple[list[torch.Tensor], Counters]:
        """Write and attend the rows of each segment; the attended rows of each."""
        from kvescrow.gpu_harness.kernels.attention import attend
        from kvescrow.gpu_harness.kernels.writes import write

        segments = [segment for segment, _ in work]
        plan = plan_step(StepBatch(1, segments, SCRATCH), KERNELS, lambda host: host)
        assert plan.paged is not None
        padding = plan.rows - sum(segment.length for segment in segments)

        def rows(name: str) -> torch.Tensor:
            parts = [getattr(content, name)[segment.start : segment.end] for segment, content in work]
            return torch.cat([*parts, parts[0].new_zeros(padding, *parts[0].shape[1:])])

        counters = Counters.of(plan.listing)
        write(rows("key"), rows("value"), self.kv, self.stamps, plan, plan.paged.write_listings, counters)
        found = attend(rows("query"), self.kv, self.stamps, plan.paged, plan.listing, POSITIONS, counters)
        assert not found[plan.rows - padding :].any()
        return list(torch.split(found[: plan.rows - padding], [segment.length for segment in segments])), counters


def segment(request: int, start: int, length: int, claims: tuple[PageClaim, ...]) -> Segment:
    return Segment(request, 0, request, start, tuple(range(length)), claims)


@pytest.mark.parametrize(("heads", "kv_heads", "size"), [(4, 2, 16), (3, 1, 64), (2, 2, 32), (8, 1, 16)])
def test_attention_is_torch_s_whatever_the_ratio_of_heads(heads: int, kv_heads: int, size: int) -> None:
    content = drawn(40, heads, kv_heads, size, 1)
    pool = Pool(content)
    claims = pool.claims(5, 40, [9, 4, 30])
    (found,), counters = pool.step((segment(5, 0, 40, claims), content))
    torch.testing.assert_close(found, content.attended(), atol=2e-6, rtol=0)
    assert not counters.counts.any()


def test_a_long_context_of_several_splits_is_torch_s_too() -> None:
    content = drawn(300, 2, 1, 16, 2)
    pool = Pool(content)
    order = list(range(1, PAGES))
    random.Random(1).shuffle(order)
    claims = pool.claims(5, 300, order)
    pool.step((segment(5, 0, 296, claims), content))
    (found,), _ = pool.step((segment(5, 296, 4, claims), content))
    torch.testing.assert_close(found, content.attended()[296:], atol=2e-6, rtol=0)


def test_bits_depend_neither_on_the_batch_nor_on_chunks_nor_on_where_pages_lie() -> None:
    content, other = drawn(70, 4, 2, 16, 3), drawn(33, 4, 2, 16, 4)
    alone = Pool(content)
    claims = alone.claims(5, 70, [9, 4, 30, 2, 11])
    (whole,), _ = alone.step((segment(5, 0, 70, claims), content))

    shared = Pool(content)
    mine, theirs = shared.claims(5, 70, [40, 41, 7, 60, 3]), shared.claims(6, 33, [10, 12, 1])
    first, _ = shared.step((segment(6, 0, 33, theirs), other), (segment(5, 0, 7, mine), content))
    second, _ = shared.step((segment(5, 7, 62, mine), content))
    third, _ = shared.step((segment(5, 69, 1, mine), content), (segment(6, 32, 1, theirs), other))
    assert torch.equal(torch.cat([first[1], second[0], third[0]]), whole)
    assert torch.equal(first[0][32:], third[1])


def test_the_contiguous_kernel_has_the_same_bits() -> None:
    from kvescrow.gpu_harness.kernels.contiguous import attend_one_request

    content = drawn(270, 2, 1, 16, 5)
    pool = Pool(content)
    claims = pool.claims(5, 270, list(range(1, PAGES)))
    (paged,), _ = pool.step((segment(5, 0, 270, claims), content))
    cache = torch.zeros(2, 1, POSITIONS, 16)
    cache[0, :, :270], cache[1, :, :270] = content.key.transpose(0, 1), content.value.transpose(0, 1)
    last = attend_one_request(content.query[261:].transpose(0, 1), cache, 261, KERNELS.query_tile or 1)
    assert torch.equal(last.transpose(0, 1), paged[261:])


def test_a_product_has_the_bits_of_its_row_alone() -> None:
    from kvescrow.gpu_harness.kernels.products import fixed_products

    generator = torch.Generator().manual_seed(6)
    x, weight = torch.randn(70, 128, generator=generator), torch.randn(100, 128, generator=generator)
    with fixed_products():
        whole = torch.nn.functional.linear(x, weight)
        one = torch.nn.functional.linear(x[66:67], weight)
    torch.testing.assert_close(whole, x @ weight.T, atol=1e-4, rtol=0)
    assert torch.equal(whole[66:67], one)
    assert not torch.equal(whole, x @ weight.T)  # so it was the kernel that multiplied


def test_a_product_of_an_odd_width_is_refused() -> None:
    from kvescrow.gpu_harness.kernels.products import product

    with pytest.raises(ValueError, match="over 100 columns: the kernel needs a multiple of 32"):
        product(torch.zeros(2, 100), torch.zeros(4, 100))
