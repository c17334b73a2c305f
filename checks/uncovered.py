"""Requirements that no row, law or test answers to yet, each with the reason.

The list is strict: an entry that is answered to after all fails the trace, so that it cannot outlive its cause.
"""

from collections.abc import Mapping

UNCOVERED: Mapping[str, str] = {
    "FAI-1": "reports state the resource and the interval, but no test or row cites it",
    "GRO-1": "replays reserve the worst case; estimates as a policy, and their report, are not built",
    "GRO-5": "needs estimates as a policy",
    "DIA-1": "diagnosis of two runs is not built",
}
"""Requirement -> why nothing answers to it."""
