"""The site in a real browser, from files: a row is found, a counterexample steps, also by keyboard and on a phone."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from kvescrow.spec.tables.registry import ALL_TABLES

if TYPE_CHECKING:
    from playwright.sync_api import Page

PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
PAGES = ("index", "laws", "requirements", "counterexamples", "measurements", "differences", "sheet-worker")


def test_a_row_is_found_by_keyboard(open_page: Callable[..., Page], site: str) -> None:
    page = open_page(f"{site}/index.html")
    page.keyboard.press("/")
    page.keyboard.type("cancel running")
    page.locator("#found li").first.wait_for()
    assert page.locator("#found [aria-selected=true] a").inner_text().startswith("reservation.cancel.running")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"table-reservation\.html#reservation\.cancel\.running$"))
    row = page.locator("[id='reservation.cancel.running']")
    row.wait_for()
    assert "CANCELLING" in row.inner_text()
    assert page.evaluate("document.querySelector(':target').id") == "reservation.cancel.running"


def test_the_list_of_found_rows_moves_and_closes(open_page: Callable[..., Page], site: str) -> None:
    page = open_page(f"{site}/laws.html")
    page.fill("#search", "publish")
    chosen = page.locator("#found [aria-selected=true]")
    first = chosen.get_attribute("id")
    page.press("#search", "ArrowDown")
    assert chosen.get_attribute("id") != first
    page.press("#search", "ArrowUp")
    assert chosen.get_attribute("id") == first
    page.press("#search", "Escape")
    assert page.locator("#found").is_hidden()
    page.fill("#search", "no such row anywhere")
    assert page.locator("#found").inner_text() == "nothing found"


def test_a_counterexample_steps(open_page: Callable[..., Page], site: str) -> None:
    page = open_page(f"{site}/counterexamples.html")
    article = page.locator("[id='release-at-cancel.searched']")
    shown = article.locator(".step:visible h3")
    assert shown.all_inner_texts() == ["0. the first state"]
    assert article.locator(".back").is_disabled()
    article.locator(".on").click()
    assert shown.all_inner_texts() == ["1. reserve 1 of reservation 0"]
    article.focus()
    page.keyboard.press("ArrowRight")
    assert shown.all_inner_texts() == ["2. start of reservation 0"]
    assert article.locator(".step:visible tr.changed").inner_text().split() == [
        "reservation",
        "0.state",
        "RESERVED",
        "RUNNING",
    ]
    assert article.locator(".step:visible tr.same:visible").count() == 0
    article.get_by_label("every field").check()
    assert article.locator(".step:visible tr.same:visible").count() > 5
    page.keyboard.press("ArrowRight")
    assert article.locator(".broken").is_visible()
    assert article.locator(".on").is_disabled()
    page.keyboard.press("ArrowLeft")
    assert article.locator(".broken").is_hidden()


def test_a_state_shows_its_own_lines(open_page: Callable[..., Page], site: str) -> None:
    page = open_page(f"{site}/table-page.html")
    page.locator("svg [data-state=DRAINING]").focus()
    lit = page.locator("svg .change:not(.dim)")
    assert lit.count() > 0
    for index in range(lit.count()):
        assert "DRAINING" in (lit.nth(index).get_attribute("data-states") or "").split()
    assert page.locator("svg .change.dim").count() > 0


@pytest.mark.parametrize("name", [*PAGES, *(f"table-{table.name}" for table in ALL_TABLES)])
def test_a_phone_needs_no_sideways_scrolling(open_page: Callable[..., Page], site: str, name: str) -> None:
    page = open_page(f"{site}/{name}.html", **PHONE)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.locator("h1").is_visible()


def test_the_page_follows_light_and_dark(open_page: Callable[..., Page], site: str) -> None:
    grounds = {}
    for scheme in ("light", "dark"):
        page = open_page(f"{site}/index.html", color_scheme=scheme)
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        grounds[scheme] = sum(map(int, re.findall(r"\d+", colour)[:3]))
    assert grounds["light"] > 3 * 200 > 3 * 60 > grounds["dark"]


def test_everything_is_there_without_scripts(open_page: Callable[..., Page], site: str) -> None:
    page = open_page(f"{site}/counterexamples.html", java_script_enabled=False)
    steps = page.locator("[id='release-at-cancel.searched'] .step")
    assert steps.count() == 4
    assert all(steps.nth(index).is_visible() for index in range(4))
    assert page.locator(".stepper").first.is_hidden()


def test_no_page_asks_the_network(open_page: Callable[..., Page], site: str) -> None:
    page = open_page(f"{site}/index.html")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    for name in PAGES:
        page.goto(f"{site}/{name}.html")
    assert asked
    assert [url for url in asked if not url.startswith("file:")] == []


def test_the_keyboard_reaches_content_first(open_page: Callable[..., Page], site: str) -> None:
    page = open_page(f"{site}/table-ticket.html")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.url.endswith("#main")
