"""Recorded workloads: readers for the formats that the field uses, and four traces in the package."""

from kvescrow.reference.traces.packaged import PACKAGED, PackagedTrace, packaged_trace
from kvescrow.reference.traces.reader import AUTO, read_trace
from kvescrow.reference.traces.record import SINGLE_TENANT, Trace, TraceFormat, TraceRequest

__all__ = [
    "AUTO",
    "PACKAGED",
    "SINGLE_TENANT",
    "PackagedTrace",
    "Trace",
    "TraceFormat",
    "TraceRequest",
    "packaged_trace",
    "read_trace",
]
