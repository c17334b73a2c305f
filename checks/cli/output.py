"""What verbs share: exit statuses, the `--json` option, atomic files, and text for people."""

import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from kvescrow.spec.vocabulary import UserError

EXIT_PASSED = 0
EXIT_NOT_PASSED = 1
EXIT_USER_ERROR = 2
EXIT_NOT_RUN = 3

Json = Mapping[str, Any]
Command = TypeVar("Command", bound=Callable[..., Any])


def json_option(function: Command) -> Command:
    """Add `--json [FILE]`: the result as JSON, to standard output where no file is named."""
    return click.option(
        "--json",
        "json_file",
        is_flag=False,
        flag_value="-",
        default=None,
        metavar="[FILE]",
        help="Write the result as JSON to FILE, or to standard output where FILE is `-` or left out.",
    )(function)


def exit_status(verdict: str) -> int:
    """Return the exit status of a verdict: only `passed` and `caught` are 0."""
    if verdict in ("passed", "caught"):
        return EXIT_PASSED
    return EXIT_NOT_RUN if verdict == "not_run" else EXIT_NOT_PASSED


def conclude(result: Json, summary: str, json_file: str | None) -> int:
    """Show `summary`, write `result` where asked, and return the exit status of its verdict.

    With JSON on standard output the summary goes to standard error, so that the output can be piped.
    """
    click.echo(summary, err=json_file == "-")
    if json_file == "-":
        click.echo(json.dumps(result, indent=2))
    elif json_file is not None:
        write_atomically(Path(json_file), json.dumps(result, indent=2) + "\n")
    return exit_status(str(result["verdict"]))


def write_atomically(path: Path, text: str) -> None:
    """Write `text` to `path`, whole or not at all; raise `UserError` where it cannot be written."""
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise UserError(
            f"{path}: cannot be written ({error.strerror or error}); name a file in a folder that exists and has room"
        ) from error


def columns(rows: Sequence[tuple[str, ...]]) -> str:
    """Return `rows` as aligned text, two spaces between columns."""
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
