"""Conformance runs: a real workload on a real paged decoder, under the reference's control (CON-1 to CON-3).

`workload` is what is asked, `control` the reference, `machine` and `frames` the device and its pages, `apart` the same
in a process of its own, `worker` what binds them, `order` when it hears of what is over, `loop` what comes when and
what interrupts the worker, `conduct` the seam for sabotage, `judge` the comparison with an independent decode,
`harness` the whole, `courses` the runs by which its coverage of the tables is measured.
"""

from kvescrow.gpu_harness.conform.arrivals import Progress
from kvescrow.gpu_harness.conform.conduct import Conduct, LaunchedStep
from kvescrow.gpu_harness.conform.control import ConformFault
from kvescrow.gpu_harness.conform.harness import conform
from kvescrow.gpu_harness.conform.result import ConformResult, Verdict
from kvescrow.gpu_harness.conform.settings import DEFAULT_REQUESTS, DTYPES, Settings

__all__ = [
    "DEFAULT_REQUESTS",
    "DTYPES",
    "Conduct",
    "ConformFault",
    "ConformResult",
    "LaunchedStep",
    "Progress",
    "Settings",
    "Verdict",
    "conform",
]
