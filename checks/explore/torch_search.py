"""The packed search with its arrays in torch, on cpu or cuda.

What a group does at a valuation is found on the host as ever, by running the tables; the device gets the numbers and
the sums to add, and does the rest a level at a time. It takes the instances whose keys are short enough for a byte
each, and no symmetry. On cpu it is slower than numpy, whose search works on bits and on what fits the caches: this one
is for cuda.
"""

import time
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np

from kvescrow.checks.explore import packed
from kvescrow.checks.explore.instance import Instance
from kvescrow.checks.explore.memory import Watcher
from kvescrow.checks.explore.normal_form import Break, NormalForm
from kvescrow.checks.explore.packed import SHARE, Answers, Engine
from kvescrow.checks.explore.packing import PackedOverflow, Packing, short_packings_of
from kvescrow.checks.explore.result import Exploration
from kvescrow.checks.explore.sums import Keeper, NotKept
from kvescrow.spec.vocabulary import UserError

if TYPE_CHECKING:
    from torch import Tensor

CHUNKS = {"cpu": 1 << 16, "cuda": 1 << 22}
"""States that are expanded at a time: on cpu what the caches hold, on cuda enough to keep it busy."""


def missing(device: str) -> str:
    """Return why `device`, cpu or cuda, cannot be used; empty where it can."""
    if find_spec("torch") is None:
        return "package torch is not installed: pip install torch"
    import torch

    return "torch finds no CUDA device" if device == "cuda" and not torch.cuda.is_available() else ""


def search(instance: Instance, watcher: Watcher, device: str) -> Exploration:
    """Return every reachable state of `instance`, as `packed.search` does, on `device`.

    Raises `UserError` where a byte for each key would take too much memory, or a group looks at too many fields.
    """
    started = time.perf_counter()
    form = NormalForm(instance)
    for packing in short_packings_of(form.views.variables, Keeper(form).follow):
        if 1 << packing.key_bits > _room(watcher, device):
            break
        engine = Engine(form, packing)
        if engine.looks_at_counters or any(answers.lookup.table is None for answers in engine.answers):
            break
        try:
            return _searched(engine, watcher, device, started)
        except PackedOverflow:
            continue
        except NotKept:
            # Some counter is not what it counts: the search that looks at counters in every state finds where.
            return packed.search(instance, watcher)
    raise UserError(
        f"instance {instance.name}: torch takes instances with short keys and small groups; leave `--device` out"
    )


def _room(watcher: Watcher, device: str) -> int:
    """Return how many bytes the set of states may take."""
    import torch

    return (watcher.limit if device == "cpu" else int(torch.cuda.mem_get_info()[0])) // SHARE


class _Group:
    """The table of one group on the device, and how often each behaviour occurred."""

    def __init__(self, answers: Answers, device: str) -> None:
        import torch

        self._answers = answers
        self._device = device
        self.occurred = torch.zeros(0, dtype=torch.int64, device=device)
        self._upload()

    def _upload(self) -> None:
        import torch

        self._answers.grow()
        self._table = torch.tensor(self._answers.lookup.table, device=self._device)
        self.deltas = [torch.tensor(deltas, device=self._device) for deltas in self._answers.deltas]
        grown = torch.zeros(len(self._answers.behaviours), dtype=torch.int64, device=self._device)
        grown[: len(self.occurred)] = self.occurred
        self.occurred = grown

    def numbers(self, states: "Tensor") -> "Tensor":
        """Return the number of the behaviour of each state, and count it."""
        import torch

        index = torch.zeros_like(states)
        for run in self._answers.lookup.runs:
            index |= ((states >> run.shift) & run.mask) << run.place
        numbers = self._table[index]
        unknown = states[numbers < 0]
        if len(unknown):
            self._answers.lookup.numbers(unknown.cpu().numpy())
            self._upload()
            numbers = self._table[index]
        self.occurred += torch.bincount(numbers, minlength=len(self.occurred))
        return numbers

    def broken(self, states: "Tensor", numbers: "Tensor") -> tuple[int, Break] | None:
        """Return (state, what breaks there); None where nothing does."""
        for number in self._answers.bad:
            where = (numbers == number).nonzero()
            if len(where):
                return int(states[where[0]]), self._answers.behaviours[number].broken[0]
        return None


class _Seen:
    """A byte for each key."""

    def __init__(self, packing: Packing, device: str) -> None:
        import torch

        self._apart = packing.apart
        self._bytes = torch.zeros(1 << packing.key_bits, dtype=torch.uint8, device=device)
        self._offered: list[Tensor] = []

    def offer(self, states: "Tensor") -> None:
        """Note next states, new or not."""
        keys = states >> self._apart
        fresh = (self._bytes[keys] == 0).nonzero().squeeze(1)
        self._bytes[keys[fresh]] = 1
        self._offered.append(states[fresh])

    def settle(self) -> "Tensor":
        """Return what is new, in order and once."""
        import torch

        states: Tensor = torch.unique(torch.cat(self._offered))
        self._offered = []
        return states


def _searched(engine: Engine, watcher: Watcher, device: str, started: float) -> Exploration:
    import torch

    groups = [_Group(answers, device) for answers in engine.answers]
    seen = _Seen(engine.packing, device)
    frontier = torch.tensor([engine.first], device=device)
    seen.offer(frontier)
    frontier = seen.settle()
    depth = size = 0
    at_first = engine.broken_sum(np.array([engine.first], np.int64))
    found = None if at_first is None else (engine.first, at_first[1])
    while len(frontier) and found is None:
        size += len(frontier)
        for states in torch.split(frontier, CHUNKS[device]):
            for group in groups:
                numbers = group.numbers(states)
                found = found or group.broken(states, numbers)
                for deltas in group.deltas:
                    seen.offer(states + deltas[numbers])
            if found is not None:
                break
        newest = seen.settle()
        # The bytes were there before; on the host only the tables grow.
        watcher.level(depth, size, len(newest), 0)
        if found is None and len(newest):
            depth += 1
        frontier = newest
    for group, answers in zip(groups, engine.answers, strict=True):
        answers.occurred = group.occurred.cpu().numpy()
    kept = f"a byte for each of 2^{engine.packing.key_bits} keys, in torch on {device}"
    return packed.concluded(engine, kept, size, depth, found, started)
