"""A search for an order that explains a history without commit numbers (linearizability).

The search of Wing and Gong with Lowe's memory: take any call that began before every call not yet taken had ended,
ask the tables for its answer, go on if it is the one that was given, go back otherwise; never look twice at the same
calls taken with the same state. A call without an answer may be taken at any time after it began, or never. It costs
time exponential in the overlap, so it stops after a stated number of steps and then knows nothing.

Time moves by `Tick` alone: the ledger's clock cannot be seen from outside.
"""

from collections.abc import Iterator, Sequence

from attrs import frozen

from kvescrow.checks.concurrency.faults import Fault, Finding
from kvescrow.checks.concurrency.history import Answer, Call, Terms
from kvescrow.checks.concurrency.parts import parts_of
from kvescrow.checks.concurrency.states import State, States
from kvescrow.spec.vocabulary import Decision, Reserve, Start, UserError

MOST_STEPS = 200_000
"""Steps in all: some tens of seconds."""


@frozen
class OrderVerdict:
    """What a search comes to."""

    verdict: str
    """`passed`: an order explains every answer; `failed`: none does; `unknown`: the steps ran out."""
    calls: int
    steps: int
    by: str
    """What was searched at a time: `whole`, or the calls of one `tenant` or one `key`."""
    findings: tuple[Finding, ...] = ()


def find_order(calls: Sequence[Call], terms: Terms, *, most_steps: int = MOST_STEPS) -> OrderVerdict:
    """Return whether some order of `calls`, true to real time, explains their answers on a ledger empty under `terms`.

    Commit numbers and free amounts are not looked at. Raises `UserError` where there is no call with an answer.
    """
    if not any(call.answer is not None for call in calls):
        raise UserError("no call has an answer, so nothing was checked: record a run that reaches the ledger")
    parts = parts_of(calls, terms)
    steps = 0
    for twice in _drawn_twice(calls):
        return OrderVerdict("failed", len(calls), steps, parts.by, (twice,))
    for part in parts.parts:
        search = _Search(part, terms, most_steps - steps, names_are_given=parts.by != "whole")
        finding = search.run()
        steps += search.steps
        if finding is not None:
            return OrderVerdict("failed", len(calls), steps, parts.by, (finding,))
        if search.gave_up:
            return OrderVerdict("unknown", len(calls), steps, parts.by)
    return OrderVerdict("passed", len(calls), steps, parts.by)


class _Search:
    def __init__(self, calls: Sequence[Call], terms: Terms, most_steps: int, *, names_are_given: bool) -> None:
        # A call that the ledger said it did not keep has no place in the order.
        self._calls = sorted((call for call in calls if not call.failed), key=lambda call: call.began)
        self._states = States(terms)
        self._most_steps = most_steps
        self._names_are_given = names_are_given
        self._answered = sum(1 << index for index, call in enumerate(self._calls) if call.answer is not None)
        self.steps = 0
        self.gave_up = False
        self._deepest = -1
        self._stuck: Finding | None = None

    def run(self) -> Finding | None:
        """Return None where an order was found or the steps ran out, else the call that no order could take."""
        start = self._states.first()
        stack: list[tuple[int, State, list[int]]] = [(0, start, self._next(0))]
        seen = {(0, start)}
        while stack:
            taken, state, choices = stack[-1]
            if taken & self._answered == self._answered:
                return None
            if not choices:
                stack.pop()
                continue
            if self.steps >= self._most_steps:
                self.gave_up = True
                return None
            self.steps += 1
            index = choices.pop()
            after = self._take(state, index, taken)
            if after is None:
                continue
            mark = (taken | 1 << index, after)
            if mark not in seen:
                seen.add(mark)
                stack.append((*mark, self._next(mark[0])))
        if self._stuck is None:
            raise AssertionError("a search ends without an order only where some answer did not fit")
        return self._stuck

    def _next(self, taken: int) -> list[int]:
        """Return the calls that may come next, those that ended first last, since they are the likeliest."""
        ready: list[int] = []
        first_end: int | None = None
        # Calls stand in the order in which they began, so the first that began too late ends the walk.
        for index in range((~taken & taken + 1).bit_length() - 1, len(self._calls)):
            call = self._calls[index]
            if taken >> index & 1:
                continue
            if first_end is not None and call.began > first_end:
                break
            ready.append(index)
            if call.answer is not None and call.ended is not None:
                first_end = call.ended if first_end is None else min(first_end, call.ended)
        return sorted(ready, key=self._urgency, reverse=True)

    def _urgency(self, index: int) -> tuple[bool, int]:
        call = self._calls[index]
        return (call.answer is None, call.ended if call.ended is not None else call.began)

    def _take(self, state: State, index: int, taken: int) -> State | None:
        """Return the state after the call, or None where its answer is not what the tables give."""
        call = self._calls[index]
        names = call.answer if self._names_are_given else None
        expected, after = self._states.after(state, call, names)
        if call.answer is None or _same(call.answer, expected):
            return after
        depth = taken.bit_count()
        if depth > self._deepest:
            self._deepest = depth
            self._stuck = Finding(
                Fault.WRONG_ANSWER, str(call), f"{call.answer}; after the {depth} calls before it, {expected}"
            )
        return None


def _drawn_twice(calls: Sequence[Call]) -> Iterator[Finding]:
    """Yield the calls that drew a life or a generation that another had drawn (IDN-5); parts do not see each other."""
    drawn: dict[tuple[str, int], Call] = {}
    for call in calls:
        answer = call.answer
        if answer is None:
            continue
        match call.event, answer.decision:
            case Reserve(), Decision.ADMITTED | Decision.QUEUED:
                name = ("life", answer.life)
            case Start(), Decision.STARTED:
                name = ("generation", answer.generation)
            case _:
                continue
        other = drawn.setdefault(name, call)
        if other is not call:
            yield Finding(Fault.DOUBLED, str(call), f"{name[0]} {name[1]} was drawn by {other} too")


def _same(found: Answer, expected: Answer) -> bool:
    return (found.decision, found.reason, found.state, found.life, found.generation) == (
        expected.decision,
        expected.reason,
        expected.state,
        expected.life,
        expected.generation,
    )
