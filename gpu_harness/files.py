"""Files that a user names: refused before a run where they cannot be written, and JSON in a folder after it."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from kvescrow.spec.vocabulary import UserError


def refuse_unwritable(folder: Path | None) -> None:
    """Make `folder`, if any is named. Raises UserError where nothing can be written: before a run, not after it."""
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UserError(f"{folder}: {error.strerror}: name a folder that can be written") from error


def refuse_unwritable_file(path: Path) -> None:
    """Raise UserError where no file can be written to `path`, whose folder is there: before a run, not after it."""
    if path.is_dir():
        raise UserError(f"{path}: is a directory; name a file in it")
    if not os.access(path.parent, os.W_OK) or not path.parent.is_dir():
        raise UserError(f"{path}: cannot be written; name a file in a folder that exists")


def refuse_used_file(path: Path) -> None:
    """Raise UserError where `path` is there already, or no file can be written to it: before a run, not after it."""
    if os.path.lexists(path):
        raise UserError(f"{path}: exists already; name a new file")
    refuse_unwritable_file(path)


def write(folder: Path | None, name: str, values: Mapping[str, object]) -> None:
    """Write `values` to a file of `folder`, if any is named. Raises UserError where it cannot be written."""
    if folder is None:
        return
    try:
        (folder / name).write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise UserError(f"{folder / name}: {error.strerror}: name a folder that can be written") from error
