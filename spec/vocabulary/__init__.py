"""The shared words: states, events, replies, reasons, the scope record and the snapshots that are compared.

An implementation may import this package and nothing else of `spec`, so that the oracle shares no decision with
its subject.
"""

from kvescrow.spec.vocabulary.errors import UserError
from kvescrow.spec.vocabulary.events import (
    MICROSECONDS_PER_SECOND,
    Cancel,
    Extend,
    Fence,
    Finish,
    Forget,
    Key,
    LedgerEvent,
    LedgerEventKind,
    Preempt,
    Promote,
    Receipt,
    Renew,
    ReportUsage,
    Reserve,
    SetBudget,
    SetPoolLimit,
    SetTenantLimit,
    Start,
    Sweep,
    Tick,
    event_name,
)
from kvescrow.spec.vocabulary.replies import Decision, Reason
from kvescrow.spec.vocabulary.scope import PrefixScope
from kvescrow.spec.vocabulary.snapshots import (
    LedgerSnapshot,
    PageSnapshot,
    PoolSnapshot,
    ReservationSnapshot,
    TenantSnapshot,
)
from kvescrow.spec.vocabulary.states import (
    CHARGED_STATES,
    OWNED_STATES,
    TERMINAL_STATES,
    ExecutionState,
    HolderState,
    PageState,
    ReservationState,
    StopOutcome,
    TicketState,
)

__all__ = [
    "CHARGED_STATES",
    "MICROSECONDS_PER_SECOND",
    "OWNED_STATES",
    "TERMINAL_STATES",
    "Cancel",
    "Decision",
    "ExecutionState",
    "Extend",
    "Fence",
    "Finish",
    "Forget",
    "HolderState",
    "Key",
    "LedgerEvent",
    "LedgerEventKind",
    "LedgerSnapshot",
    "PageSnapshot",
    "PageState",
    "PoolSnapshot",
    "Preempt",
    "PrefixScope",
    "Promote",
    "Reason",
    "Receipt",
    "Renew",
    "ReportUsage",
    "ReservationSnapshot",
    "ReservationState",
    "Reserve",
    "SetBudget",
    "SetPoolLimit",
    "SetTenantLimit",
    "Start",
    "StopOutcome",
    "Sweep",
    "TenantSnapshot",
    "Tick",
    "TicketState",
    "UserError",
    "event_name",
]
