"""Grading a change, releasing it, and finding out what went wrong (REL, DIA)."""
