"""Documents that are not what the tables say are found, each with its cause."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kvescrow.checks.coverage import Layer
from kvescrow.checks.coverage.holes import HOLES
from kvescrow.checks.documents import (
    COVERAGE,
    LIFECYCLE_BEGINS,
    LIFECYCLE_ENDS,
    MEASURED,
    REQUIREMENTS,
    outdated_measurements,
    stale_documents,
    write_documents,
)
from kvescrow.spec.render import lifecycle_diagram
from kvescrow.spec.tables.registry import digest
from kvescrow.spec.vocabulary import UserError


@pytest.fixture
def checkout(tmp_path: Path, repository: Path) -> Path:
    """A checkout with requirements and a README with a place for the diagram, its documents written."""
    (tmp_path / "docs").mkdir()
    shutil.copy(repository / REQUIREMENTS, tmp_path / REQUIREMENTS)
    (tmp_path / "README.md").write_text(f"# Name\n\n{LIFECYCLE_BEGINS}\nold\n{LIFECYCLE_ENDS}\n\nmore\n", "utf-8")
    write_documents(tmp_path)
    return tmp_path


def test_this_checkouts_documents_are_current(repository: Path) -> None:
    assert [line for line in stale_documents(repository) if line.startswith("docs/")] == []


def test_what_was_written_is_current(checkout: Path) -> None:
    assert stale_documents(checkout) == []
    assert write_documents(checkout) == []
    readme = (checkout / "README.md").read_text("utf-8")
    assert readme.startswith("# Name\n\n") and readme.endswith(f"{LIFECYCLE_ENDS}\n\nmore\n")
    assert f"```mermaid\n{lifecycle_diagram()}\n```" in readme
    assert "old" not in readme


def test_an_edited_page_is_named_with_its_line(checkout: Path) -> None:
    page = checkout / "docs" / "tables" / "page.md"
    lines = page.read_text("utf-8").splitlines()
    page.write_text("\n".join([*lines[:4], "edited", *lines[5:]]), "utf-8")
    assert stale_documents(checkout) == ["docs/tables/page.md differs from the tables, first at line 5"]


def test_a_page_with_a_lost_end_differs_in_length(checkout: Path) -> None:
    page = checkout / "docs" / "vocabulary.md"
    page.write_text("".join(page.read_text("utf-8").splitlines(keepends=True)[:-1]), "utf-8")
    assert stale_documents(checkout) == ["docs/vocabulary.md differs from the tables, in length"]


def test_a_missing_page_is_named(checkout: Path) -> None:
    (checkout / "docs" / "tables" / "ticket.md").unlink()
    assert stale_documents(checkout) == ["docs/tables/ticket.md is missing"]
    assert write_documents(checkout) == ["docs/tables/ticket.md"]


def test_a_page_of_no_table_is_named(checkout: Path) -> None:
    (checkout / "docs" / "tables" / "gone.md").write_text("", "utf-8")
    assert stale_documents(checkout) == ["docs/tables/gone.md belongs to no table: delete it"]


def test_a_readme_without_place_for_the_diagram_is_named(checkout: Path) -> None:
    (checkout / "README.md").write_text("# Name\n", "utf-8")
    (line,) = stale_documents(checkout)
    assert line.startswith("README.md has no place for the lifecycle: add the lines <!-- lifecycle")


def test_a_folder_that_is_no_checkout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"requirements\.md is missing: run this in a checkout"):
        stale_documents(tmp_path)


def test_a_page_that_is_no_text_is_refused(checkout: Path) -> None:
    (checkout / "docs" / "vocabulary.md").write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match=r"vocabulary\.md cannot be read"):
        stale_documents(checkout)


def test_a_place_that_cannot_be_written_is_refused(checkout: Path) -> None:
    shutil.rmtree(checkout / "docs" / "tables")
    (checkout / "docs" / "tables").write_text("in the way", "utf-8")
    with pytest.raises(UserError, match="cannot be"):
        write_documents(checkout)


def test_a_measured_page_about_other_tables_is_named_with_its_remedy(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    for path in MEASURED:
        (tmp_path / path).write_text(f"Digest: `{digest()}`")
    assert outdated_measurements(tmp_path) == []
    (tmp_path / "docs" / "mutation.md").write_text(f"Digest: `{'0' * 64}`")
    assert outdated_measurements(tmp_path) == [
        "docs/mutation.md is about other tables than these: run `kvescrow mutate --write`"
    ]
    (tmp_path / "docs" / "mutation.md").unlink()
    assert outdated_measurements(tmp_path) == ["docs/mutation.md is missing: run `kvescrow mutate --write`"]


def test_what_layers_do_not_see_is_listed_on_a_page_that_is_rendered_from_the_list(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (checkout / COVERAGE).read_text("utf-8")
    assert "| the scheduler preempts nothing | " in page
    monkeypatch.setattr("kvescrow.checks.documents.HOLES", {**HOLES, Layer.REPLAY: {}})
    (line,) = stale_documents(checkout)
    assert line.startswith("docs/coverage.md differs from the tables, first at line ")
