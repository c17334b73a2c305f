"""The admission ledger: who may use how much of a pool, one event at a time (ADM, IDN, LIF, REC, LEA, QUE, GRO).

Decisions are pure functions over records (`decisions`). `Books` applies them in memory; a store makes them atomic
and durable. `Admission` stands in front and does what becomes due.
"""

from kvescrow.reference.ledger.admission import Admission, FollowUp, Served
from kvescrow.reference.ledger.memory import MemoryLedger
from kvescrow.reference.ledger.port import (
    Clock,
    JournalEntry,
    Ledger,
    LedgerConfig,
    LedgerReply,
    Recorder,
    StorageError,
    StorageFull,
    TenantConfig,
)
from kvescrow.reference.ledger.sqlite import SqliteLedger

__all__ = [
    "Admission",
    "Clock",
    "FollowUp",
    "JournalEntry",
    "Ledger",
    "LedgerConfig",
    "LedgerReply",
    "MemoryLedger",
    "Recorder",
    "Served",
    "SqliteLedger",
    "StorageError",
    "StorageFull",
    "TenantConfig",
]
