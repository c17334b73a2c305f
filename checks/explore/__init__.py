"""Every reachable state of small instances of the tables.

    explore(instance_called("pages-chains"))        every state, transition, invariant, rule and situation
    explore(instance_called("lifecycle-47m"), EngineName.DENSE)

An `Instance` is data: places with finite fields, and the events of the tables bound to them. Engines agree on every
count: the interpreter is the oracle, the packed engine is the general one, dense and bdd take instances whose counters
are shown to be functions of the slots.
"""

from kvescrow.checks.explore.catalogue import GATE, INSTANCES, instance_called
from kvescrow.checks.explore.run import Coverage, EngineName, EngineNotInstalled, coverage, explore

__all__ = [
    "GATE",
    "INSTANCES",
    "Coverage",
    "EngineName",
    "EngineNotInstalled",
    "coverage",
    "explore",
    "instance_called",
]
