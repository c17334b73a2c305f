"""One session with a PostgreSQL server: how it is opened, what it asks of the server, and what its errors mean."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg import conninfo, errors

from kvescrow.reference.ledger.port import StorageError, StorageFull
from kvescrow.reference.ledger.shared import ConnectionLost
from kvescrow.spec.vocabulary import UserError

Row = tuple[Any, ...]

OLDEST_SERVER = 170_000
"""Version of PostgreSQL, as libpq numbers it, from which on the server can bound a whole transaction."""
LONGEST_LOCK_WAIT = 15_000
"""Milliseconds that a group waits for the pool's row: longer than one stopped gateway can hold it."""

_SESSION = {
    "lock_timeout": LONGEST_LOCK_WAIT,
    # Statements are planned once, maybe while the tables are still empty: only plans by index stay good.
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    # Before version 18 a plan that is forced so counts as very costly, and would be compiled at every execution.
    "jit": "off",
}

_NOTICE_SOON: dict[str, Any] = {
    "connect_timeout": 5,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
"""Connection options, unless the address has others: a server that is gone is noticed within about ten seconds."""


class Session:
    """The connection behind one schema. A method that raises has rolled its transaction back."""

    def __init__(self, url: str, schema: str) -> None:
        """Remember how to connect."""
        self._url = url
        self._schema = schema
        self._connection: psycopg.Connection[Row] | None = None

    @property
    def name(self) -> str:
        """What messages call the ledger; the address is left out, since it may hold a password."""
        return f"PostgreSQL schema {self._schema!r}"

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _dial(self) -> None:
        """Connect anew."""
        self.close()
        try:
            self._connection = psycopg.connect(_address(self._url), autocommit=True)
        except psycopg.Error as error:
            raise ConnectionLost(f"{self.name}: {_first_line(error)}: check the address and that it runs") from error

    def _check_durable(self) -> None:
        if self._open_connection.info.server_version < OLDEST_SERVER:
            raise UserError(
                f"{self.name}: the server is older than PostgreSQL {OLDEST_SERVER // 10_000}, so it cannot end a "
                "gateway that stands still: upgrade it"
            )
        fsync, commit, reads_only = self._one(
            "SELECT current_setting('fsync'), current_setting('synchronous_commit'), "
            "current_setting('transaction_read_only')"
        )
        if fsync != "on":
            raise UserError(
                f"{self.name}: fsync is off, so the server may lose what it confirmed: set fsync = on and restart it"
            )
        if reads_only == "on":
            raise StorageError(f"{self.name}: the server only reads: name the primary, not a standby")
        if commit in ("off", "local"):
            self._execute("SET synchronous_commit = on")

    @property
    def _open_connection(self) -> "psycopg.Connection[Row]":
        if self._connection is None or self._connection.closed:
            raise ConnectionLost(f"{self.name}: the connection was lost: check that the server runs")
        return self._connection

    def _execute(self, statement: str, values: "Sequence[Any] | Mapping[str, Any]" = ()) -> "psycopg.Cursor[Row]":
        return self._open_connection.execute(statement, values or None)

    def _all(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        return self._execute(statement, values).fetchall()

    def _one(self, statement: str, values: Sequence[Any] = ()) -> Row:
        row = self._execute(statement, values).fetchone()
        if row is None:
            raise self._damaged("it has no pool")
        return row

    @contextmanager
    def _transaction(self, mode: str = "ISOLATION LEVEL READ COMMITTED") -> Iterator[None]:
        self._execute(f"BEGIN {mode}")
        try:
            yield
            self._execute("COMMIT")
        except BaseException:
            self._roll_back()
            raise

    def _roll_back(self) -> None:
        connection = self._connection
        if connection is not None and not connection.closed:
            # Where even this fails the server rolls back by itself.
            with suppress(psycopg.Error):
                connection.execute("ROLLBACK")

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """End the transaction and say in our words what went wrong."""
        try:
            yield
        except psycopg.Error as error:
            lost = self._connection is None or self._connection.closed or _ends_session(error)
            if lost:
                self.close()
            self._roll_back()
            raise self._storage_error(error, lost) from error
        except UserError:
            self._roll_back()
            raise
        except BaseException:
            # Whoever interrupted this has left an answer on its way, which nobody may take for the next one.
            self.close()
            raise

    def _damaged(self, what: object) -> StorageError:
        return StorageError(f"{self.name}: the ledger is damaged ({what}): restore it from a backup")

    def _storage_error(self, error: psycopg.Error, lost: bool) -> StorageError:
        if lost:
            return ConnectionLost(f"{self.name}: the connection was lost ({_first_line(error)})")
        match error:
            case errors.DiskFull():
                return StorageFull(f"{self.name}: the disk is full, nothing was applied: make room and submit again")
            case errors.LockNotAvailable():
                return StorageError(
                    f"{self.name}: another session holds the pool, nothing was applied: end that session, "
                    "then submit again"
                )
            case errors.NumericValueOutOfRange():
                return StorageError(f"{self.name}: an account went beyond 63 bits: begin a new ledger")
            case errors.IntegrityError():
                return self._damaged(_first_line(error))
            case errors.InsufficientPrivilege():
                return StorageError(f"{self.name}: {_first_line(error)}: grant it to this user, or name another")
            case _:
                return StorageError(f"{self.name}: {_first_line(error)}: nothing was applied")


def _address(url: str) -> str:
    """Return `url` with the options that a ledger needs; what else it says stays."""
    parts = {**_NOTICE_SOON, **conninfo.conninfo_to_dict(url)}
    session = " ".join(f"-c {name}={value}" for name, value in _SESSION.items())
    return conninfo.make_conninfo("", **{**parts, "options": f"{parts.get('options') or ''} {session}".strip()})


def _ends_session(error: psycopg.Error) -> bool:
    """Return whether the server ends the session with `error`, or itself, as where it has no room for its log.

    Unlike that of a lesser error, its word says nothing of what was being committed.
    """
    return error.diag.severity_nonlocalized in ("FATAL", "PANIC")


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
