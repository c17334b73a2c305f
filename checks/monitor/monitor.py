"""The monitor: events in, findings out, a verdict at the end."""

from collections.abc import Sequence

from kvescrow.checks.monitor.answer import UNCHANGED, Answer
from kvescrow.checks.monitor.executions import ExecutionSide
from kvescrow.checks.monitor.ledger import LedgerSide
from kvescrow.checks.monitor.lines import LEDGER_TABLES, PAGE_TABLES, Entry, configs_of, reply_of, table_of
from kvescrow.checks.monitor.pages import PageSide
from kvescrow.checks.monitor.verdict import Finding, Verdict
from kvescrow.spec.vocabulary import Decision, Reason, UserError
from kvescrow.spec.world.ledger import Watch

WHOLE_CHECK_EVERY = 10_000
"""Events between two checks of every invariant on every record; the counters are checked after each change anyway."""
MOST_FINDINGS = 20
"""Findings that are kept: the first one explains, and others often follow from it."""
_RECORDS_FACTOR = 4
"""A whole check waits for this many events a record, so that it never takes more than a part of the time."""


class Monitor:
    """Checks the events of one run, in the order in which they happened.

    Memory is that of the worlds: every record, page and execution that is still known.
    """

    def __init__(
        self,
        config: Entry,
        *,
        whole_check_every: int = WHOLE_CHECK_EVERY,
        most_findings: int = MOST_FINDINGS,
        watch: Watch | None = None,
    ) -> None:
        """Start as a run starts under `config`, the header's: a ledger, a page pool, or both, with nothing in them.

        Every invariant is checked on every record after `whole_check_every` events, later where there are many
        records, and at the end. `watch` sees every view before a row fires. Raises `UserError` where the configuration
        is malformed.
        """
        ledger, pages = configs_of(config)
        self._ledger = LedgerSide(ledger, watch) if ledger else None
        self._pages = PageSide(pages, watch) if pages else None
        self._executions = ExecutionSide(watch)
        self._whole_check_every = whole_check_every
        self._most_findings = most_findings
        self._next_whole_check = whole_check_every
        self._rows: dict[str, int] = {}
        self._findings: list[Finding] = []
        self._omitted = 0
        self.events = 0
        """Events so far."""
        self.changes = 0
        """Events so far whose answer says that something changed."""

    @property
    def findings(self) -> Sequence[Finding]:
        """Findings so far, the first ones where there are many."""
        return self._findings

    def feed(self, entry: Entry) -> Sequence[Finding]:
        """Check one event, given as its journal line's values, and return what is wrong with it.

        Raises `UserError` where the line is malformed or out of order: then there is no verdict.
        """
        table = table_of(entry)
        decision, reason = reply_of(entry)
        answer = self._answer(table, entry, decision)
        self.events += 1
        self.changes += decision not in UNCHANGED
        self._rows[answer.row] = self._rows.get(answer.row, 0) + 1
        found = self._differences(entry, answer, decision, reason)
        found += [self._finding(entry, answer.row, invariant, "it does not hold") for invariant in answer.broken]
        if self.events >= self._next_whole_check:
            found += self._whole_check(entry, answer.row)
        self._keep(found)
        return found

    def finish(self) -> Verdict:
        """Check every invariant once more and return the verdict. Raises `UserError` where there was no event."""
        if not self.events:
            raise UserError("there is no event, so nothing was checked: record a run that does something")
        self._keep(
            [
                Finding(self.events + 1, "end of the run", "no row", invariant, "it does not hold")
                for invariant in self._broken()
            ]
        )
        return Verdict(self.events, dict(sorted(self._rows.items())), tuple(self._findings), self._omitted)

    def _answer(self, table: str, entry: Entry, decision: Decision) -> Answer:
        if table in LEDGER_TABLES:
            if self._ledger is None:
                raise UserError("an event of a ledger, but config names none: give pool_limit, tenants, retention")
            return self._ledger.answer(table, entry, decision)
        if table in PAGE_TABLES:
            if self._pages is None:
                raise UserError("an event of a page pool, but config names none: give pages and page_length")
            return self._pages.answer(table, entry, decision)
        return self._executions.answer(table, entry)

    def _differences(self, entry: Entry, answer: Answer, decision: Decision, reason: Reason) -> list[Finding]:
        expected, found = [], []
        if answer.decision is not decision or answer.reason is not reason:
            expected.append(_reply(answer.decision, answer.reason))
            found.append(_reply(decision, reason))
        for name, value in answer.facts.items():
            said = entry.get(name, value)
            # A comparison alone would let true pass for 1.
            if said != value or type(said) is not type(value):
                expected.append(f"{name} {value}")
                found.append(f"{name} {said}")
        if not expected:
            return []
        return [self._finding(entry, answer.row, ", ".join(expected), ", ".join(found))]

    def _finding(self, entry: Entry, row: str, expected: str, found: str) -> Finding:
        about = [f"{name} {entry[name]}" for name in ("key", "page", "holder", "number") if entry.get(name) is not None]
        return Finding(self.events + 1, " ".join([str(entry["event"]), *about]), row, expected, found)

    def _whole_check(self, entry: Entry, row: str) -> list[Finding]:
        records = sum(len(side) for side in (self._ledger, self._pages, self._executions) if side is not None)
        self._next_whole_check = self.events + max(self._whole_check_every, _RECORDS_FACTOR * records)
        return [self._finding(entry, row, invariant, "it does not hold") for invariant in self._broken()]

    def _broken(self) -> list[str]:
        sides = (self._ledger, self._pages, self._executions)
        return [invariant for side in sides if side is not None for invariant in side.broken()]

    def _keep(self, found: Sequence[Finding]) -> None:
        room = self._most_findings - len(self._findings)
        self._findings += found[:room]
        self._omitted += max(0, len(found) - room)


def _reply(decision: Decision, reason: Reason) -> str:
    return decision.value if reason is Reason.NONE else f"{decision.value} {reason.value}"
