"""The kinds of fault that a campaign brings about."""

from enum import Enum


class FaultKind(Enum):
    """The kinds, by the name that results use."""

    GATEWAY_KILLED = "gateway_killed"
    """kill -9 of a gateway with work running; its incarnation is fenced off afterwards (LEA-4)."""
    GATEWAY_STOPPED = "gateway_stopped"
    """SIGSTOP of a gateway until its leases have run out, then SIGCONT (LEA-3, LEA-5)."""
    SERVER_KILLED = "server_killed"
    """kill -9 of the process that has the store; it is opened again on the same files (LEA-7)."""
    SERVER_STOPPED = "server_stopped"
    """SIGSTOP of the process that has the store, then SIGCONT."""
    DISK_FULL = "disk_full"
    """No file of the store may grow for a while; counted where a caller was told."""
    CLOCK_FORWARD = "clock_forward"
    """The clock that the store reads jumps ahead (LEA-6)."""
    CLOCK_BACK = "clock_back"
    """The clock that the store reads jumps back (LEA-6)."""
    CONNECTION_STORM = "connection_storm"
    """Many callers connect and submit at once."""
    REPLY_LOST = "reply_lost"
    """An answer never reaches its caller, who submits the event again (IDN-3, REC-3)."""
    EVENT_REPEATED = "event_repeated"
    """An event is sent twice at the same time, on two connections."""


BY_GATEWAYS = frozenset({FaultKind.REPLY_LOST, FaultKind.EVENT_REPEATED})
"""Faults that the gateways bring about by themselves, a few in a hundred events."""
