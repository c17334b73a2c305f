"""Commit numbers against real time: what ended before something began stands before it."""

from collections.abc import Iterator, Sequence

from kvescrow.checks.concurrency.faults import Fault, Finding
from kvescrow.checks.concurrency.history import Call


def place_of(call: Call) -> int | None:
    """Return the place of an answered call: twice its number for a change, one more for what changed nothing.

    None where the answer has no commit number.
    """
    if call.answer is None or call.answer.seq is None:
        return None
    return 2 * call.answer.seq + (not call.answer.changes)


def floors(calls: Sequence[Call]) -> list[int]:
    """Return for each call the greatest place among the calls that ended before it began; -1 where none did."""
    moments = [(call.began, 1, index) for index, call in enumerate(calls)]
    # An end at the very moment of a beginning may have come after it.
    moments += [(call.ended, 2, index) for index, call in enumerate(calls) if call.ended is not None]
    greatest, found = -1, [-1] * len(calls)
    for _, kind, index in sorted(moments):
        if kind == 1:
            found[index] = greatest
        else:
            place = place_of(calls[index])
            greatest = max(greatest, -1 if place is None else place)
    return found


def against_time(calls: Sequence[Call], before: Sequence[int]) -> Iterator[Finding]:
    """Yield a finding for each call that stands before one that had ended when it began; `before` are its floors."""
    for call, floor in zip(calls, before, strict=True):
        place = place_of(call)
        if place is not None and place < floor:
            number = call.answer.seq if call.answer is not None else None
            yield Finding(
                Fault.AGAINST_TIME,
                str(call),
                f"it has commit number {number}, but an event with number {floor // 2} had ended before it began",
            )
