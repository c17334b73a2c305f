"""What every test may use: where the checkout is, and which copy of kvescrow is under test."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from kvescrow.checks.targets.servers import PostgresServer, ValkeyServer

# What is drawn is the same in every run, so that a failure is of the change at hand. To look further afield:
# pytest --hypothesis-profile=afield
settings.register_profile("steady", derandomize=True, database=None, deadline=None)
settings.register_profile("afield", derandomize=False, deadline=None)
settings.load_profile("steady")

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


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A server in memory; it starts when it is first needed, and every ledger has a schema of its own there."""
    server = PostgresServer()
    yield server
    server.close()


@pytest.fixture(scope="session")
def valkey() -> Iterator[ValkeyServer]:
    """A server in memory, likewise; every ledger has a prefix of its own."""
    server = ValkeyServer()
    yield server
    server.close()
