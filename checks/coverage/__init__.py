"""Which rows and which branches of guards each layer of checks has seen, and the gate over it (FRM-4).

A goal is a row that is to fire, or a branch of its guard: a conjunct that is false on an event that no earlier row
took, or one alternative that is true alone. A layer that misses a goal has a hole; holes are listed with their reasons
in `holes`, and the list is strict both ways.
"""

from kvescrow.checks.coverage.layers import Layer, Seen, seen_by
from kvescrow.checks.coverage.report import CoverageReport, as_listed, judged

__all__ = ["CoverageReport", "Layer", "Seen", "as_listed", "judged", "seen_by"]
