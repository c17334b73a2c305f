"""Finding out that a shared store went back in time: restored from a backup, or failed over to an older copy.

Then grants that were acknowledged may be missing, and their work may still run (LEA-7). No store can see this by
itself, since an old copy is whole. Each gateway therefore remembers the last change it saw, and compares.
"""

import os
from pathlib import Path

from attrs import frozen

from kvescrow.spec.vocabulary import UserError

_WIDTH = 20
"""Decimal digits of a 64-bit number with its sign; a fixed width lets the file be written over in place."""


@frozen
class Mark:
    """A moment in the history of a store."""

    epoch: int
    """Raised each time an operator confirms a recovery; commit numbers are comparable within one epoch."""
    seq: int
    """Commit number of the last change."""
    writer: str
    """Gateway incarnation that made this change, as 32 hexadecimal digits; empty where there is none."""


class Witness:
    """The last mark that a gateway saw. With a file it survives the gateway, and so a joint restart with the store."""

    def __init__(self, path: Path | None = None) -> None:
        """Remember in memory, or in the file at `path`; raises `UserError` where that is not such a file."""
        self._path = path
        self._mark: Mark | None = None
        self._file: int | None = None
        if path is None:
            return
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            content = os.pread(self._file, 1024, 0).decode("ascii")
            if content:
                epoch, seq, writer = content.split()
                self._mark = Mark(int(epoch), int(seq), writer.strip("-"))
        except OSError as error:
            raise UserError(f"{path}: {error.strerror}: name a file that can be written for the witness") from None
        except ValueError:
            self.close()
            raise UserError(f"{path}: this is not a witness of a ledger: name another file") from None

    @property
    def mark(self) -> Mark | None:
        """The last mark; None where nothing was seen yet."""
        return self._mark

    def saw(self, mark: Mark) -> None:
        """Remember `mark`."""
        if mark == self._mark:
            return
        self._mark = mark
        if self._file is not None:
            line = f"{mark.epoch:0{_WIDTH}d} {mark.seq:0{_WIDTH}d} {mark.writer:->32}\n"
            os.pwrite(self._file, line.encode("ascii"), 0)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def went_back(mark: Mark | None, now: Mark, writer_then: str | None) -> bool:
    """Return whether a store that shows `now` lacks something of what `mark` saw.

    `writer_then` is the writer of the change with the mark's number in the store, None where that is no longer kept.
    A later epoch was confirmed by an operator, who answers for what is missing.
    """
    if mark is None or now.epoch > mark.epoch:
        return False
    if now.epoch < mark.epoch or now.seq < mark.seq:
        return True
    if now.seq == mark.seq:
        return now.writer != mark.writer
    return writer_then is not None and writer_then != mark.writer
