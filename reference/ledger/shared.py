"""A ledger in a store that several gateways share: what PostgreSQL and Valkey have in common (SCA-1, SCA-2).

A store lets one group of events be decided over books that it loads, and keeps what changed in one step. How it
keeps others away meanwhile is its own matter: by locks, or by refusing a change that rests on older books.

Where nobody else writes, the books as this gateway left them are still those of the store. Then it need not ask first:
it decides over them, and the store keeps the change only if that is so.
"""

import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeVar

from kvescrow.reference.ledger.books import Books
from kvescrow.reference.ledger.decisions.limits import LimitEvent
from kvescrow.reference.ledger.groups import LARGEST_GROUP, Group, GroupedLedger, decide_groups
from kvescrow.reference.ledger.port import (
    Clock,
    JournalEntry,
    OutcomeUnknown,
    Recorder,
    StorageError,
    StoreClock,
    key_of,
)
from kvescrow.reference.ledger.reckoning import Reckoning
from kvescrow.reference.ledger.recovery import Witness
from kvescrow.spec.vocabulary import Key, LedgerEvent, LedgerSnapshot, Reserve

T = TypeVar("T")

STALEST = 5_000
"""Microseconds that a moment may lie back, at most, at which something is decided without asking the store's clock."""
MOST_STANDING = 10_000
"""Records that are remembered between two groups, at most; half as many where all of them are of live work."""
MOST_BREAKS = 3
"""Times that a group is decided anew because its connection broke before anything of it was kept."""
MOST_DEFEATS = 500
"""Times that a group is decided anew because another gateway was faster: one of them always gets through, and a
store gives its turn to whoever has lost often, so this many mean that something is wrong."""


class ConnectionLost(StorageError):
    """The connection broke. What was being kept may have been."""


