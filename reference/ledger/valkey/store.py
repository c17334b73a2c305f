"""One connection to a ledger in Valkey: opened, loaded, and changed by scripts that compare before they write."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import valkey
from valkey import exceptions
from valkey.backoff import NoBackoff
from valkey.retry import Retry

from kvescrow.reference.ledger import rows
from kvescrow.reference.ledger.books import Books, account_of
from kvescrow.reference.ledger.encoding import event_text, key_text, quote, reply_text
from kvescrow.reference.ledger.port import JournalEntry, LedgerConfig, StorageError, StorageFull, key_of
from kvescrow.reference.ledger.records import PoolAccount, Reservation, TenantAccount
from kvescrow.reference.ledger.recovery import Mark, Witness, went_back
from kvescrow.reference.ledger.shared import STALEST, ConnectionLost, Store
from kvescrow.reference.ledger.touched import touched_by
from kvescrow.reference.ledger.valkey import scripts
from kvescrow.reference.receipts import Keyring
from kvescrow.spec.vocabulary import Forget, Key, LedgerEvent, Sweep, UserError

FORMAT = 1
"""Version of what the keys hold; a ledger of another version is refused, never guessed at."""
LONGEST_ANSWER = 10.0
"""Seconds without an answer after which the connection counts as lost."""
PATIENT_DEFEATS = 4
"""Defeats after which a gateway asks for its turn."""

_NEEDED = {
    "appendonly": ("yes", "what it confirmed is lost when it ends"),
    "appendfsync": ("always", "the last second of what it confirmed is lost in a crash"),
    "maxmemory-policy": ("noeviction", "it drops records when memory is short"),
}
"""Setting of the server -> the value that a ledger needs, and what happens with another."""

Found = Mapping[str, str]


class KeyStore(Store):
    """The keys of one ledger, all in one hash slot, so that a cluster serves them too."""

    def __init__(
        self, url: str, prefix: str, config: LedgerConfig, keyring: Keyring | None, witness: Witness, writer: str
    ) -> None:
        """Remember how to connect; `writer` names this gateway's incarnation in the journal."""
        self._url = url
        self._prefix = prefix
        self._config = config
        self._keyring = keyring
        self._witness = witness
        self._writer = writer
        self._version = ""
        self._keys = [f"{{{prefix}}}:{name}" for name in scripts.NAMES]
        self._client: valkey.Valkey | None = None

    # --- opening ------------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """What messages call the ledger."""
        return f"Valkey keys {self._prefix!r}"

    def open(self) -> None:
        """Connect, begin the ledger where there is none, take the configuration, and compare all counters."""
        self.connect()
        self._adopt_config()
        found, last = self._read()
        lines = found.discrepancies()
        if found.pool.seq != last:
            lines.append(f"pool.seq is {found.pool.seq}, but the journal ends at {last}")
        if lines:
            raise self._damaged("; ".join(lines))

    def connect(self) -> None:
        """Connect anew, check that the server keeps what it confirms, and see whether it has gone back."""
        self.close()
        try:
            self._client = valkey.Valkey.from_url(
                self._url,
                decode_responses=True,
                socket_timeout=LONGEST_ANSWER,
                # An answer that is lost must be looked for in the journal, never asked for again.
                retry=Retry(NoBackoff(), 0),
                single_connection_client=True,
            )
        except ValueError as error:
            raise UserError(f"{self.name}: {error}: give an address like valkey://host:port/0") from error
        except exceptions.ConnectionError as error:
            raise self._lost(error) from error
        self._scripts: dict[str, Callable[..., Any]] = {}
        try:
            with self._guarded():
                self._check_durable()
                self._compare_history()
        except BaseException:
            # A server that was not checked to the end is not used.
            self.close()
            raise

    def _check_durable(self) -> None:
        for setting, (wanted, loss) in _NEEDED.items():
            try:
                value = self._connected.config_get(setting).get(setting)
            except exceptions.ResponseError as error:
                raise UserError(
                    f"{self.name}: cannot read the server's setting {setting} ({error}): allow CONFIG GET to this user"
                ) from error
            if value != wanted:
                raise UserError(
                    f"{self.name}: {setting} is {value!r}, so {loss}: set {setting} {wanted} in the server's "
                    "configuration and restart it"
                )

    def _adopt_config(self) -> None:
        """Take new tenants, queue limits and the retention from the configuration; other limits stay as recorded."""
        while not self._try_adopt():
            pass

    def _try_adopt(self) -> bool:
        with self._guarded():
            pool = self._connected.hgetall(self._keys[0])
            known = self._connected.hgetall(self._keys[1])
        wanted = {name: account_of(tenant) for name, tenant in self._config.tenants.items()}
        fields: dict[str, object] = {}
        if not pool:
            fresh = Books.opened(self._config, self._keyring).pool
            fields = dict(zip(rows.POOL_COLUMNS, rows.pool_row(self._config.pool, fresh), strict=True))
            fields |= {"format": FORMAT, "epoch": 1, "writer": "", "recovering": 0, "witnessed": 0, "version": 0}
        else:
            self._check_format(pool)
            if int(pool["retention"]) != self._config.retention:
                fields = {"retention": self._config.retention}
        accounts: dict[str, TenantAccount] = {}
        for name, account in wanted.items():
            kept = _tenant(known[name]) if name in known else account
            if name not in known or kept.queue_limit != account.queue_limit:
                kept.queue_limit = account.queue_limit
                accounts[name] = kept
        if not fields and not accounts:
            return True
        flat = [part for item in fields.items() for part in item]
        changed = [part for name, account in accounts.items() for part in (name, _tenant_text(name, account))]
        return bool(self._run(scripts.ADOPT, [pool.get("version", ""), len(flat), *flat, *changed]))

    def _check_format(self, pool: Found) -> None:
        if pool.get("format") != str(FORMAT):
            raise StorageError(
                f"{self.name}: its keys have version {pool.get('format')}, this program writes version {FORMAT}: "
                "open it with the program that made it"
            )
        if pool["name"] != self._config.pool:
            raise StorageError(
                f"{self.name}: this is the ledger of pool {pool['name']!r}, not of {self._config.pool!r}: "
                "correct LedgerConfig.pool, or name another prefix"
            )

    # --- one group ----------------------------------------------------------------------------------------------------

    def load(self, events: Sequence[LedgerEvent], defeats: int) -> tuple[Books, int]:
        """Return books with all that `events` may look at, as of one version, and the server's clock."""
        keys = {key_text(key): None for event in events if (key := key_of(event)) is not None}
        names = sorted({key.tenant for event in events if (key := key_of(event)) is not None})
        asked = json.dumps((list(keys), names))
        turn = self._writer if defeats >= PATIENT_DEFEATS else ""
        while True:
            pool, clock, known, accounts, records = json.loads(self._run(scripts.LOAD, [turn, asked]))
            found = _fields(pool)
            books, mark = self._books_of(found)
            if not went_back(self._witness.mark, mark, None):
                break
            self._recover(self._witness.mark.seq if self._witness.mark else 0)
            self._witness.saw(mark)
        self._witness.saw(mark)
        self._version = found["version"]
        books.tenants.update((name, _tenant(text)) for name, text in zip(known, accounts, strict=True) if text)
        _restore(books, records)
        return books, int(clock[0]) * 1_000_000 + int(clock[1])

    def _books_of(self, pool: Found) -> tuple[Books, Mark]:
        if not pool:
            raise self._damaged("it has no pool")
        name, account = _pool(pool)
        books = Books(name, account, self._keyring)
        books.recovering = pool["recovering"] != "0"
        return books, Mark(int(pool["epoch"]), account.seq, pool["writer"])

    def save(self, changes: Sequence[JournalEntry], books: Books) -> bool:
        """Keep `changes` and what of `books` they touched, unless anything has changed since `load`."""
        return self._commit(changes, books, self._version, (), None) is not None

    @property
    def version(self) -> str:
        """That of the pool's hash, which every change raises."""
        return self._version

    def save_standing(
        self, changes: Sequence[JournalEntry], books: Books, version: str, absent: Sequence[Key], now: int | None
    ) -> int | None:
        """Keep them if all is as this gateway left it; return the server's clock, None where it is not."""
        return self._commit(changes, books, version, absent, now)

    def _commit(
        self, changes: Sequence[JournalEntry], books: Books, version: str, absent: Sequence[Key], now: int | None
    ) -> int | None:
        touched = touched_by(changes, books)
        pool, mark = books.pool, self._witness.mark
        assert mark is not None, "`load` saw it"
        lists = (
            [part for name, value in _pool_fields(pool) for part in (name, str(value))],
            [part for name in touched.tenants for part in (name, _tenant_text(name, books.tenants[name]))],
            [part for entry in changes for part in (str(entry.seq), _change_text(entry))],
            [part for record in (*touched.new, *touched.changed) for part in _record_parts(record, books)],
            [part for key in touched.gone for part in (key_text(key), key.tenant)],
            [key_text(key) for key in absent],
        )
        # One text, since the client packs each argument by itself: that took a fifth of the time of a group.
        least = "" if now is None else now
        arguments = [version, self._writer, json.dumps(lists), least, STALEST, mark.seq, mark.writer, mark.epoch]
        clock = self._run(scripts.COMMIT, arguments)
        if not clock:
            return None
        self._witness.saw(Mark(mark.epoch, pool.seq, self._writer))
        # What the script raised it to.
        self._version = str(int(version) + 1)
        return int(clock)

    def release(self) -> None:
        """Nothing is held between `load` and `save`."""

    def kept(self, changes: Sequence[JournalEntry]) -> bool:
        """Return whether `changes` were kept; if not, their commit can no longer succeed."""
        return bool(self._run(scripts.SETTLE, [changes[-1].seq, self._writer]))

    # --- recovery -----------------------------------------------------------------------------------------------------

    def _compare_history(self) -> None:
        mark = self._witness.mark
        pool = self._connected.hgetall(self._keys[0])
        if mark is None or not pool:
            return
        now = self._books_of(pool)[1]
        found = self._connected.xrange(self._keys[6], f"{mark.seq}-0", f"{mark.seq}-0") if mark.seq else []
        if went_back(mark, now, found[0][1]["writer"] if found else None):
            self._recover(mark.seq)
        self._witness.saw(now)

    def _recover(self, witnessed: int) -> None:
        """Let every gateway know that changes up to number `witnessed` may be missing."""
        self._change(lambda pool: {"recovering": 1, "witnessed": max(witnessed, int(pool["witnessed"]))})

    def begin_recovery(self) -> None:
        """Grant nothing until `confirm_recovered`."""
        self._change(lambda pool: {"recovering": 1, "witnessed": max(int(pool["seq"]), int(pool["witnessed"]))})

    def confirm_recovered(self) -> bool:
        """Grant again; return whether that was refused before."""
        return self._change(_recovered)

    def is_recovering(self) -> bool:
        """Return whether nothing is granted."""
        with self._guarded():
            recovering: str = self._connected.hget(self._keys[0], "recovering")
        return recovering != "0"

    def _change(self, fields_of: Callable[[Found], Mapping[str, object]]) -> bool:
        """Set the pool's fields to what `fields_of` makes of them; return whether there were any."""
        while True:
            with self._guarded():
                pool = self._connected.hgetall(self._keys[0])
            if not pool:
                raise self._damaged("it has no pool")
            fields = fields_of(pool)
            flat = [part for item in fields.items() for part in item]
            if not fields or self._run(scripts.ADOPT, [pool["version"], len(flat), *flat]):
                return bool(fields)

    # --- reading ------------------------------------------------------------------------------------------------------

    def read(self) -> Books:
        """Return the whole books, as of one moment."""
        return self._read()[0]

    def _read(self) -> tuple[Books, int]:
        """Return the books, and the number of the journal's last change."""
        pool, accounts, records, last = self._run(scripts.READ, [])
        books, _ = self._books_of(_fields(pool))
        books.tenants.update((name, _tenant(text)) for name, text in _fields(accounts).items())
        _restore(books, records)
        return books, _seq(last[0][0]) if last else 0

    def entries(self, after: int) -> list[JournalEntry]:
        """Return the changes with a commit number above `after`, in order."""
        with self._guarded():
            found = self._connected.xrange(self._keys[6], f"({max(0, after)}-0")
        return [rows.entry_of((_seq(number), *json.loads(fields["change"]))) for number, fields in found]

    def waiting(self) -> tuple[Key, ...]:
        """Return the queued keys, first come first."""
        with self._guarded():
            return tuple(_key(text) for text in self._connected.zrange(self._keys[3], 0, -1))

    def due(self, clock: int) -> list[LedgerEvent]:
        """Return what is due when the clock shows `clock`, or what the pool's record shows, whichever is later."""
        kept, *found = self._run(scripts.DUE, [clock])
        clock = max(clock, int(kept))
        records = [rows.reservation_of(tuple(json.loads(text)))[0] for text in found]
        passed = sorted(
            (moment, record.life, record)
            for record in records
            if (moment := record.due()) is not None and moment <= clock
        )
        return [Forget(record.key) if record.is_terminal else Sweep(record.key) for _, _, record in passed]

    def now(self) -> int:
        """Return the server's clock in microseconds."""
        with self._guarded():
            seconds, microseconds = self._connected.time()
        return int(seconds) * 1_000_000 + int(microseconds)

    def keep_clock(self, clock: int) -> None:
        """Let no gateway's clock show less than `clock` from now on (LEA-6)."""
        self._change(lambda pool: {"clock": clock} if clock > int(pool["clock"]) else {})

    def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            with suppress(exceptions.ValkeyError):
                self._client.close()  # type: ignore[no-untyped-call]  # the client's own gap
            self._client = None

    # --- the connection -----------------------------------------------------------------------------------------------

    @property
    def _connected(self) -> Any:
        if self._client is None:
            raise ConnectionLost(f"{self.name}: the connection was lost: check that the server runs")
        return self._client

    def _run(self, script: str, arguments: Sequence[object]) -> Any:
        with self._guarded():
            client = self._connected
            if script not in self._scripts:
                self._scripts[script] = client.register_script(script)
            return self._scripts[script](keys=self._keys[:1], args=arguments)

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Say in our words what went wrong."""
        try:
            yield
        except (exceptions.ConnectionError, exceptions.TimeoutError) as error:
            self.close()
            raise self._lost(error) from error
        except exceptions.OutOfMemoryError as error:
            raise StorageFull(
                f"{self.name}: the server's memory is full, nothing was applied: make room and submit again"
            ) from error
        except exceptions.ReadOnlyError as error:
            raise StorageError(f"{self.name}: the server only reads: name the primary, not a replica") from error
        except exceptions.ValkeyError as error:
            raise StorageError(f"{self.name}: {error}: nothing was applied") from error
        except BaseException:
            # Whoever interrupted this has left an answer on its way, which nobody may take for the next one.
            self.close()
            raise

    def _lost(self, error: Exception) -> ConnectionLost:
        return ConnectionLost(f"{self.name}: the connection was lost ({error}): check that the server runs")

    def _damaged(self, what: object) -> StorageError:
        return StorageError(f"{self.name}: the ledger is damaged ({what}): restore it from a backup")


def _restore(books: Books, found: Iterable[str | None]) -> None:
    records = [rows.reservation_of(tuple(json.loads(text))) for text in found if text]
    # In order of place, so that the queue is as it was.
    for record, place in sorted(records, key=lambda item: item[1]):
        books.restore(record, place)


def _recovered(pool: Found) -> Mapping[str, object]:
    """No more lives and generations were drawn in what is missing than there were changes."""
    if pool["recovering"] == "0":
        return {}
    witnessed = int(pool["witnessed"])
    return {
        "recovering": 0,
        "witnessed": 0,
        "epoch": int(pool["epoch"]) + 1,
        "next_life": int(pool["next_life"]) + witnessed,
        "next_generation": int(pool["next_generation"]) + witnessed,
    }


def _key(text: str) -> Key:
    return Key(*json.loads(text))


def _fields(flat: Sequence[str]) -> Found:
    # An empty table is an object in the JSON of the scripts.
    return dict(zip(flat[::2], flat[1::2], strict=True)) if flat else {}


def _seq(number: str) -> int:
    return int(number.partition("-")[0])


def _pool(fields: Found) -> tuple[str, PoolAccount]:
    return rows.pool_of((fields["id"], fields["name"], *(int(fields[name]) for name in rows.POOL_COLUMNS[2:])))


def _pool_fields(pool: PoolAccount) -> Iterator[tuple[str, int]]:
    """What a change may write; name and retention are the configuration's."""
    yield from zip(rows.POOL_COLUMNS[2:], rows.pool_row("", pool)[2:], strict=True)


def _tenant(text: str) -> TenantAccount:
    return rows.tenant_of(tuple(json.loads(text)))[1]


def _tenant_text(name: str, account: TenantAccount) -> str:
    return json.dumps(rows.tenant_row(name, account), separators=(",", ":"))


def _change_text(entry: JournalEntry) -> str:
    return f"[{entry.now},{quote(event_text(entry.event))},{quote(reply_text(entry.reply))}]"


_RECORD = f"[{','.join('%s' for _ in rows.RESERVATION_COLUMNS)}]"


def _record_parts(record: Reservation, books: Books) -> tuple[str, ...]:
    """Key, tenant, record, and the moments by which it is found; empty where there is none."""
    place = books.queue.place(record.key)
    due = record.due()
    return (
        key_text(record.key),
        record.key.tenant,
        _RECORD % rows.reservation_texts(record, place),
        str(place or ""),
        "" if due is None else str(due),
        str(record.deadline) if record.charged else "",
    )
