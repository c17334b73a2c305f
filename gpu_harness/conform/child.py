"""The worker's machine in a process of its own: what that process runs.

It does what it is asked over a connection, one thing at a time, and answers with what came of it; device work goes on
behind the answer. Its memory is nobody else's and ends with it.
"""

import copyreg
import pickle
from collections.abc import Sequence
from multiprocessing.connection import Connection
from types import MappingProxyType
from typing import Any

from kvescrow.gpu_harness.conform.conduct import Conduct, LaunchedStep
from kvescrow.gpu_harness.conform.machine import HereMachine
from kvescrow.gpu_harness.conform.platform import open_platform
from kvescrow.gpu_harness.conform.settings import Settings
from kvescrow.gpu_harness.decoder import StepResult
from kvescrow.gpu_harness.evidence import Evidence
from kvescrow.gpu_harness.pages import PageClaim
from kvescrow.gpu_harness.plan import StepBatch
from kvescrow.gpu_harness.probe import ProbeResult
from kvescrow.gpu_harness.streams import Gate, Stream


def _read_only(values: dict[object, object]) -> MappingProxyType[object, object]:
    return MappingProxyType(values)


# Evidence has one inside, and no pickle knows it by its name.
copyreg.pickle(MappingProxyType, lambda mapping: (_read_only, (dict(mapping),)))


def send(connection: Connection, message: object) -> None:
    """Send a message whole: tensors as bytes, since memory that is shared would outlive the process that made it."""
    connection.send_bytes(pickle.dumps(message))


def receive(connection: Connection) -> Any:
    """Return the next message. Raises EOFError where the other side is gone."""
    return pickle.loads(connection.recv_bytes())


def serve(connection: Connection, settings: Settings, probe: ProbeResult, epoch: int) -> None:
    """Be a machine on the weights of `epoch` until the other side closes or goes.

    What a request raises is the answer to it.
    """
    with open_platform(settings, probe) as platform:
        machine = HereMachine(platform, Conduct(), settings.pages, epoch)
        served = Served(machine)
        try:
            send(connection, None)
            while True:
                name, arguments = receive(connection)
                try:
                    answer = True, getattr(served, name)(*arguments)
                except Exception as error:
                    answer = False, error
                send(connection, answer)
        except (EOFError, BrokenPipeError, ConnectionResetError):
            machine.close()


class Served:
    """What may be asked of the machine, each by the name of a method. Streams go by name, steps and gates by number."""

    def __init__(self, machine: HereMachine) -> None:
        self._machine = machine
        self._streams = {stream.name: stream for stream in (machine.prefill, machine.decode)}
        self._steps: dict[int, LaunchedStep] = {}
        self._gates: list[Gate] = []

    def _stream(self, name: str) -> Stream:
        return self._streams[name]

    # --- steps ------------------------------------------------------------------------------------------------------

    def launch(self, stream: str, batch: StepBatch) -> None:
        """Launch a step; it goes by its ticket from now on."""
        self._steps[batch.ticket] = self._machine.launch(self._stream(stream), batch, ())

    def done(self, ticket: int) -> bool:
        """Whether a step is over."""
        return self._steps[ticket].pending.done()

    def wait(self, ticket: int, microseconds: int) -> bool:
        """Wait for a step; whether it was over in time."""
        return self._steps[ticket].pending.event.signal.wait(microseconds)

    def result(self, ticket: int) -> StepResult:
        """What a step that is over gave; it is not asked for again."""
        return self._steps.pop(ticket).pending.result()

    def synchronize(self, stream: str) -> None:
        """Wait for all that is on a stream."""
        self._stream(stream).synchronize()

    def hold(self, stream: str) -> int:
        """Hold a stream back; the gate's number."""
        self._gates.append(self._machine.hold(self._stream(stream)))
        return len(self._gates) - 1

    def open(self, gate: int) -> None:
        """Let what a gate holds back run."""
        self._gates[gate].open()

    def holding(self, gate: int) -> bool:
        """Whether a gate holds."""
        return self._gates[gate].holding()

    def load(self, epoch: int) -> None:
        """Change the weights."""
        self._machine.load(epoch)

    # --- pages ------------------------------------------------------------------------------------------------------

    def grant(self, stream: str, pages: Sequence[int], owner: int, scope: int, first_index: int) -> list[PageClaim]:
        """Hand pages over, and say under which claims."""
        frames = self._machine.frames
        frames.grant(self._stream(stream), pages, owner=owner, scope=scope, first_index=first_index)
        return frames.claims(pages)

    def join(self, stream: str, pages: Sequence[int]) -> None:
        """Order a stream after what was done to pages."""
        self._machine.frames.join(self._stream(stream), pages)

    def publish(self, pages: Sequence[int]) -> None:
        """Stamp pages as shared."""
        self._machine.frames.publish(pages)

    def sums(self, pages: Sequence[int]) -> dict[int, int]:
        """The sums of pages, waited for: what is not said before this process ends is never said."""
        return self._machine.frames.sums(pages).wait()

    def scrub(self, pages: Sequence[int]) -> None:
        """Poison pages."""
        self._machine.frames.scrub(pages)

    def finish_scrubs(self) -> None:
        """Wait for what was asked for."""
        self._machine.frames.finish_scrubs()

    def collect(self) -> tuple[int, int, Evidence]:
        """Take in the checks that are done: clean pages, pages scrubbed, and what was found so far."""
        frames = self._machine.frames
        frames.collect()
        return frames.clean, frames.scrubs, frames.found

    def audit(self, free: Sequence[int]) -> Evidence:
        """Look at every page."""
        return self._machine.frames.audit(free)
