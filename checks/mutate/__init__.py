"""Mutation of the tables (FRM-5): every small change of a row must be noticed by some check.

A mutant lives in memory only. It is refused when its table is built, refuted by the proofs, or told apart from its
original by a vector or beside the reference. What none of them notices is either proved to behave the same, or a
survivor: a hole in the laws and tests.

    from kvescrow.checks.mutate.run import Options, mutate

    report = mutate(Options(tables=("promise",)))
    report.verdict, report.of(Fate.SURVIVOR), report.to_json()
"""

from kvescrow.checks.mutate.mutant import Mutant, Operator
from kvescrow.checks.mutate.operators import mutants_of
from kvescrow.checks.mutate.scenarios import Scenario, Scenarios

__all__ = ["Mutant", "Operator", "Scenario", "Scenarios", "mutants_of"]
