"""What every test may use: where the checkout is, and which copy of kvescrow is under test."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent


def pytest_report_header() -> str:
    """Name the copy under test, since a checkout and an installed wheel can differ."""
    found = importlib.util.find_spec("kvescrow.spec")
    place = Path(found.origin).parent.parent if found and found.origin else "not installed"
    return f"kvescrow under test: {place}"


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout that these tests lie in."""
    return REPOSITORY
