"""Stateful fuzzing: any implementation beside the tables' own interpreter, compared after every step (FRM-4).

Importing this package loads neither Hypothesis nor a target; running does.
"""

from kvescrow.checks.fuzz.result import Deviation, FuzzResult, NotApplicable
from kvescrow.checks.fuzz.run import run_fuzz
from kvescrow.checks.targets.registry import TARGETS

__all__ = ["TARGETS", "Deviation", "FuzzResult", "NotApplicable", "run_fuzz"]
