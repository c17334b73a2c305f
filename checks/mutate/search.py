"""Mutants in the search of small instances: a law that breaks, a row that never fires, or counts that are others.

The counts of these instances are pinned by the tests of the search, so that other counts are noticed there.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property

from kvescrow.checks.explore import explore, instance_called
from kvescrow.checks.explore.instance import Instance
from kvescrow.checks.explore.result import Exploration
from kvescrow.spec.language.table import Table

QUICK = ("account", "promises", "executions", "scope_reuse", "chunk_choice", "release")
"""Instances of the gate that take a small part of a second."""
LONG = ("pages-limit", "limits", "refusals")
"""Those that take about a second, most of it to fold the tables anew for each mutant."""
_COUNTS = ("states", "transitions", "moves", "depth", "cut")


class Searches:
    """The instances, and what the search finds in each with the tables as they are."""

    def __init__(self) -> None:
        self._found: dict[str, Exploration] = {}

    @cached_property
    def _instances(self) -> Mapping[str, Instance]:
        return {name: instance_called(name) for name in (*QUICK, *LONG)}

    def noticing(self, mutant: Table, names: Sequence[str]) -> str:
        """Return which of the instances called `names` notices `mutant`, and by what; empty where none does."""
        for name in names:
            instance = self._instances[name]
            if mutant.name in {table.name for table in instance.tables}:
                if name not in self._found:
                    self._found[name] = explore(instance)
                why = _noticed(self._found[name], explore(instance.with_table(mutant)))
                if why:
                    return f"{name}: {why}"
        return ""


def _noticed(original: Exploration, found: Exploration) -> str:
    if found.breach is not None:
        return f"{found.breach.law} is broken"
    for row in sorted((original.rows or frozenset()) - (found.rows or frozenset())):
        return f"row {row} never fires"
    for situation in sorted((original.reached or frozenset()) - (found.reached or frozenset())):
        return f"{situation} is never reached"
    for name in _COUNTS:
        before, after = getattr(original, name), getattr(found, name)
        if before != after:
            return f"{name} are {after:,}, not {before:,}"
    return ""
