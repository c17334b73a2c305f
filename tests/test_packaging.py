"""The wheel: it is what is tested, it holds exactly the checkout's files, and its metadata is whole."""

from __future__ import annotations

import base64
import hashlib
import importlib
import importlib.metadata
import re
import subprocess
import tomllib
from pathlib import Path, PurePosixPath

import pytest

FOLDERS = ("spec", "reference", "checks", "gpu_harness")


@pytest.fixture(scope="module")
def distribution() -> importlib.metadata.Distribution:
    """The installed distribution; without one these tests fail, since there is then no wheel to test."""
    return importlib.metadata.distribution("kvescrow")


@pytest.fixture(scope="module")
def project(repository: Path) -> dict[str, object]:
    """The `[project]` table of the checkout's pyproject.toml."""
    table: dict[str, object] = tomllib.loads((repository / "pyproject.toml").read_text("utf-8"))["project"]
    return table


def checkout_digests(repository: Path) -> dict[str, str]:
    """Installed path -> SHA-256 as in RECORD, of each file of the four folders that git does not ignore."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *FOLDERS]
    listed = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=True).stdout
    present = sorted({name for name in listed.split("\0") if name and (repository / name).is_file()})
    return {f"kvescrow/{name}": record_digest((repository / name).read_bytes()) for name in present}


def record_digest(content: bytes) -> str:
    """SHA-256 as a wheel's RECORD spells it: URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode("ascii")


def installed_digests(distribution: importlib.metadata.Distribution) -> dict[str, str]:
    """Installed path -> SHA-256 in RECORD, below `kvescrow/`; bytecode, which has none, is left out."""
    return {
        str(file): file.hash.value
        for file in distribution.files or ()
        if file.parts[0] == "kvescrow" and file.hash is not None
    }


def test_the_wheel_holds_exactly_the_files_of_the_checkout(
    distribution: importlib.metadata.Distribution, repository: Path
) -> None:
    """A difference after an edit means that the installed copy is old: `make venv` brings it up to date."""
    assert installed_digests(distribution) == checkout_digests(repository)


def test_the_tests_import_the_installed_copy(distribution: importlib.metadata.Distribution, repository: Path) -> None:
    for folder in FOLDERS:
        origin = importlib.import_module(f"kvescrow.{folder}").__file__
        assert origin == str(distribution.locate_file(PurePosixPath("kvescrow", folder, "__init__.py")))
        assert origin != str(repository / folder / "__init__.py")


def test_nothing_is_installed_beside_the_one_import_name(
    distribution: importlib.metadata.Distribution,
) -> None:
    tops = {file.parts[0] for file in distribution.files or () if file.suffix == ".py"}
    assert tops == {"kvescrow"}


def test_every_package_declares_its_types(distribution: importlib.metadata.Distribution) -> None:
    marked = {str(file) for file in distribution.files or () if file.name == "py.typed"}
    assert marked == {f"kvescrow/{folder}/py.typed" for folder in FOLDERS}


def test_the_version_is_the_one_in_the_checkout(project: dict[str, object]) -> None:
    assert importlib.metadata.version("kvescrow") == project["version"]


def test_the_licence_texts_are_installed(distribution: importlib.metadata.Distribution, repository: Path) -> None:
    for name in ("LICENSE", "NOTICE"):
        assert (distribution.read_text(f"licenses/{name}") or "") == (repository / name).read_text("utf-8")


def test_the_command_is_installed_and_loads(distribution: importlib.metadata.Distribution) -> None:
    (command,) = distribution.entry_points.select(group="console_scripts")
    assert (command.name, command.value) == ("kvescrow", "kvescrow.checks.cli:main")
    assert callable(command.load())


def normalised(requirement: str) -> str:
    """The distribution name in a requirement line, in the spelling that compares equal (PEP 503)."""
    return re.sub(r"[-_.]+", "-", re.split(r"[ <>=!~;\[(]", requirement, maxsplit=1)[0]).lower()


def test_every_requirement_is_pinned(distribution: importlib.metadata.Distribution, repository: Path) -> None:
    lines = (repository / "constraints.txt").read_text("utf-8").splitlines()
    pinned = {normalised(line) for line in lines if re.fullmatch(r"[\w.-]+==[\w.]+", line)}
    required = {normalised(requirement) for requirement in distribution.requires or ()}
    assert required, "no requirement was read"
    assert required - pinned == set()
