"""The first owner's exit neither frees nor doubles what others share (EXP-1, PAG-5)."""

from __future__ import annotations

import json

import pytest

from kvescrow.checks.cli.front import main
from kvescrow.checks.experiments.prefix_ownership import Constraints, prefix_ownership
from kvescrow.checks.experiments.result import Experiment


def row(found: Experiment, event: str) -> dict[str, str]:
    return next(dict(zip(found.columns, row, strict=True)) for row in found.rows if row[0] == event)


@pytest.mark.parametrize("sharers", [1, 3, 8])
@pytest.mark.parametrize("in_flight", [True, False])
def test_sharers_keep_the_prefix_once(sharers: int, in_flight: bool) -> None:
    found = prefix_ownership(Constraints(sharers=sharers, prefix=4, pool=40, in_flight=in_flight))
    assert found.figures["freed_by_first_exit"] == 0
    left = row(found, "first#1 leaves")
    assert (left["prefix"], left["holders"]) == ("SHARED", str(sharers))
    # The prefix is charged once: 4 pages, and one page of each sharer's own prompt.
    assert left["shared"] == str(4 + sharers)
    assert found.figures["pages_if_each_had_a_copy"] == 4 * (sharers + 1)
    assert found.figures["every_page_in_one_state"]


def test_what_a_step_in_flight_reads_drains_before_it_rests() -> None:
    # The first alone holds the last page of its prompt and a page of output.
    found = prefix_ownership(Constraints())
    assert row(found, "first#1 leaves")["draining"] == "2"
    assert row(found, "that step ends")["draining"] == "0"
    assert row(prefix_ownership(Constraints(in_flight=False)), "first#1 leaves")["draining"] == "0"


def test_the_last_exit_leaves_the_prefix_cached() -> None:
    # Four pages of the prefix, and one published page of each of the four prompts.
    found = prefix_ownership(Constraints())
    assert found.figures["at_rest"] == {"free": 16, "cached": 8}
    assert found.rows[-1][-2:] == ("CACHED", "0")


def test_nobody_shares() -> None:
    found = prefix_ownership(Constraints(sharers=0))
    assert "Nobody shared" in found.findings[1]
    assert row(found, "first#1 leaves")["holders"] == "0"


def test_a_pool_that_is_too_small_refuses_the_later_ones() -> None:
    # The first promises 6 pages, a sharer 2: nine hold the first and one sharer.
    found = prefix_ownership(Constraints(pool=9))
    assert found.figures["admitted"] == 2
    assert row(found, "sharer 2#1 comes")["answer"] == "REFUSED POOL_CAPACITY"
    assert prefix_ownership(Constraints(pool=5)).figures["admitted"] == 0


def test_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["experiment", "prefix-ownership", "--sharers", "2", "--idle", "--json"])
    assert exit_.value.code == 0
    told = json.loads(capsys.readouterr().out)
    assert told["figures"]["admitted"] == 3
    assert told["assumptions"]
