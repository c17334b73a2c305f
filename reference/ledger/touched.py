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
    keys = {key: None for entry in changes if (key := key_of(entry.event)) is not None}
    reserved = {entry.event.key for entry in changes if isinstance(entry.event, Reserve)}
    found = [record for key in keys if (record := books.records.get(key)) is not None]
    return Touched(
        new=tuple(record for record in found if record.key in reserved),
        changed=tuple(record for record in found if record.key not in reserved),
        # A tenant's limits have a key with an empty request, which no record has to have.
        gone=tuple(key for key in keys if key not in books.records),
        tenants=tuple({key.tenant: None for key in keys}),
    )
