"""kill -9 at two hundred random points: nothing acknowledged is lost, nothing is applied twice (LEA-7, SCA-2)."""

from __future__ import annotations

import json
import random
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kvescrow.reference.ledger import JournalEntry, LedgerConfig, MemoryLedger, SqliteLedger
from kvescrow.reference.receipts import Keyring
from kvescrow.spec.vocabulary import Decision, LedgerSnapshot, Reserve

KILLS = 200
KILLS_ON_ONE_FILE = 10
NURSERY = Path(__file__).with_name("nursery.py")

Kill = Callable[[Path, int, int, int], list[str]]


@pytest.fixture
def kill() -> Iterator[Kill]:
    """Run a gateway on a file, kill it after so many replies and microseconds, and return what it printed."""
    process = subprocess.Popen(
        [sys.executable, str(NURSERY)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
    )
    assert process.stdin is not None and process.stdout is not None
    source, sink = process.stdout, process.stdin

    def ask(path: Path, seed: int, acknowledgements: int, delay: int) -> list[str]:
        print(path, seed, acknowledgements, delay, file=sink, flush=True)
        answer: list[str] = json.loads(source.readline())
        return answer

    yield ask
    sink.close()
    assert process.wait(timeout=60) == 0


def acknowledged(lines: list[str]) -> set[tuple[str, str, str, Decision, int]]:
    """Return the changes whose replies came: (event, tenant, request, decision, commit number)."""
    replies = (line.split()[1:] for line in lines if line.startswith("!"))
    return {
        (kind, tenant, request, Decision(decision), int(seq))
        for kind, tenant, request, decision, seq in replies
        if not Decision(decision).changes_nothing
    }


def kept(history: list[JournalEntry]) -> list[tuple[str, str, str, Decision, int]]:
    """Return the changes on file, in the same form."""
    return [
        (type(e.event).__name__, e.event.key.tenant, e.event.key.request, e.reply.decision, e.seq)  # type: ignore[union-attr]  # all have keys
        for e in history
    ]


def asked(lines: list[str]) -> set[tuple[str, ...]]:
    """Return what was submitted, answered or not: (event, tenant, request)."""
    return {tuple(line.split()[1:]) for line in lines if line.startswith("?")}


def replayed(config: LedgerConfig, keyring: Keyring, history: list[JournalEntry]) -> LedgerSnapshot:
    """Return the state that the changes come to in a new ledger; each must be answered as it was."""
    ledger = MemoryLedger(config, keyring=keyring)
    for entry in history:
        assert ledger.submit(entry.event) == entry.reply
    return ledger.snapshot()


def test_two_hundred_kills_lose_and_repeat_nothing(tmp_path: Path, kill: Kill) -> None:
    nursery = runpy.run_path(str(NURSERY))
    config, ring = nursery["CONFIG"], nursery["RING"]
    dice = random.Random(200)
    unanswered = 0
    history: list[JournalEntry] = []
    for number in range(KILLS):
        path = tmp_path / f"{number // KILLS_ON_ONE_FILE}.ledger"
        before = len(history) if number % KILLS_ON_ONE_FILE else 0
        lines = kill(path, number, dice.choice([0, dice.randrange(1, 60)]), dice.randrange(8_000))

        # Opening compares every counter with the sum over its reservations, and refuses the file where they differ.
        ledger = SqliteLedger(path, config, keyring=ring)
        history = ledger.journal()
        snapshot = ledger.snapshot()

        changes = kept(history)
        new = changes[before:]
        assert acknowledged(lines) <= set(new), "an acknowledged change is lost"
        assert {change[:3] for change in new} <= asked(lines), "a change that nobody asked for"
        assert len({change[:3] for change in changes}) == len(changes), "a change was applied twice"
        assert [change[4] for change in changes] == list(range(1, len(changes) + 1))
        assert replayed(config, ring, history) == snapshot, "the journal does not come to the state"
        unanswered += len(set(new) - acknowledged(lines))

        # A client whose reply was lost asks again: what was kept is answered as kept, and charges nothing.
        for entry in history[before:]:
            if isinstance(entry.event, Reserve):
                assert ledger.submit(entry.event).decision is Decision.RECORDED
        assert ledger.snapshot() == snapshot
        ledger.close()
    assert unanswered > 0, "no kill fell between a commit and its reply"


def test_a_lost_change_would_be_noticed(tmp_path: Path, kill: Kill) -> None:
    nursery = runpy.run_path(str(NURSERY))
    lines = kill(tmp_path / "ledger", 1, 40, 0)
    ledger = SqliteLedger(tmp_path / "ledger", nursery["CONFIG"], keyring=nursery["RING"])
    history = ledger.journal()
    ledger.close()
    last = max(acknowledged(lines), key=lambda change: change[4])
    assert acknowledged(lines) <= set(kept(history))
    assert not acknowledged(lines) <= set(kept([entry for entry in history if entry.seq != last[4]]))
