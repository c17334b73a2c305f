"""Counterexamples: how they read, and that a written one can be run again or is refused with the remedy."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from kvescrow.checks.prove import (
    Counterexample,
    Verdict,
    prove,
    render_counterexample,
    replay_scenario,
    write_scenario,
)
from kvescrow.spec.language.table import Assumption, Invariant, Table
from kvescrow.spec.tables.execution import TICKET
from kvescrow.spec.tables.page import PAGE
from kvescrow.spec.vocabulary import TicketState, UserError

execution = TICKET.schema["execution"]
ticket = TICKET.schema["ticket"]


def broken_ticket() -> Table:
    """The ticket table with an end that does not count."""
    rows = (evolve(row, do=()) if row.id == "ticket.settle.done" else row for row in TICKET.rows)
    return evolve(TICKET, rows=tuple(rows))


def refutation(table: Table, invariant: str) -> Counterexample:
    """The first counterexample to `invariant` in `table`."""
    results = (r for r in prove([table]).results if r.invariant == invariant and r.verdict is Verdict.REFUTED)
    example = next(results).counterexample
    assert example is not None
    return example


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    """A written refutation of the broken ticket table."""
    path = tmp_path / "scenario.json"
    write_scenario(refutation(broken_ticket(), "in_flight_is_the_count"), path)
    return path


def test_a_counterexample_shows_what_matters_and_marks_what_changed() -> None:
    text = render_counterexample(refutation(broken_ticket(), "in_flight_is_the_count"))
    heading, promise, event, interpreter, *lines = text.splitlines()
    assert heading == "ticket.settle.done breaks in_flight_is_the_count in table ticket"
    assert promise.startswith("  what is in flight is what was launched and has not ended (REC-2, PAG-4): ")
    assert event.startswith("  event settle(ok=")
    assert interpreter == (
        "  interpreter: row ticket.settle.done fires; `in_flight_is_the_count` does not hold after it"
    )
    assert [line.split() for line in lines] == [
        ["field", "before", "after"],
        ["*", "ticket.state", "LAUNCHED", "DONE"],
        ["execution.in_flight", lines[2].split()[1], lines[2].split()[1]],
        ["rest.in_flight", lines[3].split()[1], lines[3].split()[1]],
    ]


def test_numbers_in_a_counterexample_are_small() -> None:
    view = refutation(broken_ticket(), "in_flight_is_the_count").case.view
    numbers = [value for record in view.values() for value in record.values() if isinstance(value, int)]
    assert numbers
    assert all(0 <= number <= 16 for number in numbers)


def test_a_counterexample_that_needs_large_numbers_is_still_found() -> None:
    few = Invariant("planted", ticket.number <= 1000, ("PAG-4",), "planted")
    example = refutation(evolve(TICKET, invariants=(*TICKET.invariants, few)), "planted")
    assert example.after["ticket"]["number"] > 1000  # type: ignore[operator]


def test_a_scenario_is_plain_json(scenario: Path) -> None:
    written = json.loads(scenario.read_text("utf-8"))
    assert list(written) == ["kvescrow_scenario", "table", "row", "view", "event", "parameters", "expect"]
    assert written["kvescrow_scenario"] == 1
    assert written["view"]["ticket"]["state"] == "LAUNCHED"
    assert written["expect"]["breaks"] == "in_flight_is_the_count"
    assert written["expect"]["after"]["ticket"]["state"] == "DONE"


def test_a_scenario_breaks_the_broken_table_and_not_the_mended_one(scenario: Path) -> None:
    again = replay_scenario(scenario, [PAGE, broken_ticket()])
    assert again.violated
    assert again.why == "row ticket.settle.done fires; `in_flight_is_the_count` does not hold after it"
    mended = replay_scenario(scenario, [PAGE, TICKET])
    assert not mended.violated
    assert mended.why == "row ticket.settle.done fires; `in_flight_is_the_count` holds after it"


def test_a_scenario_that_the_assumptions_now_exclude_shows_nothing(scenario: Path) -> None:
    never = Assumption("nothing_is_launched", ticket.state != TicketState.LAUNCHED, "planted")
    replay = replay_scenario(scenario, [evolve(broken_ticket(), assumptions=(never,))])
    assert not replay.violated
    assert replay.why == "the case cannot arise: assumption nothing_is_launched does not hold"


def test_two_runs_are_written_and_replayed(tmp_path: Path) -> None:
    rows = tuple(row for row in PAGE.rows if row.id != "page.share.miss_scope")
    told = evolve(PAGE, rows=rows)
    path = tmp_path / "scenario.json"
    write_scenario(refutation(told, "lookups_tell_nothing_of_other_scopes"), path)
    assert "other_view" in json.loads(path.read_text("utf-8"))
    assert replay_scenario(path, [told]).violated
    assert not replay_scenario(path, [PAGE]).violated


def test_a_refuted_initial_state_is_replayed(tmp_path: Path) -> None:
    begun = Invariant("planted", execution.last_ticket >= 1, ("PAG-4",), "planted")
    table = evolve(TICKET, invariants=(*TICKET.invariants, begun))
    path = tmp_path / "scenario.json"
    write_scenario(refutation(table, "planted"), path)
    assert json.loads(path.read_text("utf-8"))["event"] is None
    assert replay_scenario(path, [table]).violated


def test_an_undecided_cell_is_replayed(tmp_path: Path) -> None:
    guarded = (
        evolve(row, when=execution.in_flight > 1) if row.id == "ticket.settle.done" else row for row in TICKET.rows
    )
    table = evolve(TICKET, rows=tuple(guarded))
    path = tmp_path / "scenario.json"
    write_scenario(refutation(table, "totality"), path)
    assert replay_scenario(path, [table]).violated
    assert replay_scenario(path, [TICKET]).why == "row ticket.settle.done fires"


def _without(*keys: str) -> Callable[[dict[str, Any]], None]:
    def edit(written: dict[str, Any]) -> None:
        *way, last = keys
        for key in way:
            written = written[key]
        del written[last]

    return edit


def _with(value: object, *keys: str) -> Callable[[dict[str, Any]], None]:
    def edit(written: dict[str, Any]) -> None:
        *way, last = keys
        for key in way:
            written = written[key]
        written[last] = value

    return edit


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (_without("kvescrow_scenario"), "`kvescrow_scenario` is missing"),
        (_with(2, "kvescrow_scenario"), "`kvescrow_scenario` is 2; this version reads 1"),
        (_without("row"), "`row` is missing"),
        (_with("tickets", "table"), "unknown table 'tickets'; the tables are ticket"),
        (_with("lauch", "event"), "unknown event 'lauch'; table ticket has launch, settle"),
        (_with(["settle"], "event"), "unknown event ['settle']"),
        (_with("typo", "expect", "breaks"), "`expect.breaks` is 'typo', which table ticket does not promise"),
        (_with([], "expect"), "`breaks` is missing"),
        (_with(["typo"], "expect", "breaks"), "`expect.breaks` is ['typo'], which table ticket"),
        (_without("view", "ticket", "number"), "`number` is missing"),
        (_with(1, "view", "ticket", "nummer"), "`view.ticket` has unknown fields nummer"),
        (_with("OPENED", "view", "ticket", "state"), "`view.ticket.state` is 'OPENED'; it must be one of ABSENT"),
        (_with(True, "view", "ticket", "number"), "`view.ticket.number` is True; it must be an integer"),
        (_with(1, "parameters", "ok"), "`parameters.ok` is 1; it must be true or false"),
    ],
)
def test_a_file_that_is_no_scenario_is_refused_by_name(
    scenario: Path, edit: Callable[[dict[str, Any]], None], message: str
) -> None:
    written = json.loads(scenario.read_text("utf-8"))
    edit(written)
    scenario.write_text(json.dumps(written), "utf-8")
    with pytest.raises(UserError) as caught:
        replay_scenario(scenario, [TICKET])
    assert str(caught.value).startswith(f"{scenario}: {message}")


def test_a_scenario_without_event_breaks_no_step(scenario: Path) -> None:
    written = json.loads(scenario.read_text("utf-8"))
    written |= {"event": None, "parameters": {}, "expect": {"breaks": "a_ticket_ends_once"}}
    scenario.write_text(json.dumps(written), "utf-8")
    with pytest.raises(UserError, match="`event` is null, but `a_ticket_ends_once` speaks of a step"):
        replay_scenario(scenario, [TICKET])


def test_two_runs_need_a_second_view(tmp_path: Path) -> None:
    told = evolve(PAGE, rows=tuple(row for row in PAGE.rows if row.id != "page.share.miss_scope"))
    path = tmp_path / "scenario.json"
    write_scenario(refutation(told, "lookups_tell_nothing_of_other_scopes"), path)
    written = json.loads(path.read_text("utf-8"))
    del written["other_view"]
    path.write_text(json.dumps(written), "utf-8")
    with pytest.raises(UserError, match="compares two runs of `share`; give that event and `other_view`"):
        replay_scenario(path, [PAGE])


@pytest.mark.parametrize("content", ["{", "[]", "\xff"])
def test_a_file_that_is_no_json_object_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "scenario.json"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(UserError, match=r"scenario\.json: "):
        replay_scenario(path, [TICKET])


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a readable JSON file"):
        replay_scenario(tmp_path / "none.json", [TICKET])
