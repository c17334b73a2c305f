"""What a group of changes leaves to be written: the same question for every store that keeps records."""

from collections.abc import Sequence

from attrs import frozen

from kvescrow.reference.ledger.books import Books
from kvescrow.reference.ledger.port import JournalEntry, key_of
from kvescrow.reference.ledger.records import Reservation
from kvescrow.spec.vocabulary import Key, Reserve


@frozen
class Touched:
    """The records and accounts that a group of changes touched, as they are after it."""

    new: tuple[Reservation, ...]
    """Reserved in this group; a key that was forgotten in it may still have its old row in the store."""
    changed: tuple[Reservation, ...]
    """In the store since an earlier group, in the same life."""
    gone: tuple[Key, ...]
    """Forgotten."""
    tenants: tuple[str, ...]
    """Names of the tenants whose accounts may have changed."""


def touched_by(changes: Sequence[JournalEntry], books: Books) -> Touched:
    """Return what `changes` touched in `books`, each once, in the order of the first change."""
    is_new: dict[Key, bool] = {}
    for entry in changes:
        key = key_of(entry.event)
        if key is not None:
            is_new[key] = isinstance(entry.event, Reserve) or is_new.get(key, False)
    new: list[Reservation] = []
    changed: list[Reservation] = []
    gone: list[Key] = []
    for key, reserved in is_new.items():
        record = books.records.get(key)
        if record is not None:
            (new if reserved else changed).append(record)
        else:
            # A tenant's limits have a key with an empty request, which no record has to have.
            gone.append(key)
    return Touched(tuple(new), tuple(changed), tuple(gone), tuple({key.tenant: None for key in is_new}))
