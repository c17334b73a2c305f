"""Every decision of a run as a journal line: checked at once by the monitor, and written where a file is named."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

from attrs import asdict, frozen

from kvescrow.checks.monitor import Finding, Monitor, Verdict, page_line
from kvescrow.reference.executions import ExecutionReply, Step
from kvescrow.reference.journal import VERSION, line_of
from kvescrow.reference.ledger import JournalEntry, LedgerConfig
from kvescrow.reference.pages import PageEvent
from kvescrow.spec.tables.registry import digest
from kvescrow.spec.vocabulary import Decision, Key, UserError


@frozen
class Checked:
    """What the tables say of a run, over all its journals."""

    events: int
    rows: frozenset[str]
    """Ids of the rows that fired."""
    findings: tuple[Finding, ...]


class RunJournal:
    """The journal of one ledger, one page pool and one worker's executions, in the order of their decisions.

    Each worker that takes a dead one's place begins with nothing, so it has a journal of its own; the first one goes
    on for the ledger.
    """

    def __init__(self, ledger: LedgerConfig, pages: int, page_length: int, path: Path | None = None) -> None:
        """Begin; `pages` counts the sink. Raises UserError where the file at `path` exists or cannot be made."""
        self._pages = {"pages": pages, "page_length": page_length, "scope_limit": None}
        self._path = path
        self._lives = [_Life({**asdict(ledger), **self._pages}, path)]

    def ledger(self, entry: JournalEntry) -> None:
        """Take a decision of the ledger."""
        self._lives[0].line(line_of(entry))

    def page(self, event: PageEvent) -> None:
        """Take a decision of the page pool."""
        self._lives[-1].line(page_line(event))

    def execution(self, event: str, key: Key, reply: ExecutionReply, parameters: Mapping[str, object]) -> None:
        """Take a decision about an execution."""
        self._lives[-1].line({"table": "execution", "event": event, **_of_execution(key, reply.decision, parameters),
                              "reason": reply.reason.value})  # fmt: skip

    def ticket(self, event: str, step: Step, decision: Decision, parameters: Mapping[str, object]) -> None:
        """Take that `step` was launched or has ended: for each execution in it, a ticket."""
        for share in step.shares:
            # Only a launch speaks of a generation.
            own = {"generation": share.generation} if event == "launch" else {}
            parts = _of_execution(share.key, decision, {**parameters, **own})
            self._lives[-1].line({"table": "ticket", "event": event, "number": step.number, **parts, "reason": "NONE"})

    def next_worker(self) -> None:
        """A worker that holds nothing takes the place of a dead one; where a file is named, `NAME.2` and so on."""
        number = len(self._lives) + 1
        path = None if self._path is None else self._path.with_name(f"{self._path.name}.{number}")
        self._lives.append(_Life(self._pages, path))

    def close(self) -> Checked:
        """Write the terminal lines and return what the tables say of the run."""
        verdicts = [life.close() for life in self._lives if life.monitor.events]
        return Checked(
            sum(verdict.events for verdict in verdicts),
            frozenset(row for verdict in verdicts for row in verdict.rows),
            tuple(finding for verdict in verdicts for finding in verdict.findings),
        )


class _Life:
    """One journal: the monitor that checks it, and its file."""

    def __init__(self, config: Mapping[str, object], path: Path | None) -> None:
        self.monitor = Monitor(config)
        self._path = path
        self._file = None if path is None else _opened(path)
        self._write({"kvescrow_journal": VERSION, "tables": digest(), "config": config})

    def line(self, line: Mapping[str, object]) -> None:
        self.monitor.feed(line)
        self._write(line)

    def close(self) -> Verdict:
        self._write({"kvescrow_journal_end": VERSION, "events": self.monitor.events, "changes": self.monitor.changes})
        if self._file is not None:
            self._file.close()
        return self.monitor.finish()

    def _write(self, line: Mapping[str, object]) -> None:
        if self._file is None:
            return
        try:
            self._file.write(json.dumps(line, separators=(",", ":")) + "\n")
        except OSError as error:
            raise UserError(f"{self._path}: {error.strerror}: make room on its disk and run again") from None


def _of_execution(key: Key, decision: Decision, parameters: Mapping[str, object]) -> dict[str, object]:
    return {"key": [key.tenant, key.request], "parameters": dict(parameters), "decision": decision.value}


def _opened(path: Path) -> TextIO:
    try:
        return path.open("x", encoding="utf-8")
    except FileExistsError:
        raise UserError(f"{path}: the file exists: name a new one, or move it away") from None
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}: name a file that can be written") from None
