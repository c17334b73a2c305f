"""No report is forgotten, and none is both a vector and listed as outside the model."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.field_reports.outside import FAMILIES, OUTSIDE

HERE = Path(__file__).parent
NAMED = re.compile(r"_(b\d+)(?=_)")
REFERENCE = re.compile(r"[\w.-]+/[\w.-]+#\d+|https?://|openai\.com/")
REQUIREMENT = re.compile(r"\b[A-Z]{3}-\d+\b")


def vectors(family: str) -> dict[str, str]:
    """The test functions of a family's files, each with its docstring."""
    found: dict[str, str] = {}
    for path in sorted(HERE.glob(f"test_{family}_*.py")):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                assert node.name not in found, f"{node.name} hides another"
                found[node.name] = ast.get_docstring(node) or ""
    return found


def ids(name: str) -> set[str]:
    """The reports that a vector is named by."""
    return {each.upper() for each in NAMED.findall(name)}


@pytest.mark.parametrize("family", FAMILIES)
def test_each_report_is_a_vector_or_listed_and_not_both(family: str) -> None:
    by_vector = set().union(*(ids(name) for name in vectors(family)))
    listed = {report for report in FAMILIES[family] if report in OUTSIDE}
    assert by_vector.isdisjoint(listed)
    assert by_vector | listed == set(FAMILIES[family])


def test_what_is_listed_is_a_report_and_has_a_reason() -> None:
    reports = [report for family in FAMILIES.values() for report in family]
    assert len(reports) == len(set(reports)) == 92
    assert set(OUTSIDE) <= set(reports)
    assert all(len(reason.split()) >= 5 for reason in OUTSIDE.values())


@pytest.mark.parametrize("family", FAMILIES)
def test_each_vector_is_named_by_its_report_and_cites(family: str) -> None:
    for name, docstring in vectors(family).items():
        assert ids(name), f"{name} names no report"
        assert REFERENCE.search(docstring), f"{name} has no reference"
        assert REQUIREMENT.search(docstring), f"{name} cites no requirement"


def test_ids_are_read_from_names() -> None:
    assert ids("test_b26_b35_a_page_of_b_b7x_is_2") == {"B26", "B35"}
    assert ids("test_a_page") == set()
