"""A target to start from: a toy engine or ledger, its adapter, a test of it, and a workflow for integration."""

import os
from pathlib import Path

from kvescrow.spec.vocabulary import UserError

FILES = Path(__file__).parent / "files"
LEDGER_FILES = Path(__file__).parent / "ledger_files"
"""They take the place of `FILES`, but for the workflow."""
WORKFLOW = "kvescrow.yml.txt"
_SUFFIX = ".txt"


def write_target(folder: Path, *, ledger: bool = False) -> list[Path]:
    """Write the files of an engine, or of a `ledger`, to `folder` and return their paths.

    Raises `UserError`, and writes nothing, where one of them is there already or the folder cannot be written.
    """
    files = sorted([*LEDGER_FILES.iterdir(), FILES / WORKFLOW] if ledger else FILES.iterdir())
    texts = {folder / file.name.removesuffix(_SUFFIX): file.read_text("utf-8") for file in files}
    for path in texts:
        if os.path.lexists(path):
            raise UserError(f"{path}: is there already; name another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in texts.items():
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{folder}: cannot be written ({error.strerror or error}); name a folder that can") from error
    return list(texts)
