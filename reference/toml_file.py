"""Reading a TOML file that a person wrote."""

import tomllib
from pathlib import Path

from kvescrow.spec.vocabulary import UserError


def read_toml(path: Path, what: str) -> dict[str, object]:
    """Return the tables of the file at `path`; a byte order mark at its start is dropped.

    Raises `UserError` where it cannot be read or is not TOML; the message says that it must be `what`.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; give {what}") from None
    except IsADirectoryError:
        raise UserError(f"{path}: a directory; give one file in it") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read ({error}); give {what}") from None
    try:
        return tomllib.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        # Besides mistakes in TOML: text that is not UTF-8, integers of thousands of digits, and endless nesting.
        raise UserError(f"{path}: not valid TOML: {error}; give {what}") from None
