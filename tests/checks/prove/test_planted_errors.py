"""Errors planted in the real tables: each is refuted by the obligation that is meant to find it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

import pytest
from attrs import evolve, frozen

from kvescrow.checks.prove import (
    Method,
    ProofReport,
    Result,
    Verdict,
    prove,
    render_counterexample,
    replay_scenario,
    write_scenario,
)
from kvescrow.spec.language.expressions import FALSE, TRUE, implies
from kvescrow.spec.language.table import Assumption, Invariant, Reply, Row, StepRule, Table, TableError
from kvescrow.spec.tables.chunk_choice import CHUNK_CHOICE, search
from kvescrow.spec.tables.execution import EXECUTION, TICKET
from kvescrow.spec.tables.page import PAGE
from kvescrow.spec.tables.page.view import claim, holder, page, scope
from kvescrow.spec.tables.page.view import pool as page_pool
from kvescrow.spec.tables.promise import PROMISE
from kvescrow.spec.tables.reservation import RESERVATION
from kvescrow.spec.tables.reservation.rows import END, RELEASE, SETTLE, charge
from kvescrow.spec.tables.reservation.view import event, pool, reservation
from kvescrow.spec.tables.scope_reuse import SCOPE_FIELDS, SCOPE_REUSE
from kvescrow.spec.vocabulary import Decision, Reason, ReservationState, StopOutcome, TicketState

P = TypeVar("P", StepRule, Assumption)
S = ReservationState
RELEASED = Reply(Decision.RELEASED)


def changed(table: Table, *names: str, **changes: object) -> Table:
    """`table` with `changes` made to the rows called `names`."""
    ids = {f"{table.name}.{name}" for name in names}
    assert ids <= set(table.row_by_id), "the planted error names a row that does not exist"
    rows = (evolve(row, **changes) if row.id in ids else row for row in table.rows)
    return evolve(table, rows=tuple(rows))


def without(table: Table, *names: str) -> Table:
    """`table` without the rows called `names`."""
    ids = {f"{table.name}.{name}" for name in names}
    assert ids <= set(table.row_by_id), "the planted error names a row that does not exist"
    return evolve(table, rows=tuple(row for row in table.rows if row.id not in ids))


def narrowed(table: Table, event: str) -> Table:
    """`table` with one event only, since an error in its rows shows nowhere else."""
    kept = frozenset({event})

    def about(props: Iterable[P]) -> tuple[P, ...]:
        return tuple(
            prop if prop.events is None else evolve(prop, events=kept)
            for prop in props
            if prop.events is None or event in prop.events
        )

    return evolve(
        table,
        events=(table.event(event),),
        rows=tuple(row for row in table.rows if row.event == event),
        rules=about(table.rules),
        assumptions=about(table.assumptions),
        non_interference=tuple(promise for promise in table.non_interference if promise.event == event),
    )


@frozen
class Planted:
    """An error, and the obligation that must refute it."""

    what: str
    make: Callable[[], Table]
    row: str
    invariant: str


def _pool_rows() -> tuple[str, ...]:
    return tuple(f"reserve.pool_capacity{end}" for end in ("", "_queue_full", "_queued"))


PLANTED = [
    Planted(
        "a release that is dropped",
        lambda: changed(RESERVATION, "cancel.reserved", do=END),
        "cancel.reserved",
        "released_exactly_once",
    ),
    Planted(
        "a release that is dropped from the sum",
        lambda: changed(RESERVATION, "cancel.reserved", do=END),
        "cancel.reserved",
        "pool_active_is_the_sum",
    ),
    Planted(
        "a duplicate stop that releases again",
        lambda: changed(RESERVATION, "finish.recorded", reply=RELEASED, do=RELEASE),
        "finish.recorded",
        "released_exactly_once",
    ),
    Planted(
        "a pool limit that is off by one",
        lambda: changed(
            RESERVATION,
            *_pool_rows(),
            when=pool.active + event.amount > pool.limit + 1,
        ),
        "reserve.admit",
        "grants_respect_the_pool_limit",
    ),
    Planted(
        "a tenant limit that growth forgets",
        lambda: without(RESERVATION, "extend.tenant_capacity"),
        "extend.grant",
        "grants_respect_the_tenant_limit",
    ),
    Planted(
        "a stop of an earlier execution that is accepted",
        lambda: without(RESERVATION, "finish.stale_generation"),
        "finish.completed",
        "a_stop_needs_the_owners_receipt",
    ),
    Planted(
        "a start that keeps the old generation",
        lambda: changed(
            RESERVATION,
            "start.commit",
            do=tuple(
                effect
                for effect in RESERVATION.row_by_id["reservation.start.commit"].do
                if effect.target.path != ("reservation", "generation")
            ),
        ),
        "start.commit",
        "each_start_has_a_new_generation",
    ),
    Planted(
        "a cancel that releases running work",
        lambda: changed(RESERVATION, "cancel.running", to=S.CANCELLED, reply=RELEASED, do=(*RELEASE, *END)),
        "cancel.running",
        "only_a_confirmed_stop_releases",
    ),
    Planted(
        "a growth that charges the whole",
        lambda: changed(RESERVATION, "extend.grant", do=(*charge(event.bound), reservation.bound.becomes(event.bound))),
        "extend.grant",
        "pool_active_is_the_sum",
    ),
    Planted(
        "an expiry that releases running work",
        lambda: changed(
            RESERVATION,
            "sweep.running_lapsed",
            to=S.EXPIRED,
            reply=Reply(Decision.EXPIRED, Reason.LEASE_EXPIRED),
            do=(*RELEASE, *END),
        ),
        "sweep.running_lapsed",
        "only_a_confirmed_stop_releases",
    ),
    Planted(
        "an accepted cancel that ends as completed",
        lambda: changed(RESERVATION, "finish.cancelled", to=S.COMPLETED, do=SETTLE),
        "finish.cancelled",
        "cancel_dominates",
    ),
    Planted(
        "a scope that is dropped from the match",
        lambda: without(PAGE, "share.miss_scope"),
        "share.joined",
        "a_hit_is_exact",
    ),
    Planted(
        "a holder of another scope's page",
        lambda: without(PAGE, "share.miss_scope"),
        "share.joined",
        "holders_are_of_the_scope",
    ),
    Planted(
        "a page that is freed under a launched step",
        lambda: without(PAGE, "drop.private_draining"),
        "drop.private_free",
        "tickets_fit_the_state",
    ),
    Planted(
        "a revived page that costs no unit",
        lambda: changed(
            PAGE,
            "share.revived",
            do=(
                page.holders.adds(1),
                claim.holds.becomes(True),
                holder.shares.adds(1),
                page_pool.cached.loses(1),
                page_pool.shared.adds(1),
                scope.shared.adds(1),
            ),
        ),
        "share.revived",
        "promises_can_be_kept",
    ),
    Planted(
        "an inner page that is evicted before its children",
        lambda: without(PAGE, "evict.has_children"),
        "evict.gone",
        "leaves_go_first",
    ),
    Planted(
        "a page that is published before its step has ended",
        lambda: without(PAGE, "seal.not_computed"),
        "seal.published",
        "publishing_follows_computing",
    ),
    Planted(
        "a receipt while a step is in flight",
        lambda: without(EXECUTION, "certify.in_flight"),
        "certify.issued",
        "the_receipt_needs_a_stop",
    ),
    Planted(
        "a ticket that ends twice",
        lambda: changed(
            TICKET,
            "settle.recorded",
            reply=Reply(Decision.SETTLED),
            do=TICKET.row_by_id["ticket.settle.done"].do,
        ),
        "settle.recorded",
        "a_ticket_ends_once",
    ),
    Planted(
        "a holder that keeps its promise after its end",
        lambda: changed(PROMISE, "close.released", do=()),
        "close.released",
        "only_the_admitted_hold",
    ),
    Planted(
        "an event of an unauthorised caller",
        lambda: without(RESERVATION, "cancel.forbidden"),
        "cancel.running",
        "only_the_authorised_change_anything",
    ),
    Planted(
        "a late cancel of an earlier life",
        lambda: without(RESERVATION, "cancel.stale_life"),
        "cancel.reserved",
        "only_this_life_is_meant",
    ),
    Planted(
        "a start after the lease has lapsed",
        lambda: without(RESERVATION, "start.lapsed"),
        "start.commit",
        "starts_come_before_the_lease_ends",
    ),
    Planted(
        "a stop that is not billed",
        lambda: changed(RESERVATION, "finish.completed", do=(*RELEASE, *END)),
        "finish.completed",
        "a_receipt_is_billed",
    ),
    Planted(
        "a record that is forgotten before its retention",
        lambda: without(RESERVATION, "forget.retained"),
        "forget.gone",
        "only_old_records_are_forgotten",
    ),
    Planted(
        "a page that keeps the content of its last use",
        lambda: changed(
            PAGE,
            "drop.private_free",
            do=tuple(
                effect
                for effect in PAGE.row_by_id["page.drop.private_free"].do
                if effect.target.path != ("page", "computed")
            ),
        ),
        "drop.private_free",
        "free_pages_are_blank",
    ),
    Planted(
        "a failed write whose content can be published",
        lambda: changed(PAGE, "settle.write_failed", do=(page.writers.loses(1),)),
        "settle.write_failed",
        "a_failed_write_spoils",
    ),
    Planted(
        "a step on someone else's page",
        lambda: without(PAGE, "touch.not_holder"),
        "touch.read",
        "only_holders_touch",
    ),
    *(
        Planted(
            f"a match that ignores the {name.replace('_', ' ')}",
            lambda name=name: without(SCOPE_REUSE, f"look_up.{name}"),  # type: ignore[misc]
            "look_up.hit",
            "a_hit_is_exact",
        )
        for name in (*SCOPE_FIELDS, "chain", "tokens")
    ),
    Planted(
        "a chunk that ignores the token gap",
        lambda: without(CHUNK_CHOICE, "weigh.too_long"),
        "weigh.chosen",
        "the_chosen_chunk_fits",
    ),
    Planted(
        "a search that goes down from a chunk that fits",
        lambda: changed(CHUNK_CHOICE, "weigh.too_long", when=search.waiting),
        "weigh.too_long",
        "the_choice_goes_down_where_it_must",
    ),
    Planted(
        "overlapping prompts before waiting decodes",
        lambda: without(CHUNK_CHOICE, "ask.decodes_first"),
        "ask.asked",
        "an_open_question_may_be_answered",
    ),
    Planted(
        "a chunk that is not counted",
        lambda: changed(CHUNK_CHOICE, "weigh.chosen", do=(search.chosen.becomes(search.at),)),
        "weigh.chosen",
        "a_chunk_before_decodes_is_counted",
    ),
    Planted(
        "a deadline that is not looked at",
        lambda: without(CHUNK_CHOICE, "weigh.unreachable"),
        "weigh.chosen",
        "the_chosen_chunk_fits",
    ),
]
"""Each is one edit that a reviewer could miss."""


def only(report: ProofReport, row: str, invariant: str) -> Result:
    """The one result for `row` and `invariant`."""
    (found,) = (r for r in report.results if (r.row, r.invariant) == (row, invariant))
    return found


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: f"{planted.what}: {planted.invariant}")
def test_a_planted_error_is_refuted_by_its_obligation(planted: Planted, tmp_path: Path) -> None:
    table = narrowed(planted.make(), planted.row.split(".")[0])
    report = prove([table])
    result = only(report, f"{table.name}.{planted.row}", planted.invariant)
    assert result.verdict is Verdict.REFUTED
    assert report.verdict == "refuted"
    example = result.counterexample
    assert example is not None
    assert example.finding.broken, "the interpreter must see the same violation"
    assert render_counterexample(example).startswith(f"{result.row} breaks {planted.invariant}")
    # The scenario shows the violation in the broken table, and none in the real one.
    scenario = tmp_path / "scenario.json"
    write_scenario(example, scenario)
    assert replay_scenario(scenario, [table]).violated
    assert not replay_scenario(scenario, REAL_TABLES).violated


REAL_TABLES = (RESERVATION, PROMISE, PAGE, EXECUTION, TICKET, SCOPE_REUSE, CHUNK_CHOICE)


def test_a_guard_typo_that_kills_a_row_is_named() -> None:
    table = changed(RESERVATION, "reserve.never_fits_tenant", when=event.amount < 0)
    report = prove([table])
    row = "reservation.reserve.never_fits_tenant"
    witness = only(report, row, "witness")
    assert witness.verdict is Verdict.VACUOUS
    assert witness.detail == (
        "it cannot fire in ABSENT: guard `event.amount < 0`; row reservation.reserve.malformed before it"
    )
    # Whatever holds of a row that never fires holds of nothing.
    assert {result.verdict for result in report.results if result.row == row} == {Verdict.VACUOUS}


def test_a_dead_row_that_no_law_misses_fails_the_report() -> None:
    row = "reservation.extend.never_fits_pool"
    report = prove([changed(RESERVATION, "extend.never_fits_pool", when=event.bound != event.bound)])
    assert report.verdict == "vacuous"
    assert {result.row for result in report.failures} == {row}
    assert only(report, row, "witness").detail == ("it cannot fire in RUNNING: guard `event.bound != event.bound`")


def test_a_guard_that_is_always_true_starves_the_rows_after_it() -> None:
    report = prove([changed(RESERVATION, "extend.never_fits_pool", when=(event.bound < 0) | (event.bound >= 0))])
    assert report.verdict == "refuted"
    starved = {result.row for result in report.failures if result.invariant == "witness"}
    assert starved == {f"reservation.extend.{name}" for name in ("budget", "tenant_capacity", "pool_capacity", "grant")}
    assert {only(report, row, "witness").verdict for row in starved} == {Verdict.VACUOUS}


def test_a_row_that_is_dead_in_one_of_its_states_is_named() -> None:
    table = changed(RESERVATION, "finish.failed", when=reservation.state == S.RUNNING, sources=(S.RUNNING, S.ORPHANED))
    report = prove([evolve(table, rows=(*table.rows, _last_resort(S.ORPHANED)))])
    assert [(r.row, r.state, r.verdict) for r in report.failures] == [
        ("reservation.finish.failed", "ORPHANED", Verdict.VACUOUS)
    ]


def _last_resort(state: ReservationState) -> Row:
    return evolve(RESERVATION.row_by_id["reservation.finish.failed"], id="reservation.finish.rest", sources=(state,))


def test_a_missing_cell_is_an_error_when_the_table_is_built() -> None:
    with pytest.raises(TableError, match="table reservation: no row decides `sweep` in ABSENT"):
        without(RESERVATION, "sweep.unknown")


def test_a_row_that_is_forgotten_beside_guarded_ones_leaves_its_cell_undecided() -> None:
    result = only(prove([without(RESERVATION, "finish.cancelled")]), "CANCELLING/finish", "totality")
    assert result.verdict is Verdict.REFUTED


def test_a_cell_whose_guards_leave_a_gap_is_refuted() -> None:
    table = changed(RESERVATION, "finish.cancelled", when=event.outcome == StopOutcome.STOPPED)
    report = prove([table])
    result = only(report, "CANCELLING/finish", "totality")
    assert result.verdict is Verdict.REFUTED
    assert result.detail == "no row fires for finish"
    assert {failure.row for failure in report.failures} == {"CANCELLING/finish"}


def test_a_cell_says_whether_its_guards_needed_the_invariants() -> None:
    in_flight = TICKET.schema["execution"].in_flight > 0
    report = prove([changed(TICKET, "settle.done", when=in_flight)])
    assert report.passed
    assert only(report, "LAUNCHED/settle", "totality").method is Method.INVARIANTS
    generation = TICKET.schema["execution"].generation
    report = prove([changed(TICKET, "launch.recorded", when=(generation == 0) | (generation != 0))])
    assert report.passed
    assert only(report, "DONE/launch", "totality").method is Method.SOLVER


def test_a_lookup_that_answers_differently_for_other_scopes_is_refuted() -> None:
    told = changed(PAGE, "share.miss_scope", reply=Reply(Decision.REFUSED, Reason.FORBIDDEN))
    result = only(prove([told]), "*", "lookups_tell_nothing_of_other_scopes")
    assert result.verdict is Verdict.REFUTED
    assert result.detail.startswith("one run answers ")
    assert result.counterexample is not None
    text = render_counterexample(result.counterexample)
    assert "run 1" in text and "run 2" in text


def test_dropping_the_scope_lets_lookups_tell() -> None:
    report = prove([without(PAGE, "share.miss_scope")])
    assert only(report, "*", "lookups_tell_nothing_of_other_scopes").verdict is Verdict.REFUTED


def test_a_caller_that_sees_all_makes_non_interference_vacuous() -> None:
    (promise,) = PAGE.non_interference
    everything = tuple(getattr(entity, name) for entity in PAGE.entities for name in entity.fields)
    table = evolve(PAGE, non_interference=(evolve(promise, same=everything),))
    assert only(prove([table]), "*", promise.name).verdict is Verdict.VACUOUS


@pytest.mark.parametrize("table", [RESERVATION, PAGE, TICKET], ids=lambda table: table.name)
def test_contradictory_assumptions_make_everything_vacuous(table: Table) -> None:
    state = table.state
    first, second = list(table.state_type)[:2]
    contradiction = Assumption("planted", (state == first) & (state == second), "planted")
    report = prove([evolve(table, assumptions=(*table.assumptions, contradiction))])
    assert {result.verdict for result in report.results} == {Verdict.VACUOUS}
    assert report.verdict == "vacuous"


def test_an_assumption_that_a_row_breaks_is_refuted() -> None:
    idle = Assumption("planted", TICKET.schema["execution"].in_flight == 0, "planted")
    report = prove([evolve(TICKET, assumptions=(*TICKET.assumptions, idle))])
    assert only(report, "ticket.launch.launched", "planted").verdict is Verdict.REFUTED


def test_an_invariant_that_does_not_hold_at_the_start_is_refuted() -> None:
    begun = Invariant("planted", TICKET.state == TicketState.LAUNCHED, ("PAG-4",), "planted")
    report = prove([evolve(TICKET, invariants=(*TICKET.invariants, begun))])
    result = only(report, "initial", "planted")
    assert result.verdict is Verdict.REFUTED
    assert result.counterexample is not None
    assert "initial" in render_counterexample(result.counterexample)


def test_an_initial_state_that_cannot_exist_is_vacuous() -> None:
    report = prove([evolve(TICKET, initial=TICKET.initial & FALSE)])
    vacuous = {result.row for result in report.results if result.verdict is Verdict.VACUOUS}
    assert vacuous == {"initial"}


def test_a_rule_that_is_too_strong_is_refuted() -> None:
    rule = StepRule("planted", implies(TRUE, FALSE), ("PAG-4",), "planted")
    report = prove([evolve(TICKET, rules=(*TICKET.rules, rule))])
    refuted = {r.row for r in report.results if r.invariant == "planted" and r.verdict is Verdict.REFUTED}
    assert refuted == {row.id for row in TICKET.rows}


def test_a_rule_for_no_event_is_not_run() -> None:
    rule = StepRule("planted", TRUE, ("PAG-4",), "planted", events=frozenset())
    report = prove([evolve(TICKET, rules=(*TICKET.rules, rule))])
    assert report.verdict == "not_run"
    assert [(r.row, r.invariant, r.detail) for r in report.failures] == [("*", "planted", "it applies to no event")]


def test_a_refusal_with_a_ghost_effect_is_refuted() -> None:
    (grants, *rest) = RESERVATION.ghosts
    counting = evolve(grants, update=grants.update + 1)
    report = prove([evolve(RESERVATION, ghosts=(counting, *rest))])
    refusing = {row.id for row in RESERVATION.rows if row.reply.decision.changes_nothing}
    refuted = {
        result.row
        for result in report.results
        if result.invariant == "changes_nothing" and result.verdict is Verdict.REFUTED
    }
    assert refuted == refusing


def rows_of(report: ProofReport, verdict: Verdict, invariant: str) -> Iterable[str]:
    """The rows with this verdict on `invariant`."""
    return [r.row for r in report.results if r.verdict is verdict and r.invariant == invariant]


def test_an_interpreter_that_computes_otherwise_refutes_the_witness(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from kvescrow.checks.prove import step
    from kvescrow.spec.language.interpreter import Fired, Record, View, fire

    def wrong(table: Table, view: View, event: str, parameters: Record) -> Fired:
        fired = fire(table, view, event, parameters)
        return Fired(fired.row, {path: 99 if value == 1 else value for path, value in fired.changes.items()})

    monkeypatch.setattr(step, "fire", wrong)
    report = prove([EXECUTION])
    assert report.verdict == "refuted"
    assert "execution.begin.opened" in rows_of(report, Verdict.REFUTED, "witness")


def test_an_interpreter_that_fires_another_row_refutes_the_witness(monkeypatch: pytest.MonkeyPatch) -> None:
    from kvescrow.checks.prove import step
    from kvescrow.spec.language.interpreter import Fired, Record, View

    def last(table: Table, view: View, event: str, parameters: Record) -> Fired:
        return Fired(table.cells[view[table.moves.name]["state"], event][-1], {})  # type: ignore[index]

    monkeypatch.setattr(step, "fire", last)
    refuted = rows_of(prove([TICKET]), Verdict.REFUTED, "witness")
    assert "ticket.launch.unknown" in refuted
