"""Short campaigns: right stores pass, and each planted error is caught and named within seconds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from attrs import evolve

from kvescrow.checks.cli.front import main
from kvescrow.checks.concurrency import Answer, Call
from kvescrow.checks.targets.planted_ledgers import SABOTAGES
from kvescrow.checks.targets.torture import ServedStore, open_store
from kvescrow.checks.torture import FaultKind, torture
from kvescrow.checks.torture.clock import SteppedClock
from kvescrow.checks.torture.log import Log, Work, read_logs
from kvescrow.checks.torture.physical import overcommitment
from kvescrow.spec.vocabulary import Cancel, Decision, Key, Reason, UserError
from tests.checks.torture.planted_servers import PlantedServerStore

SHORT = 4 / 60
SHORTER = 2.5 / 60
SEEN_BY_ITS_EFFECTS_FIRST = ("acknowledged-before-kept", "check-then-increment")
"""What is lost leaves its number to another change; a look that is out of date puts requests behind others wrongly."""


@pytest.mark.parametrize(("store", "seed"), [("memory", 1), ("sqlite", 2), ("valkey", 3), ("postgres", 4)])
def test_a_right_store_withstands(store: str, seed: int) -> None:
    result = torture(open_store(store), minutes=SHORT, seed=seed)
    assert result.findings == []
    assert result.verdict == "passed"
    assert (result.lost, result.doubled, result.violations) == (0, 0, 0)
    assert result.acknowledged > 50
    assert result.unanswered > 0
    assert min(result.faults.values()) > 0
    assert min(result.moves.values()) > 0
    assert {*result.faults, *result.not_applicable} == {kind.value for kind in FaultKind}
    if store != "memory":
        assert result.not_applicable == []
        assert result.not_kept > 0
    # The workload takes requests through every part of their lives.
    assert {"ADMITTED", "STARTED", "RELEASED"} <= result.decisions.keys()
    if store == "memory":  # the fastest: it goes through all of that often even on a busy machine
        assert {"QUEUED", "EXTENDED", "SUSPECTED", "FORGED", "CONFLICT_DIGEST"} <= result.decisions.keys()


@pytest.mark.parametrize("sabotage", SABOTAGES)
def test_a_planted_error_is_caught_and_named(sabotage: str) -> None:
    planted = SABOTAGES[sabotage]
    result = torture(open_store(planted.store or "memory", sabotage), minutes=SHORTER, seed=1)
    assert result.verdict == "failed"
    assert planted.cause in result.causes, result.findings
    if sabotage not in SEEN_BY_ITS_EFFECTS_FIRST:
        assert result.causes[0] == planted.cause, result.findings


@pytest.mark.parametrize("store", ["postgres", "valkey"])
@pytest.mark.parametrize("sabotage", ["release-on-expiry", "late-stop-accepted", "sweeper-only-expiry"])
def test_a_planted_error_is_caught_in_a_store_that_gateways_share(store: str, sabotage: str) -> None:
    result = torture(PlantedServerStore(store, sabotage), minutes=SHORT, seed=1)
    assert result.verdict == "failed"
    assert SABOTAGES[sabotage].cause in result.causes, result.findings


class Roomy(ServedStore):
    """A store that claims to have suffered from a full disk, and never did."""

    @property
    def faults(self) -> frozenset[FaultKind]:
        return super().faults | {FaultKind.DISK_FULL}

    def squeeze(self) -> None:
        pass

    def relieve(self) -> None:
        pass


def test_a_campaign_without_one_kind_of_fault_is_not_passed() -> None:
    result = torture(Roomy("memory"), minutes=SHORTER, seed=1, gateways=1)
    assert result.findings == ["never happened: disk_full"]
    assert result.verdict == "incomplete"


class Dies(ServedStore):
    """A store that does not come up again."""

    def kill(self) -> None:
        super().kill()
        self._address = str(Path(self._address).parent / "no-such-folder" / "socket")


def test_a_store_that_stays_down_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvescrow.checks.torture.campaign._GRACE", 2)
    result = torture(Dies("sqlite"), minutes=SHORTER, seed=1, gateways=1)
    assert result.verdict == "failed"
    assert result.causes == ["trouble"]
    assert "the store did not come up again" in result.findings[0]


class TestCommandLine:
    def test_passes_with_json(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        path = tmp_path / "result.json"
        with pytest.raises(SystemExit) as exit_:
            main(["torture", "--store", "memory", "--minutes", str(SHORT), "--seed", "3", "--json", str(path)])
        result = json.loads(path.read_text("utf-8"))
        assert (result["verdict"], exit_.value.code) == ("passed", 0), capsys.readouterr().out
        assert {"store", "seed", "minutes", "faults", "acknowledged", "lost", "doubled", "violations"} <= result.keys()
        assert "repeat: kvescrow torture --store memory" in capsys.readouterr().out

    def test_catches_a_sabotage(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as exit_:
            main(
                [
                    "torture",
                    "--store",
                    "memory",
                    "--minutes",
                    str(SHORTER),
                    "--sabotage",
                    "retry-charges-again",
                    "--json",
                ]
            )
        out = capsys.readouterr().out
        assert (json.loads(out)["verdict"], exit_.value.code) == ("caught", 0)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--store", "memory", "--sabotage", "nothing"], "choose one of check-then-increment"),
            (["--store", "memory", "--sabotage", "acknowledged-before-kept"], "error of the store sqlite"),
            (["--store", "valkey", "--sabotage", "retry-charges-again"], "error of the store memory or sqlite"),
            (["--store", "paper"], "'paper' is not one of"),
        ],
    )
    def test_refuses_a_wrong_sabotage(
        self, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(SystemExit) as exit_:
            main(["torture", *arguments])
        assert exit_.value.code == 2
        assert message in capsys.readouterr().err


def test_nonsense_is_refused() -> None:
    store = open_store("memory")
    with pytest.raises(UserError, match="positive"):
        torture(store, minutes=0, seed=1)
    store.close()


class TestPhysical:
    """Running work is added up whatever the ledger says."""

    key = Key("red", "r")

    def test_two_that_do_not_fit(self) -> None:
        works = [
            Work("a/1", self.key, 1, [(10, 60)], ended=30),
            Work("b/1", Key("red", "s"), 2, [(20, 50)], ended=40),
        ]
        over = overcommitment(works, {}, 100)
        assert over is not None
        assert (over.moment, over.running) == (20, {"red/r, generation 1": 60, "red/s, generation 2": 50})
        assert overcommitment(works, {}, 110) is None

    def test_one_after_the_other_fits(self) -> None:
        works = [Work("a/1", self.key, 1, [(10, 60)], ended=20), Work("b/1", self.key, 2, [(20, 60)], ended=30)]
        assert overcommitment(works, {}, 100) is None

    def test_growth_counts_from_its_moment(self) -> None:
        works = [Work("a/1", self.key, 1, [(10, 60), (15, 80)], 30), Work("b/1", self.key, 2, [(11, 30)], 20)]
        over = overcommitment(works, {}, 100)
        assert over is not None and over.moment == 15

    def test_work_of_a_killed_process_runs_until_it_is_dead(self) -> None:
        works = [Work("a/1", self.key, 1, [(10, 60)]), Work("b/1", self.key, 2, [(20, 60)], ended=30)]
        assert overcommitment(works, {"a": 19}, 100) is None
        assert overcommitment(works, {"a": 21}, 100) is not None
        assert overcommitment(works, {}, 100) is not None


class TestLog:
    def test_a_record_that_was_cut_off_is_left_out(self, tmp_path: Path) -> None:
        path = tmp_path / "a.log"
        log = Log(path, "a")
        call = Call("a/1", Cancel(Key("red", "r"), 1), 5)
        first, _ = log.sent(call), log.sent(evolve(call, began=6))
        answer = Answer(Decision.REFUSED, Reason.UNKNOWN_KEY, seq=0)
        log.answered(first, 9, answer)
        log.work_began(Key("red", "r"), 3, 11, 20)
        log.work_grew(3, 12, 25)
        log.failed(1)
        log.close()
        whole = read_logs([path])
        assert list(whole.calls) == [
            evolve(call, ended=9, answer=answer),
            evolve(call, began=6, failed=True),
        ]
        assert list(whole.works) == [Work("a", Key("red", "r"), 3, [(11, 20), (12, 25)])]
        path.write_bytes(path.read_bytes()[:-1])
        assert list(read_logs([path]).calls)[1] == evolve(call, began=6)

    def test_clock_goes_at_its_pace(self, tmp_path: Path) -> None:
        clock = SteppedClock(tmp_path / "clock")
        clock.begin(pace=10**9)
        clock.sleep(1e-6)
        assert (clock(), clock.pace) == (0, 10**9)
        clock.step(5)
        clock.stop_work()
        assert (clock(), clock.pace) == (5, 10**9)

    def test_clock_steps_and_never_shows_less_than_zero(self, tmp_path: Path) -> None:
        clock = SteppedClock(tmp_path / "clock")
        clock.begin()
        clock.step(-(10**12))
        assert clock() == 0
        clock.step(2 * 10**12)
        assert clock() >= 10**12
        other = SteppedClock(clock.path)
        assert other() >= 10**12
        assert not other.work_is_over
        clock.stop_work()
        assert other.work_is_over
