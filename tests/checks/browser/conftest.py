"""A real browser, and the pages that it looks at. Without one, every test here is skipped as not_run."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kvescrow.checks.cli.front import main

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

# Nothing but the page itself: no updates, no synchronisation, no sandbox where the tests run as root.
ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE = 120_000
"""Milliseconds that a page may take on a busy machine before a test gives up."""


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium as the system has it."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("not_run: no chromium")
    if find_spec("playwright") is None:
        pytest.skip("not_run: no playwright (make browser)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=list(ARGUMENTS), timeout=PATIENCE)
        yield started
        started.close()


@pytest.fixture(scope="session")
def site(browser: Browser, tmp_path_factory: pytest.TempPathFactory, repository: Path) -> str:
    """The address of a site about the tables, with a design sheet and counterexamples; none without a browser."""
    folder = tmp_path_factory.mktemp("site")
    examples = repository / "docs" / "examples"
    arguments = ["report", str(folder), "--root", str(repository), "--worker", str(examples / "worker.toml")]
    with pytest.raises(SystemExit) as exit_:
        main([*arguments, "--counterexamples", str(examples / "counterexamples")])
    assert exit_.value.code == 0
    return folder.as_uri()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Open an address in a fresh context, which may be a phone, in the dark, or without scripts."""
    contexts = []

    def opened(address: str, **options: object) -> Page:
        context = browser.new_context(**options)  # type: ignore[arg-type]
        context.set_default_timeout(PATIENCE)
        contexts.append(context)
        page = context.new_page()
        page.goto(address, timeout=PATIENCE)
        return page

    yield opened
    for context in contexts:
        context.close()


@contextmanager
def served(experiment: str, *options: str) -> Iterator[str]:
    """Serve the page of an experiment on this machine; yield its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "kvescrow.checks.cli",
        "experiment",
        experiment,
        "--app",
        "--port",
        str(port),
        *options,
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    address = f"http://127.0.0.1:{port}"
    try:
        _wait_for(address, process)
        yield address
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()


def _wait_for(address: str, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + PATIENCE / 1000
    while time.monotonic() < end:
        assert process.poll() is None, "the server ended by itself"
        try:
            with urllib.request.urlopen(address, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise AssertionError(f"{address} did not answer")


@pytest.fixture
def serve() -> Callable[..., object]:
    """The server of pages; not_run where marimo is not installed."""
    if find_spec("marimo") is None:
        pytest.skip("not_run: no marimo (make browser)")
    return served
