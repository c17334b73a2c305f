"""Proofs of the tables with Z3, for any number of reservations, tenants and pages (FRM-1, FRM-2, FRM-6, SCO-4).

A table is proved row by row. The rest of the world is opaque and only bounded by the table's assumptions, so what
is proved holds however many entities there are. Each obligation has its own verdict:

- `initial`: an initial state exists, and satisfies every invariant.
- `witness`: each row is, in each of its source states, the first that fires in some case; the interpreter fires it
  in that case too. A row that cannot fire is vacuous.
- each invariant, rule and assumption about the world holds after each row.
- `changes_nothing`: a refusing row leaves everything as it was.
- `totality`: in each (state, event) cell some row fires.
- non-interference: two runs that a caller cannot tell apart get the same answer.

    report = prove(tables)
    report.passed, report.failures, report.to_json()
"""

from kvescrow.checks.prove.counterexample import Counterexample, render_counterexample
from kvescrow.checks.prove.prover import EFFORT, count_obligations, prove
from kvescrow.checks.prove.scenario import Replay, replay_scenario, write_scenario
from kvescrow.checks.prove.step import CHANGES_NOTHING, TOTALITY, WITNESS, Case, Finding, take_step
from kvescrow.checks.prove.verdicts import Method, ProofReport, Result, Verdict

__all__ = [
    "CHANGES_NOTHING",
    "EFFORT",
    "TOTALITY",
    "WITNESS",
    "Case",
    "Counterexample",
    "Finding",
    "Method",
    "ProofReport",
    "Replay",
    "Result",
    "Verdict",
    "count_obligations",
    "prove",
    "render_counterexample",
    "replay_scenario",
    "take_step",
    "write_scenario",
]
