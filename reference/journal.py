"""A ledger's journal as JSON Lines: every decided event, in order, so that a run can be checked afterwards (VIS-3).

The first line is the header: format version, digest of the tables that the run claims to follow, configuration.
Then comes one line an event. The last line holds the counts; a journal without it was cut off.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from attrs import asdict

from kvescrow.reference.ledger.port import JournalEntry, LedgerConfig, key_of
from kvescrow.spec.vocabulary import (
    Cancel,
    Decision,
    Extend,
    Fence,
    Finish,
    ForceRelease,
    Forget,
    Preempt,
    Promote,
    Renew,
    ReportUsage,
    Reserve,
    SetBudget,
    SetPoolLimit,
    SetTenantLimit,
    Start,
    Sweep,
    Tick,
    UserError,
    event_name,
)

VERSION = 1
"""Version of the format, raised when a reader of the one before would misread it."""

_NAMES: Mapping[type, tuple[str, ...]] = {
    Reserve: ("amount", "digest", "deadline", "least_service", "max_wait", "lease"),
    Promote: ("lease",),
    Start: ("life", "owner", "lease"),
    Extend: ("owner", "generation", "bound"),
    ReportUsage: ("owner", "generation", "used"),
    Cancel: ("life",),
    Preempt: ("generation",),
    Renew: ("life", "owner", "generation", "lease"),
    Sweep: (),
    Fence: ("owner",),
    ForceRelease: ("generation",),
    Forget: (),
    Tick: ("now",),
    SetPoolLimit: ("limit",),
    SetTenantLimit: ("limit",),
    SetBudget: ("budget",),
}
"""Parameters of each event, besides whether its caller or proof is good; a receipt is taken apart by itself."""

_NEEDS_AUTHORITY = (Reserve, Start, Extend, ReportUsage, Cancel, Preempt, Renew, ForceRelease)


def parameters_of(entry: JournalEntry) -> dict[str, object]:
    """Return the parameters of the event as the tables name them.

    `authorised` is false for a tenant that the ledger does not know, since nobody is authorised for it.
    """
    event = entry.event
    if isinstance(event, Finish):
        receipt = event.receipt
        return {
            "authentic": entry.vouched,
            "owner": receipt.owner,
            "generation": receipt.generation,
            "outcome": receipt.outcome.value,
            "used": receipt.used,
        }
    named = {name: getattr(event, name) for name in _NAMES[type(event)]}
    if isinstance(event, Fence):
        return {"authentic": entry.vouched, **named}
    if isinstance(event, _NEEDS_AUTHORITY):
        return {"authorised": entry.vouched, **named}
    return named


def line_of(entry: JournalEntry) -> dict[str, object]:
    """Return the journal's line for one decided event."""
    key = key_of(entry.event)
    return {
        "event": event_name(entry.event).value,
        "now": entry.now,
        "key": None if key is None else [key.tenant, key.request],
        "parameters": parameters_of(entry),
        "decision": entry.reply.decision.value,
        "reason": entry.reply.reason.value,
        "seq": entry.seq,
        "state": None if entry.state is None else entry.state.value,
        "life": entry.life,
        "generation": entry.generation,
    }


class JournalFile:
    """A journal of any events, line by line: a ledger's, a page pool's, a worker's, or all of a run in their order.

    Each line is handed to the operating system before the call returns, so a killed process loses no line.
    """

    def __init__(self, path: Path, config: Mapping[str, object], tables: str) -> None:
        """Begin the journal at `path` of a run that starts under `config`; `tables` is the digest of its tables.

        Raises `UserError` where the file exists or cannot be made: a journal is never written over or continued.
        """
        self._path = path
        try:
            self._file = path.open("x", encoding="utf-8")
        except FileExistsError:
            raise UserError(f"{path}: the file exists: name a new one, or move it away") from None
        except OSError as error:
            raise UserError(f"{path}: {error.strerror}: name a file that can be written") from None
        self._events = 0
        self._changes = 0
        self._write({"kvescrow_journal": VERSION, "tables": tables, "config": config})

    def write(self, line: Mapping[str, object]) -> None:
        """Write the line of one decided event. Raises `UserError` where there is no room."""
        self._write(line)
        self._events += 1
        self._changes += not Decision(line["decision"]).changes_nothing

    def close(self) -> None:
        """Write the terminal line with the counts, and close the file; closing twice is harmless."""
        if self._file.closed:
            return
        self._write({"kvescrow_journal_end": VERSION, "events": self._events, "changes": self._changes})
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A run that failed leaves its journal without the terminal line, so that it cannot pass for a whole one.
        if error is None:
            self.close()
        else:
            self._file.close()

    def _write(self, line: Mapping[str, object]) -> None:
        try:
            self._file.write(json.dumps(line, separators=(",", ":")) + "\n")
            self._file.flush()
        except OSError as error:
            raise UserError(f"{self._path}: {error.strerror}: make room on its disk and begin a new journal") from None


class JournalWriter(JournalFile):
    """The journal of one ledger; give it to the ledger as its `recorder`, and close it after the last event."""

    def __init__(self, path: Path, config: LedgerConfig, tables: str) -> None:
        """Begin the journal at `path`, of a ledger that starts empty under `config`; `tables` is their digest."""
        super().__init__(path, asdict(config), tables)

    def __call__(self, entry: JournalEntry) -> None:
        """Write the line of one decided event. Raises `UserError` where there is no room."""
        self.write(line_of(entry))
