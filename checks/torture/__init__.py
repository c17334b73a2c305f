"""Torture: gateways at work on one store while processes die, replies vanish, disks fill up and clocks step.

Several gateway processes take requests through whole lives, with signed receipts, through the front of the ledger.
Each event is logged before it is sent and after its answer, by processes that share a monotonic clock, so a log
survives its writer. Meanwhile faults of every kind that the store can suffer are brought about. Afterwards the whole
history is checked (`checks.concurrency`), the journal is read row by row (`checks.monitor`), and work that was really
running is added up against the pool, whatever the ledger says (`physical`).

A campaign in which some kind of fault never happened is not passed.
"""

from kvescrow.checks.torture.campaign import torture
from kvescrow.checks.torture.faults import FaultKind
from kvescrow.checks.torture.result import TortureResult

__all__ = ["FaultKind", "TortureResult", "torture"]
