"""Every picture and measurement that the project keeps is shown somewhere, and what is shown is there."""

import re
from pathlib import Path

from kvescrow.checks.cli.report import command

ROOT = Path(__file__).resolve().parents[1]
KEPT = ("docs/images", "docs/measurements")
LINK = re.compile(r"\]\(([^)#\s]+)\)")


def _pages() -> list[Path]:
    folders = ("docs", *KEPT)
    return [ROOT / "README.md", *(page for folder in folders for page in (ROOT / folder).glob("*.md"))]


def _linked() -> set[Path]:
    return {
        (page.parent / link).resolve()
        for page in _pages()
        for link in LINK.findall(page.read_text())
        if "://" not in link
    }


def test_the_site_shows_every_kept_measurement(tmp_path: Path) -> None:
    command.main(["--root", str(ROOT), str(tmp_path / "site")], standalone_mode=False)
    shown = (tmp_path / "site" / "measurements.html").read_text("utf-8")
    kept = [path.stem for path in (ROOT / "docs" / "measurements").glob("*.json")]
    assert kept and [name for name in kept if name not in shown] == []


def test_every_link_of_the_pages_leads_to_a_file() -> None:
    linked = _linked()
    assert linked and [path for path in linked if not path.exists()] == []


def test_every_kept_file_is_shown_on_a_page() -> None:
    kept = {path for folder in KEPT for path in (ROOT / folder).iterdir() if path.suffix != ".md"}
    assert kept and kept - _linked() == set()
