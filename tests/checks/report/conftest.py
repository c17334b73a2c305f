"""A site that all tests of its text look at."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from kvescrow.checks.report import Contents, Document, read_counterexamples, read_evidence, site
from kvescrow.checks.trace import trace
from kvescrow.spec.tables.registry import ALL_TABLES


@pytest.fixture(scope="session")
def bare(repository: Path) -> Mapping[str, str]:
    """The site of all tables, with a trace and counterexamples, and no result of any check."""
    return site(
        Contents(
            tables=ALL_TABLES,
            evidence=read_evidence([]),
            counterexamples=read_counterexamples(repository / "docs" / "examples" / "counterexamples"),
            trace=trace(repository),
            documents=(Document("sheet-x", "Sheet x", "# A sheet\n\n| a | b |\n| --- | --- |\n| 1 | `<2>` |"),),
        )
    )
