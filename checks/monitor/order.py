"""The order of commit numbers: each change has the next one, and what changes nothing repeats the last."""

from kvescrow.spec.vocabulary import UserError


class Order:
    """Follows the commit numbers of one store."""

    def __init__(self) -> None:
        self._last = 0

    def expect(self, seq: int) -> None:
        """Refuse a number that no next event can have. Raises `UserError`."""
        if seq < self._last:
            raise UserError(f"seq {seq} comes after {self._last}: the lines are not in order; restore the journal")
        if seq > self._last + 1:
            raise UserError(
                f"seq {seq} comes after {self._last}: the changes between are missing; "
                "a journal starts with an empty store and has every change"
            )

    def follow(self, seq: int, *, changed: bool) -> None:
        """Take `seq` as the number of an event whose answer is beyond doubt. Raises `UserError` where it is wrong."""
        if changed and seq == self._last:
            raise UserError(f"seq {seq} comes twice: each change has its own; restore the journal")
        if not changed and seq != self._last:
            raise UserError(f"seq goes from {self._last} to {seq}, but nothing changed; restore the journal")
        self._last = seq

    def take(self, seq: int) -> None:
        """Take `seq` as the number of an event whose answer is in doubt."""
        self._last = seq
