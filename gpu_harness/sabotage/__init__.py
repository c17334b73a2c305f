"""Workers that make one known mistake, each of which the evidence must catch (FRM-5, CON-2).

`ends`, `sharing` and `memory` have the mistakes, `catalogue` their names and what must show each, `results` runs them.
"""

from kvescrow.gpu_harness.sabotage.catalogue import SABOTAGES, Sabotage
from kvescrow.gpu_harness.sabotage.results import (
    ALL,
    CAUGHT,
    MISSED,
    SabotageResult,
    check_name,
    counted,
    matrix,
    sabotaged,
    unsabotaged,
)

__all__ = [
    "ALL",
    "CAUGHT",
    "MISSED",
    "SABOTAGES",
    "Sabotage",
    "SabotageResult",
    "check_name",
    "counted",
    "matrix",
    "sabotaged",
    "unsabotaged",
]
