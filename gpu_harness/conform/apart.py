"""A machine in a process of its own, which can be killed as a worker is: by SIGKILL, with steps in flight (LEA-4).

The worker here asks, the process there does (`child`). The end of that process is the proof that its incarnation is
fenced off: the system takes memory and device context with it, so nothing that was launched can touch them again.
"""

import signal
from collections.abc import Callable, Iterable, Sequence
from multiprocessing import get_context
from typing import Any, NoReturn, TypeVar

from kvescrow.gpu_harness.conform.child import receive, send, serve
from kvescrow.gpu_harness.conform.conduct import LaunchedStep
from kvescrow.gpu_harness.conform.frames import Prints
from kvescrow.gpu_harness.conform.machine import Machine, PageFrames
from kvescrow.gpu_harness.conform.serving import Serving
from kvescrow.gpu_harness.conform.settings import Settings
from kvescrow.gpu_harness.decoder import StepResult
from kvescrow.gpu_harness.evidence import NOTHING, Evidence
from kvescrow.gpu_harness.pages import PageClaim
from kvescrow.gpu_harness.plan import StepBatch
from kvescrow.gpu_harness.probe import ProbeResult
from kvescrow.gpu_harness.streams import (
    WAIT_LIMIT_MICROSECONDS,
    DeviceError,
    DeviceTimeout,
    Event,
    Gate,
    Pending,
    Signal,
    Stream,
)

ANSWER_SECONDS = 5 * WAIT_LIMIT_MICROSECONDS / 1_000_000
"""Longest wait for an answer: several of the bounded waits of a device may stand behind it."""
END_SECONDS = 300
"""Longest wait for a process that was told to end, or killed."""

T = TypeVar("T")


class WorkerDied(DeviceError):
    """The worker's process is gone; what it had launched is gone with it."""


class _Link:
    """The process, and what is asked of it."""

    def __init__(self, settings: Settings, probe: ProbeResult, epoch: int) -> None:
        # A fresh interpreter: a fork would take along locks that threads of this process hold.
        context = get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, settings, probe, epoch), daemon=True)
        self._process.start()
        theirs.close()
        self._answer()

    def ask(self, name: str, *arguments: object) -> Any:
        """Have a method of `Served` called, and return what it returns. Raises WorkerDied, and what it raises."""
        try:
            send(self._connection, (name, arguments))
        except (BrokenPipeError, ConnectionResetError):
            self._died()
        done, answer = self._answer()
        if not done:
            raise answer
        return answer

    def _answer(self) -> Any:
        if not self._connection.poll(ANSWER_SECONDS):
            raise DeviceTimeout(f"the worker's process did not answer within {ANSWER_SECONDS:.0f} s")
        try:
            return receive(self._connection)
        except (EOFError, ConnectionResetError):
            self._died()

    def _died(self) -> NoReturn:
        # What it is to be judged by is how it ended, so it is not killed while it ends.
        self._process.join(END_SECONDS)
        raise WorkerDied(f"the worker's process {self._process.pid} is gone") from None

    def kill(self) -> None:
        """End the process at once, and wait until the system says that it has ended."""
        self._process.kill()
        self._process.join(END_SECONDS)
        if self._process.exitcode != -signal.SIGKILL:
            raise DeviceError(f"the worker's process was killed, and its exit status is {self._process.exitcode}")
        self._connection.close()

    def close(self) -> None:
        """Let the process end by itself."""
        self._connection.close()
        self._process.join(END_SECONDS)
        if self._process.is_alive():
            self._process.kill()
            raise DeviceTimeout(f"the worker's process did not end within {END_SECONDS} s")


class _Signal(Signal):
    """The end of a step there."""

    def __init__(self, link: _Link, ticket: int) -> None:
        self._link, self._ticket, self._reached = link, ticket, False

    def query(self) -> bool:
        self._reached = self._reached or self._link.ask("done", self._ticket)
        return self._reached

    def wait(self, microseconds: int) -> bool:
        self._reached = self._reached or self._link.ask("wait", self._ticket, microseconds)
        return self._reached


