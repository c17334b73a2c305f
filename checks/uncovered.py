"""Requirements that no row, law or test answers to yet, each with the reason.

The list is strict: an entry that is answered to after all fails the trace, so that it cannot outlive its cause.
"""

from collections.abc import Mapping

UNCOVERED: Mapping[str, str] = {}
"""Requirement -> why nothing answers to it."""
