"""Released files are imported as they are; all else of an engine is a stand-in, and nothing unlisted is executed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvescrow.checks.targets.released import FOLDER, Release, loaded_files
from kvescrow.spec.vocabulary import UserError

FILES = {
    "toyengine/pool.py": "import toyengine.kernels\nfrom toyengine.kernels import launch, Shape\n"
    "from toyengine.log import logger\nclass Big(Shape[int]): pass\ndef pages(): return logger('made')\n",
    "toyengine/kernels.py": "raise SystemExit('a file that is not listed was executed')\n",
    "toyengine/log.py": "raise SystemExit('a file that a stand-in replaces was executed')\n",
    "toyengine/__init__.py": "raise SystemExit('the package itself was executed')\n",
    "toyengine-1.2.dist-info/METADATA": "Metadata-Version: 2.1\nName: toyengine\nVersion: 1.2\n",
}
RELEASE = Release("toyengine", "1.2", frozenset({"toyengine.pool"}), {"toyengine.log": {"logger": str.upper}})


@pytest.fixture
def engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setenv(FOLDER, str(tmp_path))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_a_listed_file_runs_and_the_rest_stands_in(engines: Path) -> None:
    pool = RELEASE.module("toyengine.pool")
    assert pool.pages() == "MADE"
    assert pool.launch(1, two=3).__class__.__name__ == "launch"
    assert loaded_files("toyengine", engines) == ["toyengine.pool"]


def test_a_module_that_is_not_listed_is_not_given(engines: Path) -> None:
    with pytest.raises(ValueError, match=r"toyengine\.kernels is not a listed file"):
        RELEASE.module("toyengine.kernels")


@pytest.mark.parametrize(
    ("release", "told"),
    [
        (Release("toyengine", "1.3", RELEASE.files), "toyengine 1.2 is installed, but this target drives 1.3"),
        (Release("otherengine", "1.2", frozenset({"otherengine.pool"})), "otherengine 1.2 is not installed"),
        (Release("toyengine", "1.2", RELEASE.files, needs=("no_such_package",)), "toyengine needs no_such_package"),
    ],
)
def test_what_is_missing_is_named_with_the_remedy(engines: Path, release: Release, told: str) -> None:
    with pytest.raises(UserError, match=told):
        release.module(next(iter(release.files)))


def test_an_engine_that_is_in_use_is_left_alone(engines: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "toyengine", sys)
    with pytest.raises(UserError, match="use this target in a process of its own"):
        RELEASE.module("toyengine.pool")
