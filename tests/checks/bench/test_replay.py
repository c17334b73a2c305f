"""The bench of replays runs every part; what it measures is not asserted, but what it makes of figures is."""

from __future__ import annotations

import pytest
from attrs import evolve

from kvescrow.checks.bench.replay import Replayed, measure, speed
from kvescrow.checks.targets import own_replay
from kvescrow.checks.targets.own_replay import Spent, Took
from kvescrow.checks.targets.simulators import NotRun, Simulated, sched_sim, vidur
from kvescrow.spec.vocabulary import UserError

SECOND = 1_000_000


def took(requests: int, seconds: float, mebibytes: int, *, completed: int | None = None) -> Took:
    done = requests if completed is None else completed
    return Took(requests, done, requests * SECOND, requests * 10, seconds, mebibytes * 2**20)


FOUND = Replayed(
    machine={},
    runs=(took(100, 0.5, 50), took(1_000, 5.0, 60), took(10_000, 50.0, 400)),
    peers={"one": Simulated(100, 100, 100 * SECOND, 10, 0.25), "other": NotRun("it is not here")},
    spent=(Spent("loop:run", 1, 1.0),),
)


def test_every_part_is_measured() -> None:
    found = measure((20, 40))
    assert [(each.requests, each.completed) for each in found.runs] == [(20, 20), (40, 40)]
    assert all(each.span > 0 and each.seconds > 0 and each.memory > 0 for each in found.runs)
    peer = found.peers["sched-sim"]
    assert isinstance(peer, Simulated)
    assert peer.completed == 20
    assert isinstance(found.peers["vidur"], NotRun)
    assert 0 < sum(each.share for each in found.spent) <= 1
    assert found.to_json()["peers"]["vidur"]["verdict"] == "not_run"


def test_figures_are_ratios_of_times() -> None:
    assert [speed(each) for each in FOUND.runs] == [200, 200, 200]
    assert FOUND.growth["time"] == pytest.approx(1.0)
    assert FOUND.growth["memory"] == pytest.approx(0.4515, abs=1e-3)
    assert [(row.ours, row.peer) for row in FOUND.report.rows] == [(200, None), (200, None), (200, None), (200, 400)]
    assert FOUND.verdict == "passed"
    assert "other: not_run: it is not here" in FOUND.text()


def test_each_way_to_fail_has_its_sentence() -> None:
    slow = evolve(FOUND, runs=(took(100, 0.9, 50), took(10_000, 101.0, 100)))
    assert slow.problems == ("10000 requests take 1/99 of their own time, not 1/100",)
    lost = evolve(FOUND, runs=(FOUND.runs[0], took(10_000, 50.0, 100, completed=9_999)))
    assert lost.problems == ("9999 of 10000 completed",)
    steep = evolve(FOUND, runs=(took(100, 0.1, 50), took(10_000, 50.0, 50_000)))
    assert steep.problems == ("time grows with exponent 1.35", "memory grows with exponent 1.50")
    assert steep.verdict == "failed"


def test_one_size_shows_no_growth() -> None:
    with pytest.raises(UserError, match="growth needs two sizes or more"):
        measure((10, 10))


def test_repeats_come_later_and_share_nothing() -> None:
    once = own_replay.packaged_trace(own_replay.TRACE)
    size = len(once.requests)
    trace = own_replay.repeated(size + 5)
    first, again = trace.requests[:5], trace.requests[size:]
    assert len(trace.requests) == size + 5
    assert len({each.request for each in trace.requests}) == size + 5
    assert again[0].arrival > trace.requests[size - 1].arrival
    shift = again[0].arrival
    assert [each.arrival - shift for each in again] == [each.arrival for each in first]
    assert [each.input_tokens for each in again] == [each.input_tokens for each in first]
    seen = {block for each in trace.requests[:size] for block in each.block_ids}
    assert not seen & {block for each in again for block in each.block_ids}


def test_a_simulator_that_cannot_be_had_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "sched_sim.core.event_engine", None)
    found = sched_sim(5)
    assert isinstance(found, NotRun)
    assert "install kvescrow[peers]" in found.reason
    assert isinstance(vidur(5), NotRun)
