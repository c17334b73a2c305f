"""Released engines' own files, loaded without the engines' dependencies.

A serving engine pulls in dozens of packages, most of them for devices that are not here. What decides about pages is
a few pure Python files. Those are imported as they were released, from a wheel that was installed without its
dependencies; every other module of the engine is a stand-in, whose names are classes without behaviour. Nothing of the
engine is changed: a file is either the released one, and is listed, or is not there at all.
"""

import importlib
import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.metadata import Distribution, distributions
from pathlib import Path
from types import ModuleType
from typing import Any

from attrs import define, field, frozen

from kvescrow.spec.vocabulary import UserError

FOLDER = "KVESCROW_ENGINES"
"""Environment variable that names the folder where `make targets` has put the engines."""
_DEFAULT_FOLDER = ".engines"


@frozen
class Release:
    """One release of an engine, and what of it is used."""

    name: str
    """Of the distribution and of its package."""
    version: str
    files: frozenset[str]
    """Modules that are the released files. No other file of the engine is executed."""
    stand_ins: Mapping[str, Mapping[str, Any]] = field(factory=dict, repr=False)
    """Module -> the names in it that must behave: loggers, plain containers."""
    needs: tuple[str, ...] = ()
    """Other packages that the files import."""

    def __str__(self) -> str:
        return f"{self.name} {self.version}"

    def module(self, name: str) -> Any:
        """Return the released module `name`.

        Raises `UserError` where this release is not installed, or the engine itself has been imported already.
        """
        if name not in self.files:
            raise ValueError(f"{name} is not a listed file of {self.name}")
        if not any(isinstance(finder, _Finder) and finder.release is self for finder in sys.meta_path):
            self._open()
        return importlib.import_module(name)

    def _open(self) -> None:
        if self.name in sys.modules:
            raise UserError(f"{self.name} has been imported already: use this target in a process of its own")
        root = Path(str(self._installed().locate_file("")))
        if str(engines_folder()) not in sys.path:
            sys.path.append(str(engines_folder()))
        missing = [package for package in self.needs if importlib.util.find_spec(package) is None]
        if missing:
            raise UserError(f"{self.name} needs {', '.join(missing)}: run `make targets`")
        sys.meta_path.insert(0, _Finder(self, root))
        for name in sorted(self.files):
            importlib.import_module(name)
        foreign = [name for name in loaded_files(self.name, root) if name not in self.files]
        if foreign:
            raise RuntimeError(f"files of {self.name} were loaded that are not listed: {', '.join(foreign)}")

    def _installed(self) -> Distribution:
        path = [str(engines_folder()), *sys.path]
        found = next(iter(distributions(name=self.name, path=path)), None)
        if found is None:
            raise UserError(f"{self.name} {self.version} is not installed: run `make targets`, or set {FOLDER}")
        if found.version != self.version:
            raise UserError(f"{self.name} {found.version} is installed, but this target drives {self.version}")
        return found


def engines_folder() -> Path:
    """Return the folder in which engines are looked for first."""
    return Path(os.environ.get(FOLDER, _DEFAULT_FOLDER)).absolute()


def loaded_files(package: str, root: Path) -> list[str]:
    """Return the modules of `package` in this process that are files below `root`."""
    return sorted(
        name
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] == package and Path(getattr(module, "__file__", None) or "/").is_relative_to(root)
    )


class _Absent(type):
    """The class of names that nothing defines: they can be called, subscripted, inherited from, and asked for more."""

    def __getattr__(cls, name: str) -> "_Absent":
        if name.startswith("__"):
            raise AttributeError(name)
        return _absent(name)


def _absent(name: str) -> _Absent:
    return _Absent(
        name, (), {"__init__": lambda self, *_, **__: None, "__class_getitem__": classmethod(lambda cls, _: cls)}
    )


class _StandIn(ModuleType):
    """A module without a file: it has every name."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        value = _absent(name)
        setattr(self, name, value)
        return value


@define(eq=False)
class _Finder(MetaPathFinder, Loader):
    release: Release
    root: Path

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] != self.release.name:
            return None
        if fullname not in self.release.files:
            return ModuleSpec(fullname, self, is_package=True)
        file = self.root.joinpath(*fullname.split("."))
        package = file / "__init__.py"
        return importlib.util.spec_from_file_location(
            fullname, package if package.exists() else file.with_suffix(".py")
        )

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = _StandIn(spec.name)
        module.__dict__.update(self.release.stand_ins.get(spec.name, {}))
        return module

    def exec_module(self, module: ModuleType) -> None:
        """A stand-in has nothing to execute."""


class SilentLogger:
    """Stands for an engine's logger."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None
