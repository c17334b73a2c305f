"""The examples in README and documents that import ours: they are Python, and what they import is there."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def examples() -> Iterator[tuple[str, str]]:
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        for number, found in enumerate(BLOCK.finditer(page.read_text("utf-8"))):
            if "from kvescrow" in found[1]:
                yield f"{page.name}-{number}", found[1]


EXAMPLES = dict(examples())


def imported(source: str) -> Iterator[tuple[str, str]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kvescrow"):
            yield from ((node.module or "", each.name) for each in node.names)


@pytest.mark.parametrize("name", EXAMPLES)
def test_what_an_example_imports_is_there(name: str) -> None:
    found = list(imported(EXAMPLES[name]))
    missing = [f"{module}.{each}" for module, each in found if not hasattr(importlib.import_module(module), each)]
    assert found and not missing


def test_there_are_examples() -> None:
    assert {name.partition("-")[0] for name in EXAMPLES} >= {"README.md", "operations.md"}
