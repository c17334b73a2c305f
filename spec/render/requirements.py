"""Requirement texts, and which rows, invariants and rules cite them."""

import re
from collections.abc import Iterable, Mapping, Sequence

from attrs import field, frozen

from kvescrow.spec.language.table import Invariant, NonInterference, StepRule, Table
from kvescrow.spec.render.markdown import NONE, anchor, document, table
from kvescrow.spec.vocabulary import UserError

_AREA = re.compile(r"^## (?P<prefix>[A-Z]{3}): (?P<title>.+)$")
_ITEM = re.compile(r"^- (?P<id>[A-Z]{3}-\d+) (?P<text>.+)$")


@frozen
class Requirement:
    """One requirement: its id, its area as the heading says it, and its text on one line."""

    id: str
    area: str
    text: str


@frozen
class _Citation:
    """A place in a table that cites requirements."""

    id: str
    page: str
    cites: tuple[str, ...] = field(repr=False)
    is_row: bool


def parse_requirements(text: str) -> tuple[Requirement, ...]:
    """Return the requirements in `text`: `## ADM: title` opens an area, `- ADM-1 text` an item, which may go on
    over indented lines.

    Raises `UserError` where an id comes twice or outside the area of its letters, or where there is none.
    """
    found: dict[str, Requirement] = {}
    prefix = area = current = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if heading := _AREA.match(line):
            prefix, area = heading["prefix"], f"{heading['prefix']}: {heading['title']}"
        elif item := _ITEM.match(line):
            current = item["id"]
            if current in found or not current.startswith(f"{prefix}-"):
                raise UserError(
                    f"requirements, line {number}: {current} comes twice or outside the area of its letters; "
                    "give it the next free number of its area"
                )
            found[current] = Requirement(current, area, item["text"].strip())
            continue
        elif current and line.startswith("  "):
            known = found[current]
            found[current] = Requirement(current, known.area, f"{known.text} {line.strip()}")
            continue
        current = ""
    if not found:
        raise UserError("requirements: there is no line like `- ADM-1 text`; restore the file")
    return tuple(found.values())


def unknown_citations(tables: Iterable[Table], requirements: Iterable[Requirement]) -> list[str]:
    """Return `place cites id` for each citation of a requirement that does not exist."""
    known = {requirement.id for requirement in requirements}
    return [
        f"{citation.id} cites {cite}" for citation in _citations(tables) for cite in citation.cites if cite not in known
    ]


def trace_page(tables: Iterable[Table], requirements: Sequence[Requirement]) -> str:
    """Return the Markdown that leads from each requirement to the rows, invariants and rules that cite it."""
    citing: dict[str, list[_Citation]] = {}
    for citation in _citations(tables):
        for cite in citation.cites:
            citing.setdefault(cite, []).append(citation)
    cited = sum(requirement.id in citing for requirement in requirements)
    areas = dict.fromkeys(requirement.area for requirement in requirements)
    return document(
        "# From requirements to rows",
        f"{len(requirements)} requirements, {cited} of them cited by a row, an invariant or a rule of a table. "
        "The others are kept by code and checks around the tables. [All tables](tables/index.md).",
        *(_area(area, [each for each in requirements if each.area == area], citing) for area in areas),
    )


def _area(area: str, requirements: Sequence[Requirement], citing: Mapping[str, Sequence[_Citation]]) -> str:
    rows = []
    for requirement in requirements:
        places = citing.get(requirement.id, ())
        rows.append(
            (
                f"{anchor(requirement.id)}{requirement.id}",
                requirement.text,
                _links(place for place in places if place.is_row),
                _links(place for place in places if not place.is_row),
            )
        )
    return document(f"## {area}", table(("id", "requirement", "rows", "invariants and rules"), rows)).rstrip()


def _links(places: Iterable[_Citation]) -> str:
    return ", ".join(f"[{place.id}](tables/{place.page}.md#{place.id})" for place in places) or NONE


def _citations(tables: Iterable[Table]) -> list[_Citation]:
    found = []
    for each in tables:
        laws: tuple[Invariant | StepRule | NonInterference, ...] = (
            *each.invariants,
            *each.rules,
            *each.non_interference,
        )
        found += [_Citation(row.id, each.name, row.cites, True) for row in each.rows]
        found += [_Citation(f"{each.name}.{law.name}", each.name, law.cites, False) for law in laws]
    return found
