"""What verbs share: exit statuses, the `--json` option, atomic files, and text for people."""

import json
import math
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from kvescrow.spec.vocabulary import UserError

EXIT_PASSED = 0
EXIT_NOT_PASSED = 1
EXIT_USER_ERROR = 2
EXIT_NOT_RUN = 3

Json = Mapping[str, Any]
Command = TypeVar("Command", bound=Callable[..., Any])


def json_option(function: Command) -> Command:
    """Add `--json [FILE]`: the result as JSON, to standard output where no file is named.

    A file that cannot be written is refused before the verb does anything, so that no result is lost after a long run.
    """

    @wraps(function)
    def checked(*arguments: Any, json_file: str | None, **options: Any) -> Any:
        if json_file is not None:
            _refuse_two_uses(json_file, options)
        # A folder that the verb is told to write may be missing yet.
        if json_file not in (None, "-") and Path(json_file).parent not in options.values():
            refuse_unwritable(Path(json_file))
        return function(*arguments, json_file=json_file, **options)

    option = click.option(
        "--json",
        "json_file",
        is_flag=False,
        flag_value="-",
        default=None,
        metavar="[FILE]",
        help="Write the result as JSON to FILE, or to standard output where FILE is `-` or left out.",
    )
    return cast(Command, option(checked))


class FiniteRange(click.FloatRange):
    """A number in a range; `nan` and `inf` are in none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number; a usage error names what is no finite one."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


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


def _refuse_two_uses(json_file: str, options: Mapping[str, Any]) -> None:
    """Raise `UserError` where the result would be written over another file of the same command line."""
    for value in options.values():
        for each in value if isinstance(value, tuple) else (value,):
            same = isinstance(each, str | Path) and os.path.realpath(each) == os.path.realpath(json_file)
            if same and os.path.realpath(json_file) != os.path.realpath("."):
                raise UserError(f"{json_file}: named twice in this command; name another file for --json")


def refuse_unwritable(path: Path) -> None:
    """Raise `UserError` where no file can be written to `path`: before a long run, not after it."""
    if os.path.isdir(path):
        raise UserError(f"{path}: is a directory; name a file in it")
    if _is_special(path):
        if not os.access(path, os.W_OK):
            raise UserError(f"{path}: cannot be written (Permission denied); name another file")
        return
    if not os.path.isdir(path.parent):
        raise UserError(f"{path}: cannot be written (no folder {path.parent}); name a file in a folder that exists")
    if not os.access(path.parent, os.W_OK):
        raise UserError(f"{path}: cannot be written (Permission denied); name a file in another folder")


def make_folder(path: Path) -> None:
    """Make the folder `path` where it is missing; raise `UserError` where nothing can be written into it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{path}: cannot be made ({error.strerror or error}); name another folder") from error
    if not os.access(path, os.W_OK):
        raise UserError(f"{path}: cannot be written (Permission denied); name another folder")


def new_file(_: click.Context, __: click.Parameter, path: Path | None) -> Path | None:
    """Return what an option names: the callback of one whose file is written after a long run, and must be new."""
    if path is not None and os.path.lexists(path):
        raise UserError(f"{path}: exists already; name a new file")
    if path is not None:
        refuse_unwritable(path)
    return path


def refuse_unknown_picture(path: Path) -> None:
    """Raise `UserError` where `path` is no name of a picture that is written here, or cannot be written."""
    if path.suffix not in (".png", ".svg"):
        raise UserError(f"{path}: no known kind of picture; name a .png or .svg file")
    refuse_unwritable(path)


def _is_special(path: Path) -> bool:
    """Return whether there is a device or a pipe at `path`: it is written to, and never replaced by a file."""
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)


def write_atomically(path: Path, text: str) -> None:
    """Write `text` to `path`, whole or not at all; raise `UserError` where it cannot be written.

    A link stays a link, a file keeps its permissions, and a new one gets those that any new file has. A device or a
    pipe is written to as it is.
    """
    try:
        if _is_special(path):
            path.write_text(text, "utf-8", "backslashreplace")
            return
        final = Path(os.path.realpath(path))
        handle, temporary = tempfile.mkstemp(dir=final.parent, prefix=".kvescrow.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text)
            os.chmod(temporary, _mode_of(final))
            os.replace(temporary, final)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise UserError(
            f"{path}: cannot be written ({error.strerror or error}); name a file in a folder that exists and has room"
        ) from error


def _mode_of(path: Path) -> int:
    """Return the permissions of the file at `path`, or those of a new one."""
    try:
        return path.stat().st_mode & 0o7777
    except FileNotFoundError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask


def columns(rows: Sequence[tuple[str, ...]]) -> str:
    """Return `rows` as aligned text, two spaces between columns."""
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
