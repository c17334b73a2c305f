"""Checks what many processes saw of one ledger at the same time: is there one order of events that explains it all?

Two rules. A ledger that gives each change a commit number has stated its order, so the check is a replay: first the
numbers must respect real time, be unique and without gaps, then the tables must give every answer in that order
(ADM-2, IDN-3, SCA-2). A ledger that gives none is searched for an order, within a stated number of steps.

`check_history` does the first, `find_order` the second. `Call` is what both read: one event that one process
submitted, when on a monotonic clock that all of them share, and what it was answered.
"""

from kvescrow.checks.concurrency.check import HistoryVerdict, check_history
from kvescrow.checks.concurrency.faults import Fault, Finding
from kvescrow.checks.concurrency.history import Answer, Call, Change, Terms
from kvescrow.checks.concurrency.search import OrderVerdict, find_order

__all__ = [
    "Answer",
    "Call",
    "Change",
    "Fault",
    "Finding",
    "HistoryVerdict",
    "OrderVerdict",
    "Terms",
    "check_history",
    "find_order",
]
