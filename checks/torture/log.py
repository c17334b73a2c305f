"""Logs of what a process did, which outlive it: one record a write, so that kill -9 loses at most the last one."""

import os
import pickle
import struct
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from attrs import define, evolve, frozen

from kvescrow.checks.concurrency import Answer, Call
from kvescrow.spec.vocabulary import Key

_LENGTH = struct.Struct("<I")


@define
class Work:
    """One execution as it really ran, on the monotonic clock."""

    process: str
    key: Key
    generation: int
    sizes: list[tuple[int, int]]
    """(moment, bound): what its owner was told that it may use, from that moment on."""
    ended: int | None = None
    """When it had stopped; None where its process died first."""


@frozen
class Logged:
    """What the logs of all processes say."""

    calls: Sequence[Call]
    works: Sequence[Work]
    lost_replies: int
    repeats: int
    moves: Mapping[str, int]
    """How often clients did what is out of the plain course, by name."""


class Log:
    """The log of one process; its methods may be called from any thread."""

    def __init__(self, path: Path, process: str) -> None:
        """Begin the log of `process` at `path`."""
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o600)
        self._numbers = count()
        self._write("process", process)

    def sent(self, call: Call) -> int:
        """Note that `call` begins; return its number."""
        number = next(self._numbers)
        self._write("sent", number, call)
        return number

    def answered(self, number: int, ended: int, answer: Answer) -> None:
        """Note the answer to the call with `number`."""
        self._write("answered", number, ended, answer)

    def failed(self, number: int) -> None:
        """Note that the store said that nothing was applied."""
        self._write("failed", number)

    def lost_reply(self) -> None:
        """Note that an answer was thrown away."""
        self._write("lost_reply")

    def repeat(self) -> None:
        """Note that an event was sent twice."""
        self._write("repeat")

    def made(self, move: str) -> None:
        """Note that a client makes the move of that name."""
        self._write("made", move)

    def work_began(self, key: Key, generation: int, moment: int, bound: int) -> None:
        """Note that the execution with `generation` runs."""
        self._write("began", key, generation, moment, bound)

    def work_grew(self, generation: int, moment: int, bound: int) -> None:
        """Note that it may use more."""
        self._write("grew", generation, moment, bound)

    def work_ended(self, generation: int, moment: int) -> None:
        """Note that it has stopped."""
        self._write("ended", generation, moment)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _write(self, *record: object) -> None:
        content = pickle.dumps(record)
        os.write(self._file, _LENGTH.pack(len(content)) + content)


def read_logs(paths: Sequence[Path]) -> Logged:
    """Return what the logs at `paths` say."""
    readers = [_Reader(path) for path in paths]
    return Logged(
        [call for reader in readers for call in reader.calls],
        [work for reader in readers for work in reader.works],
        sum(reader.lost_replies for reader in readers),
        sum(reader.repeats for reader in readers),
        sum((reader.moves for reader in readers), Counter()),
    )


class _Reader:
    def __init__(self, path: Path) -> None:
        self._process = ""
        self._sent: dict[int, Call] = {}
        self._running: dict[int, Work] = {}
        self.works: list[Work] = []
        self.lost_replies = 0
        self.repeats = 0
        self.moves: Counter[str] = Counter()
        for kind, *values in _records(path):
            self._take(kind, values)

    @property
    def calls(self) -> list[Call]:
        return list(self._sent.values())

    def _take(self, kind: str, values: list[Any]) -> None:
        match kind, values:
            case "process", [name]:
                self._process = name
            case "sent", [number, call]:
                self._sent[number] = call
            case "answered", [number, ended, answer]:
                self._sent[number] = evolve(self._sent[number], ended=ended, answer=answer)
            case "failed", [number]:
                self._sent[number] = evolve(self._sent[number], failed=True)
            case "lost_reply", _:
                self.lost_replies += 1
            case "repeat", _:
                self.repeats += 1
            case "made", [move]:
                self.moves[move] += 1
            case "began", [key, generation, moment, bound]:
                work = self._running[generation] = Work(self._process, key, generation, [(moment, bound)])
                self.works.append(work)
            case "grew", [generation, moment, bound]:
                self._running[generation].sizes.append((moment, bound))
            case "ended", [generation, moment]:
                self._running[generation].ended = moment


def _records(path: Path) -> Iterator[tuple[Any, ...]]:
    content = path.read_bytes()
    place = 0
    while place + _LENGTH.size <= len(content):
        (length,) = _LENGTH.unpack_from(content, place)
        place += _LENGTH.size
        if place + length > len(content):
            # Its writer was killed in the middle of it.
            return
        yield pickle.loads(content[place : place + length])
        place += length
