"""The counters of a ledger world are checked after every event, everything at intervals and at the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kvescrow.checks.monitor import Monitor
from kvescrow.spec.language.expressions import Binary, Expression, Field, Literal, children
from kvescrow.spec.tables.registry import ALL_TABLES
from kvescrow.spec.vocabulary import Key
from tests.checks.monitor.runs import Line


def fed(lines: list[Line], until: Callable[[Line], bool], **options: int) -> tuple[Monitor, int]:
    """A monitor that has seen all lines before the first that is as `until` says, and that one's index."""
    monitor = Monitor(lines[0]["config"], **options)
    for index, line in enumerate(lines[1:], start=1):
        if until(line):
            return monitor, index
        assert monitor.feed(line) == []
    raise AssertionError("no such line")


def admitted_alone(line: Line) -> bool:
    return bool(line["decision"] == "ADMITTED" and line["seq"] > 50)


@pytest.mark.parametrize(
    ("spoil", "law"),
    [
        (lambda world, t: world.pool.update(active=world.pool["active"] - 1), "pool_active_is_the_sum"),
        (lambda world, t: world.tenants[t].update(active=world.tenants[t]["active"] - 1), "tenant_active_is_the_sum"),
        (lambda world, t: world.tenants[t].update(held=world.tenants[t]["held"] - 1), "tenant_held_is_the_sum"),
        (lambda world, t: world.tenants[t].update(queued=world.tenants[t]["queued"] + 1), "tenant_queued_is_the_count"),
        (lambda world, t: world.tenants[t].update(overrun=-1), "accounts_are_not_negative"),
    ],
)
def test_a_counter_that_drifts_is_found_after_the_next_change(
    lines: list[Line], spoil: Callable[[Any, str], None], law: str
) -> None:
    monitor, index = fed(lines, admitted_alone)
    tenant, request = lines[index]["key"]
    spoil(monitor._ledger._world, tenant)  # type: ignore[union-attr]  # there is a ledger
    findings = monitor.feed(lines[index])
    assert [finding.expected for finding in findings] == [f"{law} of {tenant}/{request}"]
    assert findings[0].row.endswith(".admit")


def test_an_identity_that_comes_twice_is_found_after_the_next_change(lines: list[Line]) -> None:
    monitor, index = fed(lines, lambda line: line["decision"] == "REFUSED" and line["state"] == "RUNNING")
    ledger = monitor._ledger
    assert ledger is not None
    running = Key(*lines[index]["key"])
    taken = ledger._world.reservations[running]["life"]
    admitted = next(i for i in range(index, len(lines)) if lines[i]["decision"] == "ADMITTED")
    for line in lines[index:admitted]:
        monitor.feed(line)
    ledger._world.pool["next_life"] = taken
    laws = [finding.expected.split(" of ")[0] for finding in monitor.feed(lines[admitted])]
    assert "lives_are_unique" in laws


def test_a_record_that_no_event_touches_is_found_by_the_whole_check(lines: list[Line]) -> None:
    monitor, index = fed(lines, lambda line: line["decision"] == "STARTED" and line["seq"] > 20)
    monitor.feed(lines[index])
    world = monitor._ledger._world  # type: ignore[union-attr]  # there is a ledger
    key = Key(*lines[index]["key"])
    world.reservations[key]["owner"] = 0
    laws = [finding.expected for finding in monitor.finish().findings]
    assert f"owned_work_has_an_owner of {key.tenant}/{key.request}" in laws


@pytest.mark.parametrize(("every", "judged"), [(1, True), (1_000_000, False)])
def test_whole_checks_come_as_often_as_asked(lines: list[Line], every: int, judged: bool) -> None:
    monitor, index = fed(lines, lambda line: line["seq"] > 20, whole_check_every=every)
    monitor._ledger._world.pool["next_life"] = 1  # type: ignore[union-attr]  # there is a ledger
    refusals = [line for line in lines[index:-1] if line["decision"] == "REFUSED" and line["reason"] == "FORGED"]
    monitor._ledger._order._last = refusals[0]["seq"]  # type: ignore[union-attr]  # there is a ledger
    for line in refusals[:1] * 60:
        monitor.feed(line)
    assert any("identities_come_from_the_counters" in f.expected for f in monitor.findings) is judged


def test_an_account_without_reservations_is_judged_too() -> None:
    monitor = Monitor({"pool_limit": 5, "tenants": {"a": {"limit": 1, "budget": 1, "queue_limit": 1}}, "retention": 0})
    tick = {"event": "tick", "now": 1, "key": None, "parameters": {"now": 1}, "decision": "NOTED", "reason": "NONE"}
    monitor.feed({**tick, "seq": 1, "state": None, "life": 0, "generation": 0})
    monitor._ledger._world.pool["active"] = 1  # type: ignore[union-attr]  # there is a ledger
    assert [finding.expected for finding in monitor.finish().findings] == ["pool_active_is_the_sum of a/"]


def reads_of_ahead(expression: Expression) -> list[Expression]:
    """What stands directly around each read of `queue.ahead`."""
    found = [expression for part in children(expression) if isinstance(part, Field) and part.path == ("queue", "ahead")]
    return [*found, *(each for part in children(expression) for each in reads_of_ahead(part))]


def test_rows_ask_only_whether_anyone_is_ahead() -> None:
    """The monitor's world counts no further than one, which is exact as long as rows ask no more than this."""
    around = [each for table in ALL_TABLES for row in table.rows for each in reads_of_ahead(row.when)]
    assert around
    for each in around:
        match each:
            case Binary("<", Literal(0), Field("queue", "ahead")):
                pass
            case _:
                raise AssertionError(str(each))
