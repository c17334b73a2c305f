"""The check of a history whose ledger gives commit numbers: real time, numbers, journal, replay, last state."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from attrs import evolve, field, frozen

from kvescrow.checks.concurrency.faults import Fault, Finding
from kvescrow.checks.concurrency.history import Call, Change, Terms, told
from kvescrow.checks.concurrency.order import against_time, floors
from kvescrow.checks.concurrency.replay import Replay
from kvescrow.spec.vocabulary import LedgerEvent, LedgerSnapshot, UserError

MOST_FINDINGS = 20
"""Findings that are kept: the first one explains, and others often follow from it."""
MOST_OF_A_KIND = 4
"""Findings of one fault that are kept, so that one that shows a hundred times does not hide another."""


@frozen
class HistoryVerdict:
    """What the check of a history comes to."""

    verdict: str
    """`passed`; `failed`; or `unknown`, where a call without an answer may have made a change that is not known."""
    calls: int
    changes: int
    """Changes that were replayed."""
    findings: tuple[Finding, ...]
    counts: Mapping[Fault, int] = field(repr=False)
    """All findings by fault, those that were not kept included."""

    @property
    def cause(self) -> Fault | None:
        """The fault that was found first; others may only follow from it."""
        return self.findings[0].fault if self.findings else None


def check_history(
    calls: Sequence[Call],
    terms: Terms,
    *,
    journal: Sequence[Change] | None = None,
    final: LedgerSnapshot | None = None,
    slack: int = 0,
) -> HistoryVerdict:
    """Return the verdict over `calls` on a ledger that began empty under `terms`.

    With the ledger's `journal` every change is known, and each must be what some call asked for, once; without it, a
    change that a call without an answer may have made leaves the verdict `unknown`. `final` is the ledger's state
    after the last call.

    A refusal saw the ledger's clock between the changes around it, or up to `slack` microseconds later: a store that
    keeps its clock with changes alone forgets what a refusal saw when it is opened again or asked by another gateway,
    and a clock that was stepped back meanwhile shows less.

    Raises `UserError` where there is no call with an answer, and for an answer without a commit number: `find_order`
    checks such histories.
    """
    answered = [call for call in calls if call.answer is not None]
    if not answered:
        raise UserError("no call has an answer, so nothing was checked: record a run that reaches the ledger")
    if any(call.answer is not None and call.answer.seq is None for call in answered):
        raise UserError("an answer has no commit number: give `seq`, or search for an order")
    return _Check(calls, terms, journal, slack).verdict(final)


class _Check:
    def __init__(self, calls: Sequence[Call], terms: Terms, journal: Sequence[Change] | None, slack: int) -> None:
        self._calls = calls
        self._terms = terms
        self._journal = journal
        self._slack = slack
        self._floors = floors(calls)
        self._counts: Counter[Fault] = Counter()
        self._kept: list[Finding] = []
        self._is_known = True

    def verdict(self, final: LedgerSnapshot | None) -> HistoryVerdict:
        acknowledged = self._acknowledged()
        if self._journal is None:
            changes, makers = self._from_calls(acknowledged)
        else:
            changes, makers = self._from_journal(self._journal, acknowledged)
        self._keep(against_time(self._calls, self._floors))
        self._replay(changes, makers, final)
        verdict = "failed" if self._counts else "passed" if self._is_known else "unknown"
        return HistoryVerdict(verdict, len(self._calls), len(changes), tuple(self._kept), self._counts)

    def _keep(self, findings: Iterator[Finding]) -> None:
        for finding in findings:
            self._counts[finding.fault] += 1
            if self._counts[finding.fault] <= MOST_OF_A_KIND and len(self._kept) < MOST_FINDINGS:
                self._kept.append(finding)

    def _find(self, fault: Fault, where: object, what: str) -> None:
        self._keep(iter([Finding(fault, str(where), what)]))

    def _acknowledged(self) -> dict[int, Call]:
        """Return the acknowledged changes by commit number."""
        found: dict[int, Call] = {}
        for call in self._calls:
            if call.answer is None or not call.answer.changes or call.answer.seq is None:
                continue
            other = found.setdefault(call.answer.seq, call)
            if other is not call:
                self._find(Fault.REPEATED_NUMBER, call, f"commit number {call.answer.seq} is that of {other} too")
        return found

    def _from_calls(self, acknowledged: Mapping[int, Call]) -> tuple[list[Change], dict[int, Call]]:
        """Return the changes up to the first whose maker is not known."""
        changes: list[Change] = []
        lost = [call for call in self._calls if call.answer is None and not call.failed]
        for number in range(1, max(acknowledged, default=0) + 1):
            call = acknowledged.get(number)
            if call is None and lost:
                # Any of them may have made it.
                self._is_known = False
                break
            if call is None:
                self._find(Fault.MISSING_NUMBER, f"change {number}", "no call was acknowledged with this number")
            elif call.answer is not None:
                changes.append(Change(number, call.event, call.answer))
        return changes, dict(acknowledged)

    def _from_journal(
        self, journal: Sequence[Change], acknowledged: Mapping[int, Call]
    ) -> tuple[list[Change], dict[int, Call]]:
        """Return the journal's changes, and for each the call that asked for it."""
        changes = {change.seq: change for change in journal}
        self._check_numbers(journal)
        makers: dict[int, Call] = {}
        for number, call in acknowledged.items():
            change = changes.get(number)
            if change is None or change.event != call.event:
                instead = "nothing" if change is None else told(change.event)
                self._find(Fault.LOST, call, f"acknowledged as change {number}, where the journal has {instead}")
            else:
                makers[number] = call
                if call.answer is not None and evolve(change.answer, seq=number) != call.answer:
                    what = f"{call.answer}; the journal has {change.answer}"
                    self._find(Fault.WRONG_ANSWER, call, what)
        self._match(sorted(changes.keys() - makers.keys()), changes, makers)
        return [changes[number] for number in sorted(changes)], makers

    def _check_numbers(self, journal: Sequence[Change]) -> None:
        last = 0
        for change in journal:
            if change.seq <= last:
                self._find(Fault.REPEATED_NUMBER, f"change {change.seq}", f"it comes after change {last}")
            elif change.seq > last + 1:
                self._find(Fault.MISSING_NUMBER, f"change {last + 1}", f"the journal goes on at {change.seq}")
            last = max(last, change.seq)

    def _match(self, numbers: Sequence[int], changes: Mapping[int, Change], makers: dict[int, Call]) -> None:
        """Give each unacknowledged change the call without an answer that asked for it; each call made one at most."""
        asked: dict[LedgerEvent, list[int]] = {}
        for index, call in enumerate(self._calls):
            if call.answer is None and not call.failed:
                asked.setdefault(call.event, []).append(index)
        for number in numbers:
            event = changes[number].event
            waiting = asked.get(event, [])
            # The one with the lowest floor first, since it is the one that fits the earliest change.
            waiting.sort(key=lambda index: self._floors[index], reverse=True)
            if waiting and self._floors[waiting[-1]] < 2 * number:
                makers[number] = self._calls[waiting.pop()]
                continue
            self._blame(number, event)

    def _blame(self, number: int, event: LedgerEvent) -> None:
        where = f"change {number}, {told(event)}"
        same = [call for call in self._calls if call.event == event]
        if not same:
            self._find(Fault.UNASKED, where, "nobody asked for it")
        elif any(call.failed for call in same):
            self._find(Fault.NOT_APPLIED_BUT_THERE, where, "the ledger said that nothing of it was applied")
        else:
            self._find(Fault.DOUBLED, where, f"the journal has it more often than it was asked for ({len(same)})")

    def _replay(self, changes: Sequence[Change], makers: Mapping[int, Call], final: LedgerSnapshot | None) -> None:
        replay = Replay(self._terms)
        questions: dict[int, list[Call]] = {}
        for call in self._calls:
            if call.answer is not None and not call.answer.changes and call.answer.seq is not None:
                questions.setdefault(call.answer.seq, []).append(call)
        self._ask(replay, questions.pop(0, ()), self._latest(changes, 0))
        for index, change in enumerate(changes, start=1):
            maker = makers.get(change.seq)
            self._keep(replay.change(change, authentic=maker is None or maker.authentic))
            self._ask(replay, questions.pop(change.seq, ()), self._latest(changes, index))
        if not self._is_known:
            return
        for number, late in sorted(questions.items()):
            self._find(Fault.LOST, late[0], f"it was answered after change {number}, which is not there")
        if final is not None:
            self._keep(replay.end(final))

    def _ask(self, replay: Replay, questions: Sequence[Call], until: int | None) -> None:
        for call in questions:
            self._keep(replay.question(call, until))

    def _latest(self, changes: Sequence[Change], index: int) -> int | None:
        """Return what the ledger's clock can have shown at most before the change at `index`; None: anything."""
        if not changes or changes[0].now is None:
            # Time moves by `Tick` alone.
            return 0
        following = changes[index].now if index < len(changes) else None
        return None if following is None else following + self._slack
