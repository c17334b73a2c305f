"""What every slot of every page holds, by what was computed into it and not by what the manager believes."""

from collections.abc import Mapping, Sequence, Set
from enum import Enum

from attrs import evolve, fields, frozen

from kvescrow.spec.vocabulary import PrefixScope

Tokens = tuple[int, ...]


class Fault(Enum):
    """Why a slot does not hold what its reader takes it for."""

    EMPTY = "holds nothing that was ever computed"
    """No step has written it."""
    OTHER_TOKENS = "holds the keys of another prefix"
    """Its content was computed after other tokens, or was overwritten."""
    OTHER_SCOPE = "holds the keys of another scope"
    """Same tokens, but the scopes differ in a field that the manager tells apart."""
    NOT_COMPUTED = "is still being computed"
    """Its step is in flight."""
    GIVEN_UP = "was planned to be computed, and the plan was given up"
    """Room was granted for it, and its request was released before any step was launched."""


@frozen
class Misread:
    """The first position at which a table does not hold a sequence."""

    position: int
    page: int
    fault: Fault
    fields: tuple[str, ...] = ()
    """The fields in which the scopes differ, where that is the fault."""

    def __str__(self) -> str:
        differs = f" (they differ in {', '.join(self.fields)})" if self.fields else ""
        return f"position {self.position} lies in page {self.page}, which {self.fault.value}{differs}"


@frozen
class Content:
    """What one slot holds: the keys of the last token of `prefix`, computed in `scope`."""

    prefix: Tokens
    scope: PrefixScope
    step: int | None = None
    """The launched step that computes it; None once that step has ended."""


class Oracle:
    """Slots by (page, place in the page). Launched steps write in the order of their launch, as one stream does."""

    def __init__(self, page_length: int, scope_fields: frozenset[str]) -> None:
        """Start empty. Scopes that differ in none of `scope_fields` count as one."""
        self._page_length = page_length
        self._fields = [one.name for one in fields(PrefixScope) if one.name in scope_fields]
        self._slots: dict[tuple[int, int], Content] = {}
        self._planned: dict[tuple[int, int], tuple[str, Content]] = {}
        """Slots with room that was granted to a request for a step that is not launched."""
        self._given_up: dict[tuple[int, int], Content] = {}

    def plan(
        self, name: str, table: Sequence[int], sequence: Sequence[int], positions: range, scope: PrefixScope
    ) -> None:
        """Take note that the request `name` may launch a step over `positions`."""
        for position in positions:
            slot = self._slot(table, position)
            self._planned[slot] = name, Content(tuple(sequence[: position + 1]), scope)
            self._given_up.pop(slot, None)

    def give_up(self, name: str) -> None:
        """Take note that the request `name` launches nothing more."""
        for slot in [slot for slot, (planner, _) in self._planned.items() if planner == name]:
            self._given_up[slot] = self._planned.pop(slot)[1]

    def awaits(self, name: str, table: Sequence[int], count: int) -> bool:
        """Whether some of the first `count` positions of `table` are planned by another request than `name`."""
        planned = [self._planned.get(self._slot(table, position)) for position in range(count)]
        return any(plan is not None and plan[0] != name for plan in planned)

    def is_given_up(self, prefix: Tokens, scope: PrefixScope) -> bool:
        """Whether a plan to compute `prefix` in `scope` was given up, and its slot has not been written since."""
        return Content(prefix, scope) in self._given_up.values()

    def write(
        self, step: int, table: Sequence[int], sequence: Sequence[int], positions: range, scope: PrefixScope
    ) -> None:
        """Take note that `step` computes `positions` of `sequence` into the pages of `table`."""
        for position in positions:
            slot = self._slot(table, position)
            self._slots[slot] = Content(tuple(sequence[: position + 1]), scope, step)
            self._planned.pop(slot, None)
            self._given_up.pop(slot, None)

    def settle(self, step: int) -> None:
        """Take note that `step` has ended; what later steps have overwritten stays theirs."""
        for slot, content in self._slots.items():
            if content.step == step:
                self._slots[slot] = evolve(content, step=None)

    def misread(
        self, table: Sequence[int], sequence: Sequence[int], count: int, scope: PrefixScope, *, launched: bool = False
    ) -> Misread | None:
        """Return where the first `count` positions of `table` do not hold `sequence` in `scope`; None where they do.

        `launched`: content of a step in flight, or of one that is planned, counts as there. `table` has pages for
        `count` positions.
        """
        for position in range(count):
            slot = page, _ = self._slot(table, position)
            content, prefix = self._slots.get(slot), tuple(sequence[: position + 1])
            if launched and slot in self._planned:
                content = self._planned[slot][1]
            holds = content is not None and content.prefix == prefix
            differs = self.differing(content.scope, scope) if content is not None else []
            if (not holds or differs) and self._was_given_up(slot, prefix, scope):
                return Misread(position, page, Fault.GIVEN_UP)
            if content is None or not holds:
                return Misread(position, page, Fault.EMPTY if content is None else Fault.OTHER_TOKENS)
            if differs:
                return Misread(position, page, Fault.OTHER_SCOPE, tuple(differs))
            if content.step is not None and not launched:
                return Misread(position, page, Fault.NOT_COMPUTED)
        return None

    def differing(self, one: PrefixScope, other: PrefixScope) -> list[str]:
        """Return the fields that the manager tells apart and in which the two scopes differ."""
        return [name for name in self._fields if getattr(one, name) != getattr(other, name)]

    def scopes_of(self, prefix: Tokens, free: Set[int]) -> Mapping[PrefixScope, bool]:
        """Return each scope in which a slot holds `prefix`, outside of `free` pages, and whether its step has ended."""
        found: dict[PrefixScope, bool] = {}
        for (page, _), content in self._slots.items():
            if content.prefix == prefix and page not in free:
                found[content.scope] = found.get(content.scope, False) or content.step is None
        return found

    def _was_given_up(self, slot: tuple[int, int], prefix: Tokens, scope: PrefixScope) -> bool:
        plan = self._given_up.get(slot)
        return plan is not None and plan.prefix == prefix and not self.differing(plan.scope, scope)

    def _slot(self, table: Sequence[int], position: int) -> tuple[int, int]:
        return table[position // self._page_length], position % self._page_length
