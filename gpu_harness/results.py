"""Exit statuses of scripts of a bare checkout."""

from kvescrow.gpu_harness.front import NOT_RUN
from kvescrow.gpu_harness.sabotage import CAUGHT

STATUS = {"passed": 0, CAUGHT: 0, NOT_RUN: 3}
"""Exit status by verdict; 1 for every other one, 2 for a user's mistake."""


def status_of(verdict: str) -> int:
    """Exit status of a verdict."""
    return STATUS.get(verdict, 1)
