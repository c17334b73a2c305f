"""Mutants of the smallest table, and a judge without scenarios."""

from __future__ import annotations

import pytest

from kvescrow.checks.mutate.judge import Judge
from kvescrow.checks.mutate.mutant import Mutant, Operator
from kvescrow.checks.mutate.operators import mutants_of
from kvescrow.checks.mutate.scenarios import Scenarios
from kvescrow.checks.mutate.search import Searches
from kvescrow.checks.mutate.verdicts import Judged, Layer
from kvescrow.checks.prove import EFFORT
from kvescrow.checks.prove.variants import event_variants
from kvescrow.spec.language.table import Table
from kvescrow.spec.tables.promise import PROMISE


def mutant(row: str, operator: Operator, number: int = 1, table: Table = PROMISE) -> Mutant:
    """The mutant of this name."""
    (found,) = (
        each
        for each in mutants_of(table)
        if each.row.id == f"{table.name}.{row}" and each.operator is operator and each.number == number
    )
    return found


def judged(
    one: Mutant,
    scenarios: dict[Layer, Scenarios] | None = None,
    effort: int = EFFORT,
    searches: Searches | None = None,
) -> Judged:
    """What becomes of it, by import and proofs, these scenarios, and these searches."""
    with event_variants(one.original, one.original.event(one.row.event), effort=effort) as variants:
        return Judge(variants, scenarios or {}, searches).judge(one)


@pytest.fixture(scope="session")
def promise_mutants() -> tuple[Mutant, ...]:
    """Every mutant of the promise table."""
    return mutants_of(PROMISE)
