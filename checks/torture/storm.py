"""A storm of connections: many callers at once, each for one reservation that it gives up again."""

import random
from threading import Barrier, Thread

from kvescrow.checks.torture.caller import Caller, Over
from kvescrow.checks.torture.log import Log
from kvescrow.checks.torture.site import Site
from kvescrow.checks.torture.workload import FAR, GATEWAY_LEASE
from kvescrow.spec.vocabulary import Cancel, Key, Reserve

CALLERS = 40


def storm(site: Site, log: Log, number: int, until: int) -> None:
    """Let all callers of storm `number` connect and submit at the same moment; return when they are done."""
    gate = Barrier(CALLERS)

    def call(which: int) -> None:
        caller = Caller(site, log, f"storm-{number}.{which}", until, random.Random(which))
        key = Key("red", f"storm-{number}.{which}")
        gate.wait()
        try:
            reply = caller.submit(Reserve(key, 1, "d", FAR, lease=GATEWAY_LEASE))
            caller.submit(Cancel(key, reply.life))
        except Over:
            return
        finally:
            caller.close()

    threads = [Thread(target=call, args=(which,), daemon=True) for which in range(CALLERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
