"""The state of a target that lives in memory, kept so that the target can be brought back to it.

To bring it back is ten times cheaper than to copy it: what can change is found once, and then only its content is
replaced.
"""

from collections.abc import Callable, Collection
from functools import cache
from itertools import count
from typing import Any

from kvescrow.checks.explore.conformance.clone import SHARED, is_shared, next_of, slots_of

Read = Callable[[Any], tuple[Any, ...]]
Write = Callable[[Any, tuple[Any, ...]], None]
"""Read and set all slots of an object."""


class Checkpoint:
    """Everything that can change in a target, each with its content at this moment."""

    def __init__(self, target: Any) -> None:
        """Find it all; raise TypeError where something in it cannot be brought back."""
        self._named: list[tuple[dict[Any, Any], dict[Any, Any]]] = []
        """Dictionaries, also those that the attributes of objects lie in, each with its content."""
        self._lists: list[tuple[list[Any], list[Any]]] = []
        self._sets: list[tuple[set[Any], set[Any]]] = []
        self._slots: list[tuple[Write, Any, tuple[Any, ...]]] = []
        self._counters: list[tuple[dict[Any, Any], Any, int]] = []
        """(dictionary, name in it, the counter's next number): a counter cannot be turned back, so it is replaced."""
        self._met: set[int] = set()
        self._keep_all((target,))

    def restore(self) -> None:
        """Bring the target back to where it was when this was made."""
        for named, content in self._named:
            named.clear()
            named.update(content)
        for items, kept in self._lists:
            items[:] = kept
        for members, before in self._sets:
            members.clear()
            members.update(before)
        for write, owner, values in self._slots:
            write(owner, values)
        for named, name, number in self._counters:
            named[name] = count(number)

    def _keep_all(self, values: Collection[Any]) -> None:
        if SHARED.issuperset(map(type, values)):
            return
        for value in values:
            kind = value.__class__
            if kind in SHARED or is_shared(kind) or id(value) in self._met:
                continue
            self._met.add(id(value))
            _keeper(kind)(self, value)

    def _keep_dict(self, named: dict[Any, Any]) -> None:
        self._named.append((named, named.copy()))
        self._keep_all(named)
        self._keep_values(named)

    def _keep_values(self, named: dict[Any, Any]) -> None:
        for name, value in named.items():
            if value.__class__ is count:
                self._counters.append((named, name, next_of(value)))
            elif value.__class__ not in SHARED:
                self._keep_all((value,))

    def _keep_list(self, items: list[Any]) -> None:
        self._lists.append((items, items.copy()))
        self._keep_all(items)

    def _keep_set(self, members: set[Any]) -> None:
        self._sets.append((members, members.copy()))
        self._keep_all(members)

    def _keep_object(self, owner: Any) -> None:
        if slots_of(owner.__class__):
            read, write = _slots(owner.__class__)
            values = read(owner)
            self._slots.append((write, owner, values))
            self._keep_all(values)
        if hasattr(owner, "__dict__"):
            named = vars(owner)
            self._named.append((named, named.copy()))
            self._keep_values(named)

    def _refuse(self, counter: "count[int]") -> None:
        raise TypeError(f"{counter} is neither an attribute by name nor in a dictionary, so it cannot be brought back")


@cache
def _keeper(kind: type) -> Callable[[Checkpoint, Any], None]:
    if issubclass(kind, dict):
        return Checkpoint._keep_dict
    if issubclass(kind, list):
        return Checkpoint._keep_list
    if issubclass(kind, set):
        return Checkpoint._keep_set
    if issubclass(kind, tuple):
        return Checkpoint._keep_all
    return Checkpoint._refuse if kind is count else Checkpoint._keep_object


@cache
def _slots(kind: Any) -> tuple[Read, Write]:
    """Return how all slots of objects of `kind` are read and set: functions written for it, since there are many."""
    names = slots_of(kind)
    known = {f"set_{name}": getattr(kind, name).__set__ for name in names}
    if kind.__setattr__ is object.__setattr__:
        write = f"    ({', '.join(f'owner.{name}' for name in names)},) = values"
    else:
        write = "\n".join(f"    set_{name}(owner, values[{place}])" for place, name in enumerate(names))
    read = f"    return ({', '.join(f'owner.{name}' for name in names)},)"
    exec(f"def read(owner):\n{read}\ndef write(owner, values):\n{write}", known)
    return known["read"], known["write"]
