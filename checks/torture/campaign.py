"""A campaign: starts the store and its gateways, brings about one fault after another, and gathers the evidence."""

import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread

from kvescrow.checks.torture.caller import Caller, Over
from kvescrow.checks.torture.clock import LONGEST_STEP
from kvescrow.checks.torture.faults import BY_GATEWAYS, FaultKind
from kvescrow.checks.torture.gateway import run_gateway
from kvescrow.checks.torture.log import Log, read_logs
from kvescrow.checks.torture.result import Observed, TortureResult, judge
from kvescrow.checks.torture.site import Evidence, StoreDown, StoreUnderTorture
from kvescrow.checks.torture.storm import storm
from kvescrow.checks.torture.supervisor import Supervisor
from kvescrow.checks.torture.workload import OWNER_LEASE
from kvescrow.spec.vocabulary import UserError

Progress = Callable[[float, str], None]
"""Told the seconds so far and what is going on."""

_SECOND = 1_000_000_000
_LEAST_GAP, _LONGEST_GAP = 0.05, 0.6
"""Seconds between two faults."""
_GRACE = 60
"""Seconds that gateways and the supervisor get to start, and to bring everything to its end. A busy machine may need
half of them to start a server once."""
_WORKS = 1000
"""Bytes in the log of a gateway that has begun to work."""


def torture(
    store: StoreUnderTorture, *, minutes: float, seed: int, gateways: int = 3, progress: Progress = lambda *_: None
) -> TortureResult:
    """Torture `store` for so many minutes and return the result; what happens when depends on `seed`.

    However short the time, each kind of fault is brought about once, and clients make each move once.

    The store is closed at the end. Raises `UserError` where the time or the number of gateways is not positive.
    """
    if minutes <= 0 or gateways < 1:
        raise UserError("give a positive number of minutes and at least one gateway")
    with TemporaryDirectory(prefix="kvescrow-torture-") as folder:
        campaign = _Campaign(store, minutes * 60, seed, gateways, Path(folder), progress)
        try:
            observed, evidence = campaign.run()
        finally:
            campaign.end_processes()
            store.close()
        logged = read_logs(sorted(Path(folder).glob("*.log")))
        faults = {kind: observed.faults.get(kind, 0) for kind in FaultKind if kind in store.faults}
        faults[FaultKind.REPLY_LOST] = logged.lost_replies
        faults[FaultKind.EVENT_REPEATED] = logged.repeats
        if FaultKind.DISK_FULL in faults and not any(call.failed for call in logged.calls):
            faults[FaultKind.DISK_FULL] = 0
        observed = Observed(faults, observed.deaths, observed.troubles)
        return judge(store.name, seed, minutes, gateways, store.site, logged, observed, evidence)


