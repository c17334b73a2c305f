"""From each requirement to what keeps it: rows and laws of the tables, tests, and the modules that name it.

A requirement is covered by a row, a law or a test. A module that only names it is listed and covers nothing.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from attrs import frozen

from kvescrow.checks.documents import REQUIREMENTS
from kvescrow.checks.uncovered import UNCOVERED
from kvescrow.spec.language.table import Invariant, NonInterference, StepRule, Table
from kvescrow.spec.render import Requirement, parse_requirements, unknown_citations
from kvescrow.spec.tables.registry import ALL_TABLES
from kvescrow.spec.vocabulary import UserError

FOLDERS = ("spec", "reference", "checks", "gpu_harness")
TESTS = "tests"
_ID = re.compile(r"\b[A-Z]{3}-\d+\b")

Citations = Mapping[str, tuple[str, ...]]
"""Requirement -> the places that name it."""


@frozen
class Covered:
    """One requirement and every place that answers to it."""

    requirement: Requirement
    rows: tuple[str, ...]
    laws: tuple[str, ...]
    """Invariants, rules over a step, promises of non-interference."""
    tests: tuple[str, ...]
    """`file::test`, or the file where its own docstring or a comment outside tests names it."""
    modules: tuple[str, ...]

    @property
    def is_covered(self) -> bool:
        """Whether a row, a law or a test answers to it."""
        return bool(self.rows or self.laws or self.tests)

    def to_json(self) -> dict[str, Any]:
        """Return the places by kind."""
        return {
            "text": self.requirement.text,
            "rows": list(self.rows),
            "laws": list(self.laws),
            "tests": list(self.tests),
            "modules": list(self.modules),
        }


@frozen
class TraceReport:
    """All requirements in the order in which they are stated."""

    covered: tuple[Covered, ...]
    problems: tuple[str, ...]
    """What is wrong, a sentence each; the report passes where there is none."""

    @property
    def verdict(self) -> str:
        """Return `passed` or `failed`."""
        return "failed" if self.problems else "passed"

    def to_json(self) -> dict[str, Any]:
        """Return the whole report."""
        return {
            "verdict": self.verdict,
            "problems": list(self.problems),
            "requirements": {each.requirement.id: each.to_json() for each in self.covered},
            "uncovered": dict(UNCOVERED),
        }


def trace(root: Path, tables: Iterable[Table] = ALL_TABLES, uncovered: Mapping[str, str] = UNCOVERED) -> TraceReport:
    """Return what answers to each requirement of the checkout at `root`.

    `uncovered` lists requirements that nothing answers to yet, each with the reason. It is strict: one that is
    answered to after all is a problem. Raises `UserError` where `root` is no checkout.
    """
    requirements = _requirements(root)
    known = tuple(tables)
    rows = _collected((cite, row.id) for each in known for row in each.rows for cite in row.cites)
    laws = _collected((cite, f"{each.name}.{law.name}") for each in known for law in _laws(each) for cite in law.cites)
    tests = _collected(_citations(root, [TESTS]))
    modules = _collected((cite, place.partition("::")[0]) for cite, place in _citations(root, FOLDERS))
    covered = tuple(
        Covered(each, *(places.get(each.id, ()) for places in (rows, laws, tests, modules))) for each in requirements
    )
    stated = {each.id for each in requirements}
    areas = {name[:3] for name in stated}
    problems = [
        *_uncovered(covered, uncovered),
        *(f"{entry} is listed as not covered, but it is no requirement" for entry in uncovered if entry not in stated),
        *(f"{citation}, which is no requirement" for citation in unknown_citations(known, requirements)),
        *(
            f"{cite} is named in {', '.join(places)}, but it is no requirement"
            for cite, places in (*tests.items(), *modules.items())
            if cite[:3] in areas and cite not in stated
        ),
    ]
    return TraceReport(covered, tuple(problems))


def _laws(table: Table) -> Iterator[Invariant | StepRule | NonInterference]:
    yield from table.invariants
    yield from table.rules
    yield from table.non_interference


def _uncovered(covered: Iterable[Covered], listed: Mapping[str, str]) -> Iterator[str]:
    for each in covered:
        name = each.requirement.id
        if not each.is_covered and name not in listed:
            yield f"{name} has neither row, law nor test: write one, or list it with the reason"
        elif each.is_covered and name in listed:
            place = (*each.rows, *each.laws, *each.tests)[0]
            yield f"{name} is listed as not covered, but {place} answers to it: take it off the list"


def _requirements(root: Path) -> tuple[Requirement, ...]:
    path = root / REQUIREMENTS
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error}): run this in a checkout of kvescrow, or name one") from error
    return parse_requirements(text)


def _collected(pairs: Iterable[tuple[str, str]]) -> Citations:
    found: dict[str, dict[str, None]] = {}
    for cite, place in pairs:
        found.setdefault(cite, {})[place] = None
    return {cite: tuple(places) for cite, places in sorted(found.items())}


def _citations(root: Path, folders: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield (requirement, place) for each docstring and comment under `folders` that names one.

    Other text is no citation: a test of the requirements' reader has ids as its data.
    """
    for folder in folders:
        for path in sorted((root / folder).rglob("*.py")):
            source = path.read_text("utf-8")
            if _ID.search(source):
                yield from _of_module(path.relative_to(root).as_posix(), source)


def _of_module(place: str, source: str) -> Iterator[tuple[str, str]]:
    tree = ast.parse(source)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("test")]
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            here = _inside(functions, node.lineno) if not isinstance(node, ast.Module) else ""
            yield from ((cite, f"{place}{here}") for cite in _ID.findall(ast.get_docstring(node) or ""))
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            here = _inside(functions, token.start[0])
            yield from ((cite, f"{place}{here}") for cite in _ID.findall(token.string))


def _inside(functions: Iterable[ast.FunctionDef], line: int) -> str:
    """Return `::test` for the test that the line lies in; empty where it lies in none."""
    for function in functions:
        if function.lineno <= line <= (function.end_lineno or line):
            return f"::{function.name}"
    return ""
