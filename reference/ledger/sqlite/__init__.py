"""A ledger in one SQLite file: durable, one writer, group commit (SCA-1, LEA-7).

`SqliteLedger` decides and commits. `LedgerFile` is the only module that talks to SQLite.
"""

from kvescrow.reference.ledger.sqlite.ledger import SqliteLedger

__all__ = ["SqliteLedger"]
