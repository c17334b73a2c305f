"""Putting other people's engines beside the project, each without its dependencies, in a folder of their own."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import distributions
from pathlib import Path

from attrs import frozen

from kvescrow.checks.targets.released import engines_folder
from kvescrow.spec.vocabulary import UserError


@frozen
class Package:
    """One wheel, as it is pinned here."""

    name: str
    version: str
    megabytes: float
    """To download, on x86-64 Linux."""
    unpacked: float
    """Megabytes in the folder."""


PACKAGES = (
    Package("vllm", "0.33.0", 336.4, 880.0),
    Package("sglang", "0.5.23", 39.1, 230.0),
    Package("cbor2", "6.3.0", 0.5, 2.0),
    Package("msgspec", "0.23.0", 0.3, 1.0),
)
"""torch and transformers come with kvescrow itself."""


def missing(folder: Path) -> list[Package]:
    """Return the packages that are not in `folder` in the version that is pinned."""
    there = {(found.metadata["Name"].lower(), found.version) for found in distributions(path=[str(folder)])}
    return [package for package in PACKAGES if (package.name, package.version) not in there]


def install(say: Callable[[str], None]) -> None:
    """Install what is missing, after telling `say` what it costs.

    Raises `UserError` where the disk has no room or pip fails.
    """
    folder = engines_folder()
    wanted = missing(folder)
    if not wanted:
        say(f"all there: {folder}")
        return
    for package in wanted:
        say(f"to download: {package.name} {package.version}, {package.megabytes} MB")
    megabytes, unpacked = sum(one.megabytes for one in wanted), sum(one.unpacked for one in wanted)
    say(f"in all {megabytes:.0f} MB to download and {unpacked:.0f} MB in {folder}, without dependencies")
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free / 1e6
    if free < 2 * unpacked:
        raise UserError(f"{folder}: {free:.0f} MB are free, {2 * unpacked:.0f} MB are needed: name another folder")
    names = [f"{package.name}=={package.version}" for package in wanted]
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--upgrade", "--target", str(folder), *names]
    if subprocess.run(command, check=False, stdin=subprocess.DEVNULL).returncode:
        raise UserError(f"pip could not install {', '.join(names)}: see its message above")