class _Campaign:
    def __init__(
        self, store: StoreUnderTorture, seconds: float, seed: int, gateways: int, folder: Path, progress: Progress
    ) -> None:
        self._store = store
        self._seconds = seconds
        self._dice = random.Random(seed)
        self._seed = seed
        self._folder = folder
        self._progress = progress
        self._number = 0
        self._context = multiprocessing.get_context("forkserver")
        self._processes: dict[str, BaseProcess] = {}
        self._places = gateways
        self._deaths: dict[str, int] = {}
        self._troubles: list[str] = []
        self._counts: Counter[FaultKind] = Counter()
        self._began = time.monotonic_ns()
        self._hard_end = self._began + int((seconds + 2 * _GRACE) * _SECOND)

    def run(self) -> tuple[Observed, Evidence | None]:
        self._context.set_forkserver_preload(["kvescrow.checks.torture.gateway", type(self._store.site).__module__])
        self._store.start()
        log = Log(self._folder / "campaign.log", "campaign")
        caller = Caller(self._store.site, log, "supervisor", self._hard_end, random.Random(0))
        supervisor = Supervisor(self._store.site, caller)
        for _ in range(self._places):
            self._spawn()
        self._wait_for_work()
        over = Event()
        # Whoever interrupts a campaign waits for nobody in it.
        watch = Thread(target=supervisor.watch, args=(over, self._deaths), daemon=True)
        watch.start()
        try:
            self._torture(log)
        except StoreDown as error:
            self._troubles.append(f"the store did not come up again: {error}")
        self._store.site.clock.stop_work()
        over.set()
        self._join()
        watch.join()
        self._progress(self._seconds, "drain")
        try:
            supervisor.drain(self._deaths)
        except Over:
            self._troubles.append("the store could not be reached at the end")
        caller.close()
        log.close()
        try:
            evidence = self._evidence()
        except StoreDown as error:
            self._troubles.append(f"the store did not open at the end: {error}")
            evidence = None
        return Observed(self._counts, self._deaths, self._troubles), evidence

    def _evidence(self) -> Evidence:
        if FaultKind.SERVER_KILLED in self._store.faults:
            # What is checked is what the files have, not what a process remembers.
            self._store.kill()
            self._store.start()
        return self._store.evidence()

    def _torture(self, log: Log) -> None:
        """Bring about faults until the time is up; the first round is finished in any case."""
        end = self._began + int(self._seconds * _SECOND)
        for kind in self._schedule():
            now = time.monotonic_ns()
            if now >= end and self._counts[kind] > 0:
                return
            self._progress((now - self._began) / _SECOND, kind.value)
            self._bring_about(kind, log)
            self._look_after_gateways()
            time.sleep(self._dice.uniform(_LEAST_GAP, self._longest_gap()))

    def _longest_gap(self) -> float:
        """Return the longest gap: short campaigns hurry, so that each kind happens more than once."""
        return min(_LONGEST_GAP, max(_LEAST_GAP, self._seconds / 40))

    def _schedule(self) -> Iterator[FaultKind]:
        """Yield kinds for ever, each once a round."""
        kinds = [kind for kind in FaultKind if kind in self._store.faults - BY_GATEWAYS]
        while True:
            self._dice.shuffle(kinds)
            yield from kinds

    def _bring_about(self, kind: FaultKind, log: Log) -> None:
        store, dice, clock = self._store, self._dice, self._store.site.clock
        match kind:
            case FaultKind.GATEWAY_KILLED:
                self._kill(dice.choice(sorted(self._processes)))
                self._spawn()
            case FaultKind.GATEWAY_STOPPED:
                self._stop(dice.choice(sorted(self._processes)))
            case FaultKind.SERVER_KILLED:
                store.kill()
                store.start()
            case FaultKind.SERVER_STOPPED:
                store.pause()
                time.sleep(dice.uniform(0.05, 0.4))
                store.resume()
            case FaultKind.DISK_FULL:
                store.squeeze()
                time.sleep(0.3)
                store.relieve()
            case FaultKind.CLOCK_FORWARD:
                clock.step(dice.randrange(LONGEST_STEP // 6, LONGEST_STEP))
            case FaultKind.CLOCK_BACK:
                clock.step(-dice.randrange(LONGEST_STEP // 6, LONGEST_STEP))
            case FaultKind.CONNECTION_STORM:
                storm(store.site, log, self._counts[kind], self._hard_end)
        self._counts[kind] += 1

    # --- gateways ---------------------------------------------------------------------------------------------------

    def _spawn(self) -> None:
        self._number += 1
        name = f"gateway-{self._number}"
        arguments = (
            self._store.site,
            name,
            self._folder / f"{name}.log",
            self._seed * 1000 + self._number,
            self._hard_end,
        )
        process = self._context.Process(target=run_gateway, args=arguments, name=name, daemon=True)
        process.start()
        self._processes[name] = process

    def _wait_for_work(self) -> None:
        """Let the time begin when every gateway works; starting them takes a part of a short campaign."""
        until = time.monotonic_ns() + _GRACE * _SECOND
        logs = [self._folder / f"{name}.log" for name in self._processes]
        while time.monotonic_ns() < until and not all(log.exists() and log.stat().st_size > _WORKS for log in logs):
            time.sleep(0.01)
        self._began = time.monotonic_ns()

    def _kill(self, name: str) -> None:
        process = self._processes.pop(name)
        process.kill()
        process.join()
        self._deaths[name] = time.monotonic_ns()

    def _stop(self, name: str) -> None:
        pid = self._processes[name].pid
        if pid is None:
            return
        os.kill(pid, signal.SIGSTOP)
        self._store.site.clock.sleep(1.5 * OWNER_LEASE)
        os.kill(pid, signal.SIGCONT)

    def _look_after_gateways(self) -> None:
        for name, process in list(self._processes.items()):
            if process.exitcode is not None:
                self._troubles.append(f"{name} ended by itself with status {process.exitcode}")
                self._kill(name)
                self._spawn()

    def _join(self) -> None:
        """Wait for all gateways; kill those that do not come to an end."""
        for name, process in list(self._processes.items()):
            process.join(_GRACE)
            if process.exitcode != 0:
                self._troubles.append(f"{name} did not end by itself: status {process.exitcode}")
            self._kill(name)

    def end_processes(self) -> None:
        """Leave no gateway behind."""
        for name in list(self._processes):
            self._kill(name)
