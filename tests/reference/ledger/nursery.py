"""Starts gateways on a ledger file and kills them: one process that forks, so that two hundred starts stay cheap.

Each line of standard input asks for one gateway: `path seed acknowledgements microseconds`. It submits random events
from several threads and prints each on a pipe before it is submitted and after its reply. After that many replies,
and some microseconds more, it is killed; with none, that may be while it opens the file. The answer is one line of
JSON with all that the pipe brought, in order.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from threading import Thread

from kvescrow.reference.ledger import LedgerConfig, LedgerReply, SqliteLedger, TenantConfig
from kvescrow.reference.receipts import Keyring
from kvescrow.spec.vocabulary import (
    Cancel,
    Decision,
    Key,
    LedgerEvent,
    Preempt,
    Promote,
    Receipt,
    ReportUsage,
    Reserve,
    Start,
    StopOutcome,
)
from kvescrow.spec.vocabulary import Finish as Stop

THREADS = 4
RING = Keyring({"first": b"a key of thirty-two random bytes"}, "first")
CONFIG = LedgerConfig(
    pool="pool",
    pool_limit=100,
    tenants={name: TenantConfig(limit=60, budget=10**9, queue_limit=3) for name in ("red", "blue")},
    retention=10**12,
)


def live(ledger: SqliteLedger, seed: int, number: int, pipe: int) -> None:
    """Take requests through random lives for ever; each has a name that no other thread or start uses."""
    dice = random.Random(f"{seed} {number}")
    count = 0

    def submit(event: LedgerEvent) -> LedgerReply:
        name = f"{type(event).__name__} {event.key.tenant} {event.key.request}"  # type: ignore[union-attr]  # all have keys
        os.write(pipe, f"? {name}\n".encode())
        reply = ledger.submit(event)
        os.write(pipe, f"! {name} {reply.decision.value} {reply.seq}\n".encode())
        return reply

    while True:
        count += 1
        key = Key(dice.choice(["red", "blue"]), f"{seed}.{number}.{count}")
        admission = submit(Reserve(key, dice.randrange(1, 30), "d", 10**12, max_wait=dice.choice([0, 10**9])))
        if admission.decision is Decision.QUEUED:
            admission = submit(Promote(key))
        if admission.decision is not Decision.ADMITTED or dice.random() < 0.2:
            submit(Cancel(key, admission.life))
            continue
        generation = submit(Start(key, admission.life, "worker")).generation
        submit(ReportUsage(key, "worker", generation, dice.randrange(1, 40)))
        if dice.random() < 0.3:
            submit(Preempt(key, generation))
        if dice.random() < 0.1:
            continue
        outcome = dice.choice(list(StopOutcome))
        receipt = Receipt("pool", key, "worker", generation, 0, outcome, dice.randrange(40), "", b"")
        submit(Stop(RING.sign(receipt)))


def gateway(path: Path, seed: int, pipe: int) -> None:
    """Open the ledger and serve until killed."""
    ledger = SqliteLedger(path, CONFIG, keyring=RING)
    threads = [Thread(target=live, args=(ledger, seed, number, pipe)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def raise_and_kill(path: Path, seed: int, acknowledgements: int, delay: int) -> list[str]:
    """Run one gateway until it has this many replies, kill it `delay` microseconds later, return its lines."""
    reader, pipe = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        gateway(path, seed, pipe)
        os._exit(1)
    os.close(pipe)

    def kill() -> None:
        time.sleep(delay / 1_000_000)
        os.kill(child, signal.SIGKILL)

    if acknowledgements == 0:
        kill()
    lines: list[str] = []
    with os.fdopen(reader, encoding="utf-8") as stream:
        for line in stream:
            lines.append(line.rstrip("\n"))
            acknowledgements -= line.startswith("!")
            if acknowledgements == 0 and line.startswith("!"):
                kill()
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), f"the gateway ended by itself: {status}"
    return lines


def main() -> None:
    """Serve one request a line."""
    for line in sys.stdin:
        path, seed, acknowledgements, delay = line.split()
        answer = raise_and_kill(Path(path), int(seed), int(acknowledgements), int(delay))
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
