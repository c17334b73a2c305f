"""The admission ledger: who may use how much of a pool, one event at a time (ADM, IDN, LIF, REC, LEA, QUE, GRO).

Decisions are pure functions over records (`decisions`). `Books` applies them in memory; a store makes them atomic
and durable. `Admission` stands in front and does what becomes due. The stores that need a server and its client
library are imported by themselves: `postgres.PostgresLedger` and `valkey.ValkeyLedger`.
"""

from kvescrow.reference.ledger.admission import Admission, FollowUp, Served
from kvescrow.reference.ledger.aio import AsyncLedger
from kvescrow.reference.ledger.memory import MemoryLedger
from kvescrow.reference.ledger.port import (
    Clock,
    JournalEntry,
    Ledger,
    LedgerConfig,
    LedgerReply,
    OutcomeUnknown,
    Recorder,
    StorageError,
    StorageFull,
    StoreClock,
    TenantConfig,
)
from kvescrow.reference.ledger.sqlite import SqliteLedger

__all__ = [
    "Admission",
    "AsyncLedger",
    "Clock",
    "FollowUp",
    "JournalEntry",
    "Ledger",
    "LedgerConfig",
    "LedgerReply",
    "MemoryLedger",
    "OutcomeUnknown",
    "Recorder",
    "Served",
    "SqliteLedger",
    "StorageError",
    "StorageFull",
    "StoreClock",
    "TenantConfig",
]
