"""Checks a journal against the tables, row by row: each answer in it must be the answer of the row that fires.

A journal is JSON Lines. Its header is `{"kvescrow_journal": 1, "tables": digest, "config": {...}}`, its last line
`{"kvescrow_journal_end": 1, "events": n, "changes": n}`, and between them stands one event a line. A line may speak
of a ledger, of a page pool, or of a worker's executions; `lines` says what each has. All are replayed in the worlds
of the specification. `Monitor` does the same in a running process, one event at a time.
"""

from kvescrow.checks.monitor.journal import check_journal
from kvescrow.checks.monitor.lines import page_line
from kvescrow.checks.monitor.monitor import Monitor
from kvescrow.checks.monitor.verdict import Finding, Verdict

__all__ = ["Finding", "Monitor", "Verdict", "check_journal", "page_line"]
