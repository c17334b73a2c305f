"""The front door: one verb a module, each importing what it needs when it runs.

This is the one place that may import every folder. A verb prints a summary for people, writes its result as JSON
where asked, and returns an exit status: 0 passed, 1 not passed, 2 the user's input, 3 not run.
"""

from kvescrow.checks.cli.front import main

__all__ = ["main"]
