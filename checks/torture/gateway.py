"""One gateway process: several client threads, each with a connection and a front of its own."""

import random
import signal
import time
from pathlib import Path
from threading import Thread

from kvescrow.checks.torture.caller import Caller, Echo, Over
from kvescrow.checks.torture.log import Log
from kvescrow.checks.torture.site import Site
from kvescrow.checks.torture.workload import GATEWAY_LEASE, Lives

THREADS = 3
_FOR_MOVES = 4_000_000_000
"""Nanoseconds; where a ledger is wrong there may be no opportunity for a move at all."""


def run_gateway(site: Site, incarnation: str, path: Path, seed: int, until: int) -> None:
    """Serve requests until the work is over and each client has made every move, for which it gets a few seconds more.

    At the latest it ends at `until` on the monotonic clock, in nanoseconds.

    `incarnation` is unique to this process start; its threads are owners of work, named after it.
    """
    # An interrupt is the campaign's to tell; here it ends the process without a word.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    log = Log(path, incarnation)
    echo = Echo(site, log, incarnation, until)
    threads = [
        Thread(target=_serve, args=(site, log, echo, f"{incarnation}/{number}", f"{seed} {number}", until))
        for number in range(THREADS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _serve(site: Site, log: Log, echo: Echo, owner: str, seed: str, until: int) -> None:
    dice = random.Random(seed)
    caller = Caller(site, log, owner, until, dice).with_faults(echo)
    lives = Lives(site, caller, site.front(caller, GATEWAY_LEASE), log, owner, dice)
    try:
        while not site.clock.work_is_over and time.monotonic_ns() < until:
            lives.live()
        until = min(until, time.monotonic_ns() + _FOR_MOVES * site.clock.pace)
        while not lives.has_made_every_move and time.monotonic_ns() < until:
            lives.live()
    except Over:
        return
    finally:
        caller.close()


def incarnation_of(owner: str) -> str:
    """Return the process that `owner` was a thread of."""
    return owner.partition("/")[0]
