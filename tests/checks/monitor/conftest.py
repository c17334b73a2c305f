"""A ledger's journal, and a way to write a changed one."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.checks.monitor.runs import Line, record_ledger_run


@pytest.fixture(scope="session")
def ledger_text(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The text of a ledger's journal with 600 events or a few more."""
    path = tmp_path_factory.mktemp("journal") / "ledger.jsonl"
    record_ledger_run(path, 600)
    return path.read_text("utf-8")


@pytest.fixture
def lines(ledger_text: str) -> list[Line]:
    """The lines of that journal, for a test to change."""
    return [json.loads(line) for line in ledger_text.splitlines()]


@pytest.fixture
def write(tmp_path: Path) -> Callable[[Sequence[Mapping[str, Any]]], Path]:
    """Writes lines as a journal file."""

    def written(lines: Sequence[Mapping[str, Any]]) -> Path:
        path = tmp_path / "journal.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
        return path

    return written