class Store(ABC):
    """The store of one ledger, used from one thread. Methods raise `ConnectionLost` where the connection broke, and
    `StorageError` where what is asked cannot be done; then nothing was changed."""

    @property
    @abstractmethod
    def name(self) -> str:
        """What messages call the ledger; the address is left out, since it may hold a password."""

    @abstractmethod
    def open(self) -> None:
        """Connect, make or upgrade what is kept, take the configuration, and compare all counters with their sums."""

    @abstractmethod
    def connect(self) -> None:
        """Connect anew, and see whether the store has gone back behind what this gateway saw."""

    @abstractmethod
    def load(self, events: Sequence[LedgerEvent], defeats: int) -> tuple[Books, int]:
        """Return books with all that `events` may look at, and the store's clock in microseconds.

        The witness sees their mark. `defeats` tells how often this group was too late.
        """

    @abstractmethod
    def save(self, changes: Sequence[JournalEntry], books: Books) -> bool:
        """Keep `changes` and what of `books` they touched, all at once; return False where the books had aged."""

    @property
    @abstractmethod
    def version(self) -> str:
        """What the last `load`, `save` or `save_standing` that ended well found or made of the store: each change of
        anything in it makes another one."""

    @abstractmethod
    def save_standing(
        self, changes: Sequence[JournalEntry], books: Books, version: str, absent: Sequence[Key], now: int | None
    ) -> int | None:
        """Keep `changes`, decided over `books` as they were at `version`, all at once; return the store's clock.

        Return None, and keep nothing, where the store has another version, or its last change is not the one that the
        witness saw, where one of `absent` is there, or where its clock shows less than `now`, or `STALEST`
        microseconds more.
        """

    @abstractmethod
    def release(self) -> None:
        """End what `load` began, without a change."""

    @abstractmethod
    def kept(self, changes: Sequence[JournalEntry]) -> bool:
        """Return whether `changes` were kept, whose `save` lost its connection. If not, they never will be."""

    @abstractmethod
    def begin_recovery(self) -> None:
        """Grant nothing until `confirm_recovered`."""

    @abstractmethod
    def confirm_recovered(self) -> bool:
        """Grant again; return whether that was refused before."""

    @abstractmethod
    def is_recovering(self) -> bool:
        """Return whether nothing is granted."""

    @abstractmethod
    def read(self) -> Books:
        """Return the whole books, as of one moment."""

    @abstractmethod
    def entries(self, after: int) -> list[JournalEntry]:
        """Return the changes with a commit number above `after`, in order."""

    @abstractmethod
    def waiting(self) -> tuple[Key, ...]:
        """Return the queued keys, first come first."""

    @abstractmethod
    def due(self, clock: int) -> list[LedgerEvent]:
        """Return what is due when the clock shows `clock`, or what the pool's record shows, whichever is later."""

    @abstractmethod
    def now(self) -> int:
        """Return the store's clock in microseconds."""

    @abstractmethod
    def keep_clock(self, clock: int) -> None:
        """Let no gateway's clock show less than `clock` from now on (LEA-6)."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""


class SharedLedger(GroupedLedger):
    """A durable `Ledger` that any number of gateways share, each through an object of its own.

    Each group of events is decided over what the store holds at that moment: over books loaded for it, or over those
    that the last group left, and then the store keeps the change only where nothing else has changed since. What
    changes nothing is always decided over loaded books. A reply comes after its change is durable.

    A connection that breaks is made anew. Where nothing was kept, the group is decided again; where that is in doubt,
    the journal tells. Only where the store stays away is the caller told `OutcomeUnknown`, and then its key tells.
    """

    def __init__(
        self,
        store: Store,
        witness: Witness,
        clock: "Clock | StoreClock | None",
        recorder: Recorder | None,
        patience: float,
    ) -> None:
        """Open `store` and serve. `patience`: for how many seconds a lost connection is tried again."""
        super().__init__(recorder)
        self._store = store
        self._witness = witness
        self._clock = clock
        self._patience = patience
        self._floor = 0
        self._standing: tuple[Books, str] | None = None
        """What the last group left, and of which version, where no other gateway seems to be writing."""
        self._doubtful: Sequence[JournalEntry] = ()
        """Changes of which nobody knows whether they were kept, nor whether they still will be."""
        self._reckoning = Reckoning()
        try:
            store.open()
        except BaseException:
            store.close()
            witness.close()
            raise

    @property
    def recovering(self) -> bool:
        """Whether changes may be missing, so that nothing is granted (RECOVERING)."""
        return self._ask(lambda: self._read(self._store.is_recovering))

    def begin_recovery(self) -> None:
        """Grant nothing until `confirm_recovered`; for an operator who restored a backup."""
        self._ask(lambda: self._read(self._store.begin_recovery))

    def confirm_recovered(self) -> bool:
        """Grant again; return whether the ledger was recovering.

        For an operator who has made sure that no work runs which the ledger does not know: that its worker
        incarnations are gone, for one. Lives and generations that were drawn in the lost changes are not drawn again.
        """
        return self._ask(lambda: self._read(self._store.confirm_recovered))

    def _keep(self, groups: Sequence[Group]) -> None:
        breaks = defeats = 0
        while breaks < MOST_BREAKS and defeats < MOST_DEFEATS:
            try:
                if self._attempt(groups, defeats):
                    return
                defeats += 1
                # Those who lost together must not meet again.
                time.sleep(random.random() * min(defeats, 10) / 10_000)
            except ConnectionLost:
                breaks += 1
                self._patiently(self._connect)
        trouble = "the connection was lost" if defeats < MOST_DEFEATS else "another gateway was faster"
        raise StorageError(
            f"{self._store.name}: {trouble} {max(breaks, defeats)} times, nothing was applied: submit again"
        )

    def _attempt(self, groups: Sequence[Group], defeats: int) -> bool:
        """Decide the groups and keep what changed; return False where another gateway was faster."""
        events = [event for group in groups for event in group.events]
        own = self._own_time()
        return self._keep_standing(groups, events, own) or self._keep_loaded(groups, events, defeats, own)

    def _keep_standing(self, groups: Sequence[Group], events: Sequence[LedgerEvent], own: int | None) -> bool:
        """Do it over the books as the last group left them; return False where they are not enough, or have aged."""
        now = self._reckoning.now(_timer())
        # A larger group takes longer to decide and to send than a reckoned clock may be behind.
        if self._standing is None or now is None or len(events) > LARGEST_GROUP:
            return False
        books, version = self._standing
        if (absent := absent_keys(events, books)) is None:
            return False
        # From here on they may hold what the store does not.
        self._standing = None
        moment = now if own is None else own
        changes = self._decide(groups, books, moment)
        if not changes:
            self._standing = books, version
        # Only the store can tell whether a refusal still holds, and here it is told of changes alone.
        if not changes or len(changes) < len(events):
            return False
        try:
            clock = self._store.save_standing(changes, books, version, absent, now if own is None else None)
        except ConnectionLost as error:
            if not self._was_kept(changes, error):
                raise
            return True
        if clock is None:
            self._reckoning.forget()
            return False
        self._reckoning.saw(clock, _timer())
        self._passed(moment)
        self._leave(books)
        return True

    def _keep_loaded(
        self, groups: Sequence[Group], events: Sequence[LedgerEvent], defeats: int, own: int | None
    ) -> bool:
        """Do it over books that are loaded for it; return False where another gateway was faster."""
        standing, self._standing = self._standing, None
        seen = self._witness.mark
        books, now = self._store.load(events, defeats)
        version = self._store.version
        # Before anything is kept, since an answer that waits for the disk says less.
        self._reckoning.saw(now, _timer())
        # Where another gateway writes too, it would be in vain to count on the books that are left.
        is_alone = seen in (None, self._witness.mark)
        changes = self._decide(groups, books, self._passed(now if own is None else own))
        if not changes:
            self._store.release()
        else:
            try:
                if not self._store.save(changes, books):
                    return False
            except ConnectionLost as error:
                if not self._was_kept(changes, error):
                    raise
                # Others may have changed something before it was looked for.
                return True
        if is_alone and standing is not None and standing[1] == version:
            standing[0].absorb(books, filter(None, map(key_of, events)))
            books = standing[0]
        if is_alone:
            self._leave(books)
        return True

    def _leave(self, books: Books) -> None:
        """Remember the books as they stand."""
        if len(books.records) > MOST_STANDING:
            books.shed_ended()
            if len(books.records) > MOST_STANDING // 2:
                return
        books.gives_hints = False
        self._standing = books, self._store.version

    def _decide(self, groups: Sequence[Group], books: Books, now: int) -> list[JournalEntry]:
        books.advance(max(now, self._floor))
        return decide_groups(groups, books.handle)

    def _was_kept(self, changes: Sequence[JournalEntry], error: ConnectionLost) -> bool:
        """Return whether `changes` were kept although the answer was lost (SCA-2)."""

        def ask() -> bool:
            self._connect()
            return self._store.kept(changes)

        try:
            return self._patiently(ask)
        except StorageError:
            self._doubtful = changes
            raise OutcomeUnknown(
                f"{self._store.name}: the connection was lost while committing: submit the event again, its key "
                "tells whether it was applied"
            ) from error

    def _connect(self) -> None:
        # Whatever was known may be of another server's past.
        self._standing = None
        self._reckoning.forget()
        self._store.connect()
        if self._doubtful:
            # If they are not there by now, they shall not come later: their caller may have asked again.
            self._store.kept(self._doubtful)
            self._doubtful = ()

    def _passed(self, now: int) -> int:
        """Return the time, never less than this gateway has seen; `now` is what the clock showed."""
        self._floor = max(self._floor, now)
        return self._floor

    def _patiently(self, attempt: Callable[[], T]) -> T:
        """Return what `attempt` returns, tried again while the connection is lost and patience lasts."""
        until = time.monotonic() + self._patience
        pause = 0.02
        while True:
            try:
                return attempt()
            except ConnectionLost:
                if time.monotonic() + pause > until:
                    raise
                time.sleep(pause)
                pause = min(0.5, 2 * pause)

    def _read(self, question: Callable[[], T]) -> T:
        """Return the answer to `question`; where the connection was lost, connect and ask again."""
        try:
            return question()
        except ConnectionLost:
            self._patiently(self._connect)
            return question()

    def _entries(self, after: int) -> list[JournalEntry]:
        return self._read(lambda: self._store.entries(after))

    def _snapshot(self) -> LedgerSnapshot:
        books = self._read(self._store.read)
        books.advance(self._floor)
        return books.snapshot()

    def _waiting(self) -> tuple[Key, ...]:
        return self._read(self._store.waiting)

    def _due(self) -> list[LedgerEvent]:
        return self._read(lambda: self._store.due(self._read_clock()))

    def _read_clock(self) -> int:
        own = self._own_time()
        return self._passed(self._store.now() if own is None else own)

    def _own_time(self) -> int | None:
        """Return what the given clock shows, 0 where time moves by `Tick` alone, None where the store tells it."""
        if self._clock is None:
            return 0
        return self._clock() if callable(self._clock) else None

    def _end(self) -> None:
        try:
            if self._floor:
                self._store.keep_clock(self._floor)
        except StorageError:
            # Only the clock's last reading is lost; every change was committed before its reply.
            pass
        finally:
            self._store.close()
            self._witness.close()


def _timer() -> int:
    """Return what this gateway's timer shows, in microseconds; it never goes back."""
    return time.monotonic_ns() // 1_000


def absent_keys(events: Sequence[LedgerEvent], books: Books) -> list[Key] | None:
    """Return the keys that must not be in the store, so that `books` are enough for `events`; None where they are not.

    Books that serve a part of the store do not tell of a key whether it is there; a new one has to be absent.
    """
    absent: dict[Key, None] = {}
    for event in events:
        if isinstance(event, LimitEvent) or event.key.tenant not in books.tenants:
            return None
        if event.key not in books.records and event.key not in absent:
            if not isinstance(event, Reserve):
                return None
            absent[event.key] = None
    return list(absent)
