"""Reading a journal file line by line; only one line is in memory at a time."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from kvescrow.checks.monitor.lines import Entry, integer, mapping
from kvescrow.checks.monitor.monitor import MOST_FINDINGS, WHOLE_CHECK_EVERY, Monitor
from kvescrow.checks.monitor.verdict import Verdict
from kvescrow.spec.tables.registry import digest
from kvescrow.spec.vocabulary import UserError
from kvescrow.spec.world.ledger import Watch

VERSION = 1
"""The format version that this reads."""
_LONGEST_LINE = 1 << 24
"""16 MiB: far above any line of a journal, so that a file without line ends is refused before memory runs out."""
_HEADER, _END = "kvescrow_journal", "kvescrow_journal_end"


def check_journal(
    path: Path,
    *,
    whole_check_every: int = WHOLE_CHECK_EVERY,
    most_findings: int = MOST_FINDINGS,
    watch: Watch | None = None,
) -> Verdict:
    """Return the verdict over the journal at `path` (VIS-3, TGT-3). `watch` sees every view before a row fires.

    Raises `UserError`, which names file, line and remedy, for a journal that is empty, cut off, malformed, out of
    order, without events, or made under other tables: nothing was checked then.
    """
    try:
        with path.open("rb") as file:
            return _Reader(path, file).verdict(whole_check_every, most_findings, watch)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}: name a journal that can be read") from error


class _Reader:
    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path = path
        self._file = file
        self._number = 0

    def verdict(self, whole_check_every: int, most_findings: int, watch: Watch | None) -> Verdict:
        entries = self._entries()
        try:
            config = self._config(next(entries, None))
            monitor = Monitor(config, whole_check_every=whole_check_every, most_findings=most_findings, watch=watch)
            for entry in entries:
                if _END in entry:
                    _check_end(entry, monitor)
                    if next(entries, None) is not None:
                        raise UserError("there are lines after the terminal line: keep one run a file")
                    return monitor.finish()
                monitor.feed(entry)
        except UserError as error:
            raise UserError(f"{self._path}:{self._number}: {error}") from error
        raise UserError(
            f"{self._path}:{self._number}: the terminal line is missing, so the journal was cut off: "
            "copy it again, or record the run again and close the journal"
        )

    def _entries(self) -> Iterator[Entry]:
        while line := self._file.readline(_LONGEST_LINE):
            self._number += 1
            yield _object(line)

    def _config(self, header: Entry | None) -> Entry:
        if header is None:
            raise UserError("the file is empty, but a journal begins with a header line: record the run again")
        if _HEADER not in header:
            raise UserError(f'this is no journal: its first line must be {{"{_HEADER}": {VERSION}, ...}}')
        if header[_HEADER] != VERSION or type(header[_HEADER]) is not int:
            raise UserError(
                f"format version {header[_HEADER]!r}, but this reads {VERSION}: use the kvescrow that wrote it"
            )
        if header.keys() != {_HEADER, "tables", "config"}:
            raise UserError(f"the header has {', '.join(header)}; it needs {_HEADER}, tables, config")
        known = digest()
        if header["tables"] != known:
            raise UserError(
                f"made under tables {str(header['tables'])[:12]}, but these are {known[:12]}: "
                "check it with the kvescrow that made it, or record the run again"
            )
        return mapping(header, "config")


def _object(line: bytes) -> Entry:
    cut = not line.endswith(b"\n")
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        where = "the line was cut off" if cut else "the line is not JSON"
        raise UserError(f"{where}: copy the journal again, or record the run again") from error
    if not isinstance(value, dict):
        raise UserError("the line is no JSON object: every line of a journal is one")
    return value


def _check_end(end: Entry, monitor: Monitor) -> None:
    if end.keys() != {_END, "events", "changes"} or end[_END] != VERSION or type(end[_END]) is not int:
        raise UserError(f'a terminal line is {{"{_END}": {VERSION}, "events": n, "changes": n}}: restore it')
    for name, counted in (("events", monitor.events), ("changes", monitor.changes)):
        said = integer(end, name)
        if said != counted:
            raise UserError(f"the terminal line says {said} {name}, but there are {counted}: restore the journal")