class _Stream(Stream):
    """The name of a stream there; work reaches it through the machine alone."""

    def __init__(self, link: _Link, name: str) -> None:
        super().__init__(name)
        self._link = link

    def synchronize(self, microseconds: int = WAIT_LIMIT_MICROSECONDS) -> None:
        self._link.ask("synchronize", self.name)

    def launch(self, work: Callable[[], object]) -> None:
        self._refuse()

    def wait(self, event: Event) -> None:
        self._refuse()

    def submit(self, work: Callable[[], T]) -> Pending[T]:
        self._refuse()

    def close(self) -> None:
        self._refuse()

    def _mark(self) -> Signal:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise DeviceError(f"stream {self.name} is another process's: functions of this one cannot run on it")


class _Gate(Gate):
    """A gate there."""

    def __init__(self, link: _Link) -> None:
        self._link, self._number = link, -1

    def hold(self, stream: Stream) -> None:
        self._number = self._link.ask("hold", stream.name)

    def open(self) -> None:
        self._link.ask("open", self._number)

    def holding(self) -> bool:
        return bool(self._link.ask("holding", self._number))


class _Pages(PageFrames):
    """The pages there. Their figures are those of the last time that they were collected."""

    def __init__(self, link: _Link) -> None:
        self._link = link
        self._claims: dict[int, PageClaim] = {}
        self._clean = self._scrubs = 0
        self._found = NOTHING

    @property
    def clean(self) -> int:
        self.collect()
        return self._clean

    @property
    def scrubs(self) -> int:
        return self._scrubs

    @property
    def found(self) -> Evidence:
        return self._found

    def grant(self, stream: Stream, pages: Sequence[int], *, owner: int, scope: int, first_index: int) -> None:
        if pages:
            claims = self._link.ask("grant", stream.name, list(pages), owner, scope, first_index)
            self._claims.update((claim.page, claim) for claim in claims)

    def join(self, stream: Stream, pages: Iterable[int]) -> None:
        self._link.ask("join", stream.name, list(pages))

    def claims(self, pages: Iterable[int]) -> list[PageClaim]:
        return [self._claims[page] for page in pages]

    def publish(self, pages: Sequence[int]) -> None:
        self._link.ask("publish", list(pages))

    def sums(self, pages: Sequence[int]) -> Prints:
        return _at_hand(self._link.ask("sums", list(pages)))

    def scrub(self, pages: Iterable[int]) -> None:
        self._link.ask("scrub", list(pages))

    def finish_scrubs(self) -> None:
        self._link.ask("finish_scrubs")

    def collect(self) -> None:
        self._clean, self._scrubs, self._found = self._link.ask("collect")

    def audit(self, free: Sequence[int]) -> Evidence:
        found: Evidence = self._link.ask("audit", list(free))
        return found


class ApartMachine(Machine):
    """In a process of its own. It does everything rightly: sabotage needs memory that it can reach."""

    def __init__(self, settings: Settings, probe: ProbeResult, epoch: int) -> None:
        """Start the process, and wait until its device is open and its pages are poisoned.

        Raises WorkerDied where it ends before.
        """
        super().__init__()
        self._link = _Link(settings, probe, epoch)
        self.prefill, self.decode = _Stream(self._link, "prefill"), _Stream(self._link, "decode")
        self._pages = _Pages(self._link)

    @property
    def pages(self) -> PageFrames:
        """Its pages."""
        return self._pages

    def launch(self, stream: Stream, batch: StepBatch, members: Sequence[Serving]) -> LaunchedStep:
        """Launch a step there."""
        self._link.ask("launch", stream.name, batch)
        end = Event()
        end.bind(_Signal(self._link, batch.ticket))
        pending: Pending[StepResult] = Pending(end, end, lambda: self._link.ask("result", batch.ticket), lambda: 0)
        launched = LaunchedStep(batch.ticket, stream, tuple(members), pending, end)
        self.in_flight.append(launched)
        return launched

    def hold(self, stream: Stream) -> Gate:
        """Hold a stream back."""
        gate = _Gate(self._link)
        gate.hold(stream)
        return gate

    def load(self, epoch: int) -> None:
        """Change the weights there."""
        self._link.ask("load", epoch)

    def kill(self) -> None:
        """SIGKILL, and the system's word that the process has ended. Raises DeviceError where it ended otherwise."""
        self._link.kill()

    def close(self) -> None:
        """Let the process end."""
        self._link.close()


class _Reached(Signal):
    def query(self) -> bool:
        return True

    def wait(self, microseconds: int) -> bool:
        return True


def _at_hand(value: T) -> Pending[T]:
    """A result that is here already."""
    event = Event()
    event.bind(_Reached())
    return Pending(event, event, lambda: value, lambda: 0)
