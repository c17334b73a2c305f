"""A target to start from: a toy engine, its adapter, a test of it, and a workflow for continuous integration."""

import os
from pathlib import Path

from kvescrow.spec.vocabulary import UserError

FILES = Path(__file__).parent / "files"
_SUFFIX = ".txt"


def write_target(folder: Path) -> list[Path]:
    """Write the files to `folder` and return their paths.

    Raises `UserError`, and writes nothing, where one of them is there already or the folder cannot be written.
    """
    texts = {folder / file.name.removesuffix(_SUFFIX): file.read_text("utf-8") for file in sorted(FILES.iterdir())}
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
