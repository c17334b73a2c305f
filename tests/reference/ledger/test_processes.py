"""Gateways that are processes of their own: races for the last capacity, and servers that crash under load (ADM-2)."""

from __future__ import annotations

import gc
import os
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread

import pytest

from kvescrow.checks.targets.servers import PostgresServer, ValkeyServer
from kvescrow.reference.ledger import Ledger, LedgerConfig, LedgerReply, MemoryLedger, SqliteLedger
from kvescrow.reference.receipts import Keyring
from kvescrow.spec.vocabulary import Cancel, Decision, Key, Reserve, UserError
from tests.reference.ledger.sharing import Place, PostgresPlace, ValkeyPlace

ROUNDS = 1_000
"""Races a store."""
Open = Callable[..., Ledger]
RACER = Path(__file__).with_name("racer.py")
FAR = 10**17


class Racer:
    """One gateway process."""

    def __init__(self, tenant: str, *arguments: str) -> None:
        self.tenant = tenant
        self._process = subprocess.Popen(
            [sys.executable, str(RACER), *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._in, self._out = self._process.stdin, self._process.stdout

    def say(self, line: str) -> None:
        print(line, file=self._in, flush=True)

    def hear(self) -> list[str]:
        return self._out.readline().split()

    def close(self) -> None:
        self._in.close()
        assert self._process.wait(timeout=60) == 0


@pytest.mark.parametrize("kind", ["postgres", "valkey"])
def test_of_two_processes_that_see_six_thousand_free_one_wins(
    request: pytest.FixtureRequest, schema: str, kind: str
) -> None:
    url = request.getfixturevalue(kind).url
    racers = [Racer(tenant, kind, url, schema) for tenant in ("red", "blue")]
    assert [racer.hear() for racer in racers] == [["ready"]] * 2
    wins = {"red": 0, "blue": 0}
    for number in range(ROUNDS):
        # Whoever is told first has a head start, so they take turns.
        for racer in racers[:: 1 if number % 2 else -1]:
            racer.say(f"race {racer.tenant} {number}")
        answers = {racer: racer.hear() for racer in racers}
        assert sorted(answer[:2] for answer in answers.values()) == [["ADMITTED", "NONE"], ["REFUSED", "POOL_CAPACITY"]]
        winner = next(racer for racer, answer in answers.items() if answer[0] == "ADMITTED")
        wins[winner.tenant] += 1
        winner.say(f"cancel {winner.tenant} {number} {answers[winner][2]}")
        assert winner.hear() == ["RELEASED"]
    for racer in racers:
        racer.close()
    assert min(wins.values()) > 0, "one process was always first, so nothing was raced"

    config: LedgerConfig = runpy.run_path(str(RACER))["CONFIG"]
    kinds: dict[str, Callable[..., Place]] = {"postgres": PostgresPlace, "valkey": ValkeyPlace}
    ledger = kinds[kind](url, schema, None).open(config)
    history = ledger.journal()
    assert [entry.seq for entry in history] == list(range(1, 2 * ROUNDS + 1))
    assert ledger.snapshot().pool_active == 0
    ledger.close()


@pytest.fixture(params=["postgres", "valkey"])
def own_server(request: pytest.FixtureRequest) -> Iterator[PostgresServer | ValkeyServer]:
    server: PostgresServer | ValkeyServer = PostgresServer() if request.param == "postgres" else ValkeyServer()
    yield server
    server.close()


def test_a_server_that_crashes_under_load_loses_and_repeats_nothing(
    own_server: PostgresServer | ValkeyServer, config: LedgerConfig, keyring: Keyring
) -> None:
    kind = PostgresPlace if isinstance(own_server, PostgresServer) else ValkeyPlace
    place: Place = kind(own_server.url, "ledger", keyring)
    gateways = [place.open(config, patience=30.0) for _ in range(2)]
    told: list[tuple[Key, LedgerReply]] = []
    enough = Event()

    def work(name: int) -> None:
        ledger, count = gateways[name % 2], 0
        while not enough.is_set():
            count += 1
            key = Key("red", f"{name}.{count}")
            # Only an event that nobody answered for may be missing.
            with suppress(UserError):
                reply = ledger.submit(Reserve(key, 1, "d", FAR))
                told.append((key, reply))
                told.append((key, ledger.submit(Cancel(key, reply.life))))

    threads = [Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(3):
        before = len(told)
        while len(told) < before + 40:
            enough.wait(0.01)
        own_server.crash()
        own_server.start()
    enough.set()
    for thread in threads:
        thread.join()

    history = gateways[0].journal()
    assert [entry.seq for entry in history] == list(range(1, len(history) + 1))
    kept = {(entry.event.key, entry.reply.decision) for entry in history}  # type: ignore[union-attr]  # all have keys
    assert len(kept) == len(history), "a change was applied twice"
    changed = {(key, reply.decision) for key, reply in told if not reply.decision.changes_nothing}
    assert {decision for _, decision in changed} == {Decision.ADMITTED, Decision.RELEASED}
    assert changed <= kept, "an acknowledged change is lost"
    again = MemoryLedger(config, keyring=keyring)
    assert [again.submit(entry.event) for entry in history] == [entry.reply for entry in history]
    assert again.snapshot() == gateways[0].snapshot()
    assert not gateways[0].recovering
    for gateway in gateways:
        gateway.close()


@pytest.mark.parametrize("open_ledger", ["sqlite", "postgres", "valkey"], indirect=True)
def test_a_process_that_was_forked_off_does_not_touch_the_ledger_of_the_other(
    open_ledger: Open, config: LedgerConfig
) -> None:
    ledger = open_ledger(config)
    ledger.submit(Reserve(Key("red", "before"), 10, "digest", FAR))
    child = os.fork()
    if child == 0:
        refused = 0
        for call in (lambda: ledger.submit(Reserve(Key("red", "child"), 10, "digest", FAR)), ledger.snapshot):
            try:
                call()
            except UserError as error:
                refused += "before a fork" in str(error) and "open another here" in str(error)
        ledger.close()
        os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
    assert ledger.submit(Reserve(Key("red", "after"), 10, "digest", FAR)).seq == 2
    assert ledger.snapshot().pool_active == 20


def test_a_process_that_was_forked_off_does_not_close_the_file_of_the_other(
    tmp_path: Path, config: LedgerConfig
) -> None:
    """SQLite removes the write-ahead log when the last connection closes, and a copy believes that it is the last."""
    ledger = SqliteLedger(tmp_path / "ledger", config)
    ledger.submit(Reserve(Key("red", "before"), 10, "digest", FAR))
    child = os.fork()
    if child == 0:
        del ledger._file._connection
        del ledger
        gc.collect()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (tmp_path / "ledger-wal").exists()
    ledger.submit(Reserve(Key("red", "after"), 10, "digest", FAR))
    copy = tmp_path / "copy"
    for end in ("", "-wal"):
        shutil.copy(tmp_path / f"ledger{end}", f"{copy}{end}")
    again = SqliteLedger(copy, config)
    assert again.snapshot().pool_active == 20, "as after kill -9"
    again.close()
    ledger.close()
