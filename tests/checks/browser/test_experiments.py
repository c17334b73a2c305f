"""Pages of experiments in a real browser: a control moves, and the result changes (EXP-1)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

Serve = Callable[..., AbstractContextManager[str]]


def test_more_decodes_leave_no_chunk(open_page: Callable[..., Page], serve: Serve) -> None:
    with serve("prefill-deadline") as address:
        page = open_page(address)
        page.get_by_text("The rule takes 1,152 tokens a step").wait_for()
        assert page.get_by_text("synthetic").count() > 0
        assert page.get_by_text("Assumed").is_visible()
        sliders = page.get_by_role("slider")
        assert sliders.count() == 6
        # The fourth constraint is the number of decoding sequences; its end is 256, whose steps alone exceed the gap.
        sliders.nth(3).focus()
        page.keyboard.press("End")
        page.get_by_text("No chunk is feasible: the decodes alone take 28.0 ms").wait_for()
        assert page.get_by_text("The rule takes").count() == 0


def test_measured_costs_are_called_so(open_page: Callable[..., Page], serve: Serve, tmp_path: Path) -> None:
    cost = tmp_path / "cost.toml"
    cost.write_text("[cost]\nfixed = 1_000_000\n", "utf-8")
    with serve("prefill-deadline", "--cost", str(cost)) as address:
        page = open_page(address)
        # Four milliseconds less than with the synthetic costs are 400 tokens more: 1,612, in 64s 1,600.
        page.get_by_text("The rule takes 1,600 tokens a step").wait_for()
        assert page.get_by_text("measured", exact=True).count() == 6
        assert page.get_by_text("synthetic", exact=True).count() == 0


def test_a_pool_that_is_too_small_refuses(open_page: Callable[..., Page], serve: Serve) -> None:
    with serve("prefix-ownership") as address:
        page = open_page(address)
        page.get_by_text("4 of 4 requests were admitted").wait_for()
        assert page.get_by_text("0 of the 4 prefix pages became free").is_visible()
        # The third constraint is the pool; its start is 6 pages, which hold the first request alone.
        page.get_by_role("slider").nth(2).focus()
        page.keyboard.press("Home")
        page.get_by_text("1 of 4 requests were admitted").wait_for()
        page.get_by_text("REFUSED POOL_CAPACITY").first.wait_for()


def test_a_wider_gap_makes_large_chunks_good(open_page: Callable[..., Page], serve: Serve) -> None:
    with serve("goodput") as address:
        page = open_page(address)
        page.get_by_text("Most requests are served well with chunks of 2,048").wait_for()
        page.get_by_role("slider").nth(0).focus()
        page.keyboard.press("End")
        page.get_by_text("Most requests are served well with chunks of 2,048").wait_for(state="detached")
        page.get_by_text("Most requests are served well").wait_for()
