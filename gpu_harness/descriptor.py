"""Step descriptors: what a step reads of the host, in a ring of host buffers (pinned on cuda).

The host packs a plan into one buffer when it launches the step; the device copies the buffer when the step
runs. In between the buffer must not change, so a slot of the ring is used again only when the step that was
last launched from it is done. Each descriptor carries its ticket, and each step gives back the ticket that it
read: a slot that was written too early is seen, even where the descriptor in it makes sense (PAG-4, CON-2).
"""

from collections.abc import Iterator
from typing import Any, TypeVar, cast

import attrs
import torch
from attrs import frozen

from kvescrow.gpu_harness.device import Device
from kvescrow.gpu_harness.streams import Event

RING_SLOTS = 16
"""More than the steps that are ever in flight on both streams, so that the host does not wait for a slot."""

T = TypeVar("T")


@frozen
class Packed:
    """A tree of tensors as one row of words: `words` [n] int64 on the host, and how to take it apart again."""

    words: torch.Tensor
    tree: object
    """The tree that was packed; its tensors tell sizes and types, and their content is not looked at again."""

    @property
    def sizes(self) -> list[torch.Size]:
        """The size of each tensor in order."""
        return [tensor.shape for tensor in _tensors(self.tree)]


def pack(tree: object) -> Packed:
    """All tensors of a tree of attrs objects and tuples, in order, as words."""
    return Packed(torch.cat([tensor.flatten().long() for tensor in _tensors(tree)]), tree)


def unpack(packed: Packed, words: torch.Tensor) -> Any:
    """The tree whose tensors are views of `words`, wherever these are now."""
    return _rebuilt(packed.tree, iter(torch.split(words, [size.numel() for size in packed.sizes])))


class DescriptorRing:
    """`slots` buffers, written in turn."""

    def __init__(self, device: Device, slots: int = RING_SLOTS) -> None:
        self._device = device
        self._buffers = [self._empty(0) for _ in range(slots)]
        self._busy: list[Event | None] = [None] * slots
        self._next = 0

    def put(self, packed: Packed) -> int:
        """Write a descriptor into the next slot, when the step launched from it before is done. Returns the slot."""
        slot, self._next = self._next, (self._next + 1) % len(self._buffers)
        busy = self._busy[slot]
        if busy is not None:
            busy.synchronize()
        self._write(slot, packed.words)
        return slot

    def launched(self, slot: int, event: Event) -> None:
        """The step that reads `slot` is done with `event`."""
        self._busy[slot] = event

    def read(self, slot: int, count: int) -> torch.Tensor:
        """In launched work: the first `count` words of `slot` as they are now, on the device."""
        words = self._buffers[slot][:count]
        return words.to(self._device.torch_device, non_blocking=True) if self._device.is_cuda else words.clone()

    def _write(self, slot: int, words: torch.Tensor) -> None:
        if len(self._buffers[slot]) < len(words):
            # Twice the need, so that buffers soon stop growing: pinned memory is slow to get.
            self._buffers[slot] = self._empty(2 * len(words))
        self._buffers[slot][: len(words)] = words

    def _empty(self, words: int) -> torch.Tensor:
        return torch.zeros(words, dtype=torch.int64, pin_memory=self._device.is_cuda and words > 0)


def _tensors(tree: object) -> Iterator[torch.Tensor]:
    if isinstance(tree, torch.Tensor):
        yield tree
    elif isinstance(tree, tuple):
        for part in tree:
            yield from _tensors(part)
    elif attrs.has(type(tree)):
        for field in attrs.fields(cast(Any, type(tree))):
            yield from _tensors(getattr(tree, field.name))


def _rebuilt(tree: T, parts: Iterator[torch.Tensor]) -> T:
    if isinstance(tree, torch.Tensor):
        return cast(T, next(parts).view(tree.shape).to(tree.dtype))
    if isinstance(tree, tuple):
        return cast(T, tuple(_rebuilt(part, parts) for part in tree))
    if attrs.has(type(tree)):
        fields = attrs.fields(cast(Any, type(tree)))
        return type(tree)(**{field.name: _rebuilt(getattr(tree, field.name), parts) for field in fields})
    return tree
