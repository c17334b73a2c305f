"""What an engine can do at best: the least durable writes that any ledger in it needs, without a ledger.

A *count* is one conditional update of a counter. A *grant* also writes the identity of the request, so that a retry is
recognised, the tenant's counter, and a line of history as long as the ledger's own: row for row what the ledger writes,
without its columns, checks and indexes.
"""

import sqlite3
from abc import ABC, abstractmethod
from heapq import heappop, heappush
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any

import psycopg
import valkey

from kvescrow.checks.targets.own_ledgers import AMOUNT, BATCH, in_threads
from kvescrow.reference.ledger import JournalEntry, LedgerReply
from kvescrow.spec.vocabulary import Cancel, Decision, Key, LedgerEvent, Reason, ReservationState, Reserve

CAPACITY = 10**12
LINE = "x" * 314
"""As long as event and reply of a reservation or a cancel are in a journal, on average."""


class Engine(ABC):
    """One engine, with a counter and room for grants. Every operation either takes or gives back `AMOUNT`."""

    def __init__(self) -> None:
        self._numbers = count()

    @abstractmethod
    def counts(self, operations: int) -> int:
        """Update the counter, each time durably by itself; return how many times."""

    @abstractmethod
    def counts_batched(self, operations: int) -> int:
        """The same, durably together in batches."""

    @abstractmethod
    def grants(self, operations: int) -> int:
        """Grant and give back, each time durably by itself."""

    @abstractmethod
    def grants_batched(self, operations: int) -> int:
        """The same, durably together in batches."""

    @abstractmethod
    def grants_by_clients(self, operations: int, clients: int) -> int:
        """Grant and give back from `clients` connections at once."""

    @abstractmethod
    def close(self) -> None:
        """Close it."""

    def _names(self, number: int) -> list[str]:
        return [f"request {next(self._numbers)}" for _ in range(number)]


class BareDict:
    """A ledger's bookkeeping written straight down for two events: dictionaries and heaps under one lock.

    It takes the same events, gives the same replies, and keeps what a ledger must: identity and parameters, tenant
    and pool charged together, the moments at which something is due, a numbered history. It has no other states, no
    queue, no budget and no receipts.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._records: dict[Key, dict[str, Any]] = {}
        self._active = {"tenant": 0, "pool": 0}
        self._due: list[tuple[int, Key]] = []
        self._deadlines: list[tuple[int, Key]] = []
        self._history: list[JournalEntry] = []
        self._lives = count(1)
        self._numbers = count()

    def one_by_one(self, operations: int) -> int:
        """Reserve and give back; return how many operations that was."""
        for _ in range(operations // 2):
            key = Key("tenant", f"request {next(self._numbers)}")
            self._cancel(Cancel(key, self._reserve(Reserve(key, AMOUNT, "digest", 10**17)).life))
        return operations // 2 * 2

    def _reserve(self, event: Reserve) -> LedgerReply:
        with self._lock:
            known = self._records.get(event.key)
            if known is not None:
                same = (known["amount"], known["digest"]) == (event.amount, event.digest)
                return self._reply(Decision.RECORDED if same else Decision.REFUSED, known, event.amount)
            if self._active["tenant"] + event.amount > CAPACITY or self._active["pool"] + event.amount > CAPACITY:
                return self._reply(Decision.REFUSED, None, event.amount)
            record = {
                "state": ReservationState.RESERVED,
                "amount": event.amount,
                "digest": event.digest,
                "deadline": event.deadline,
                "life": next(self._lives),
                "lease": event.lease,
            }
            self._records[event.key] = record
            heappush(self._due, (event.lease, event.key))
            heappush(self._deadlines, (event.deadline, event.key))
            return self._kept(event, Decision.ADMITTED, record, event.amount)

    def _cancel(self, event: Cancel) -> LedgerReply:
        with self._lock:
            record = self._records.get(event.key)
            if record is None or record["life"] != event.life or record["state"] is not ReservationState.RESERVED:
                return self._reply(Decision.REFUSED, record, 0)
            record["state"] = ReservationState.CANCELLED
            while self._due and self._records[self._due[0][1]]["state"] is ReservationState.CANCELLED:
                heappop(self._due)
            while self._deadlines and self._records[self._deadlines[0][1]]["state"] is ReservationState.CANCELLED:
                heappop(self._deadlines)
            return self._kept(event, Decision.RELEASED, record, -record["amount"])

    def _kept(self, event: LedgerEvent, decision: Decision, record: dict[str, Any], charged: int) -> LedgerReply:
        reply = self._reply(decision, record, max(0, charged), len(self._history) + 1)
        self._active["tenant"] += charged
        self._active["pool"] += charged
        self._history.append(JournalEntry(0, event, reply, True, reply.state, reply.life, 0))
        return reply

    def _reply(
        self, decision: Decision, record: "dict[str, Any] | None", asked: int, seq: int | None = None
    ) -> LedgerReply:
        return LedgerReply(
            decision=decision,
            reason=Reason.NONE,
            seq=len(self._history) if seq is None else seq,
            state=record["state"] if record else None,
            life=record["life"] if record else 0,
            generation=0,
            bound=record["amount"] if record else 0,
            asked=asked,
            free_tenant=CAPACITY - self._active["tenant"],
            free_pool=CAPACITY - self._active["pool"],
            retry_after=None,
        )


class SqliteEngine(Engine):
    """A file with a write-ahead log, synchronous to the disk."""

    _TAKE = "UPDATE pool SET used = used + ?1 WHERE used + ?1 BETWEEN 0 AND capacity"
    _GRANT = (
        "INSERT INTO grant_ VALUES (?2, ?1, 'HELD')",
        "UPDATE tenant SET used = used + ?1 WHERE used + ?1 <= capacity",
        _TAKE,
    )
    _RETURN = (
        "UPDATE grant_ SET state = 'OVER' WHERE request = ?2",
        "UPDATE tenant SET used = used - ?1",
        "UPDATE pool SET used = used - ?1",
    )

    def __init__(self, folder: Path) -> None:
        """Make the file in `folder`."""
        super().__init__()
        self._connection = sqlite3.connect(folder / "engine.sqlite", isolation_level=None, check_same_thread=False)
        self._lock = Lock()
        for statement in (
            "PRAGMA locking_mode = EXCLUSIVE",
            "PRAGMA journal_mode = WAL",
            "PRAGMA synchronous = FULL",
            "CREATE TABLE pool (capacity INTEGER, used INTEGER)",
            "CREATE TABLE tenant (name TEXT PRIMARY KEY, capacity INTEGER, used INTEGER)",
            "CREATE TABLE grant_ (request TEXT PRIMARY KEY, amount INTEGER, state TEXT)",
            "CREATE TABLE history (number INTEGER PRIMARY KEY, line TEXT)",
            f"INSERT INTO pool VALUES ({CAPACITY}, 0)",
            f"INSERT INTO tenant VALUES ('tenant', {CAPACITY}, 0)",
        ):
            self._connection.execute(statement)

    def counts(self, operations: int) -> int:
        """Update the counter in transactions of one."""
        for number in range(operations):
            self._connection.execute(self._TAKE, (-AMOUNT if number % 2 else AMOUNT,))
        return operations

    def counts_batched(self, operations: int) -> int:
        """Update the counter in transactions of many."""
        for _ in range(operations // BATCH):
            self._connection.execute("BEGIN IMMEDIATE")
            for number in range(BATCH):
                self._connection.execute(self._TAKE, (-AMOUNT if number % 2 else AMOUNT,))
            self._connection.execute("COMMIT")
        return operations // BATCH * BATCH

    def grants(self, operations: int) -> int:
        """Grant and give back in transactions of one."""
        for name in self._names(operations // 2):
            self._write(self._GRANT, [name])
            self._write(self._RETURN, [name])
        return operations // 2 * 2

    def grants_batched(self, operations: int) -> int:
        """Grant in one transaction, give back in the next."""
        batches = operations // (2 * BATCH)
        for _ in range(batches):
            names = self._names(BATCH)
            self._write(self._GRANT, names)
            self._write(self._RETURN, names)
        return batches * 2 * BATCH

    def grants_by_clients(self, operations: int, clients: int) -> int:
        """One connection serves all: a second writer of the file would starve or be starved."""

        def work(_: int) -> int:
            for name in self._names(operations // clients // 2):
                with self._lock:
                    self._write(self._GRANT, [name])
                with self._lock:
                    self._write(self._RETURN, [name])
            return operations // clients // 2 * 2

        return in_threads(clients, work)

    def _write(self, statements: tuple[str, ...], names: list[str]) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        for name in names:
            for statement in statements:
                self._connection.execute(statement, (AMOUNT, name) if "?2" in statement else (AMOUNT,))
            self._connection.execute("INSERT INTO history (line) VALUES (?)", (LINE,))
        self._connection.execute("COMMIT")

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


class PostgresEngine(Engine):
    """Functions that run in the server, so that nothing but the durable write is waited for."""

    _SCHEMA = f"""
        CREATE SCHEMA engine;
        SET search_path = engine;
        CREATE TABLE pool (capacity bigint, used bigint) WITH (fillfactor = 10);
        CREATE TABLE tenant (name text PRIMARY KEY, capacity bigint, used bigint) WITH (fillfactor = 10);
        CREATE TABLE granted (request text PRIMARY KEY, amount bigint, state text);
        CREATE TABLE history (number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, line text);
        INSERT INTO pool VALUES ({CAPACITY}, 0);
        INSERT INTO tenant VALUES ('tenant', {CAPACITY}, 0);
        CREATE FUNCTION take(n bigint) RETURNS void LANGUAGE plpgsql AS $$ BEGIN
            FOR i IN 1..n LOOP UPDATE pool SET used = used + 1 WHERE used + 1 <= capacity; END LOOP;
        END $$;
        CREATE FUNCTION grant_all(requests text[], n bigint, entry text) RETURNS void LANGUAGE plpgsql AS $$
        DECLARE r text; BEGIN
            FOREACH r IN ARRAY requests LOOP
                INSERT INTO granted VALUES (r, n, 'HELD') ON CONFLICT DO NOTHING;
                UPDATE tenant SET used = used + n WHERE name = 'tenant' AND used + n <= capacity;
                UPDATE pool SET used = used + n WHERE used + n <= capacity;
                INSERT INTO history (line) VALUES (entry);
            END LOOP;
        END $$;
        CREATE FUNCTION return_all(requests text[], n bigint, entry text) RETURNS void LANGUAGE plpgsql AS $$
        DECLARE r text; BEGIN
            FOREACH r IN ARRAY requests LOOP
                UPDATE granted SET state = 'OVER' WHERE request = r;
                UPDATE tenant SET used = used - n WHERE name = 'tenant';
                UPDATE pool SET used = used - n;
                INSERT INTO history (line) VALUES (entry);
            END LOOP;
        END $$;
    """

    def __init__(self, url: str) -> None:
        """Make the tables in the database at `url`, in a schema called engine."""
        super().__init__()
        self._url = url
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(self._SCHEMA)
        self._connections = [self._connect()]

    def _connect(self) -> "psycopg.Connection[Any]":
        return psycopg.connect(f"{self._url}&options=-c%20search_path%3Dengine", autocommit=True, prepare_threshold=1)

    def counts(self, operations: int) -> int:
        """One conditional update a transaction."""
        for _ in range(operations):
            self._connections[0].execute("UPDATE pool SET used = used + 1 WHERE used + 1 <= capacity")
        return operations

    def counts_batched(self, operations: int) -> int:
        """A function that updates many times."""
        for _ in range(operations // BATCH):
            self._connections[0].execute("SELECT take(%s)", (BATCH,))
        return operations // BATCH * BATCH

    def grants(self, operations: int) -> int:
        """A function for each."""
        return self._grants(self._connections[0], operations)

    def _grants(self, connection: "psycopg.Connection[Any]", operations: int) -> int:
        for name in self._names(operations // 2):
            connection.execute("SELECT grant_all(%s, %s, %s)", ([name], AMOUNT, LINE))
            connection.execute("SELECT return_all(%s, %s, %s)", ([name], AMOUNT, LINE))
        return operations // 2 * 2

    def grants_batched(self, operations: int) -> int:
        """A function for each batch."""
        batches = operations // (2 * BATCH)
        for _ in range(batches):
            names = self._names(BATCH)
            self._connections[0].execute("SELECT grant_all(%s, %s, %s)", (names, AMOUNT, LINE))
            self._connections[0].execute("SELECT return_all(%s, %s, %s)", (names, AMOUNT, LINE))
        return batches * 2 * BATCH

    def grants_by_clients(self, operations: int, clients: int) -> int:
        """A connection for each client."""
        while len(self._connections) < clients:
            self._connections.append(self._connect())
        return in_threads(clients, lambda number: self._grants(self._connections[number], operations // clients))

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections:
            connection.close()


class ValkeyEngine(Engine):
    """Scripts that compare and write, as in any counter that is kept there."""

    _COUNT = """
        if redis.call('INCRBY', KEYS[1], ARGV[1]) <= tonumber(ARGV[2]) then return 1 end
        return redis.call('DECRBY', KEYS[1], ARGV[1])
    """
    _GRANT = """
        if redis.call('HSETNX', KEYS[3], ARGV[3], 'HELD') == 0 then return 0 end
        for index = 1, 2 do
            if redis.call('INCRBY', KEYS[index], ARGV[1]) > tonumber(ARGV[2]) then
                for taken = 1, index do redis.call('DECRBY', KEYS[taken], ARGV[1]) end
                return redis.call('HDEL', KEYS[3], ARGV[3])
            end
        end
        redis.call('XADD', KEYS[4], '*', 'line', ARGV[4])
        return 1
    """
    _RETURN = """
        redis.call('HSET', KEYS[3], ARGV[3], 'OVER')
        redis.call('XADD', KEYS[4], '*', 'line', ARGV[4])
        redis.call('DECRBY', KEYS[2], ARGV[1])
        return redis.call('DECRBY', KEYS[1], ARGV[1])
    """

    def __init__(self, url: str) -> None:
        """Use keys of its own at the server `url`."""
        super().__init__()
        self._client = valkey.Valkey.from_url(url)
        self._shas: dict[str, str] = {
            text: str(self._client.script_load(text)) for text in (self._COUNT, self._GRANT, self._RETURN)
        }

    def _call(self, client: Any, text: str, name: str = "") -> None:
        keys = ("engine:pool", "engine:tenant", "engine:granted", "engine:history")
        line = "" if text is self._COUNT else LINE
        client.evalsha(self._shas[text], len(keys), *keys, AMOUNT, CAPACITY, name, line)

    def counts(self, operations: int) -> int:
        """One script at a time."""
        for _ in range(operations):
            self._call(self._client, self._COUNT)
        return operations

    def counts_batched(self, operations: int) -> int:
        """Many scripts in one message."""
        for _ in range(operations // BATCH):
            self._together(self._COUNT, [""] * BATCH)
        return operations // BATCH * BATCH

    def grants(self, operations: int) -> int:
        """One script at a time."""
        for name in self._names(operations // 2):
            self._call(self._client, self._GRANT, name)
            self._call(self._client, self._RETURN, name)
        return operations // 2 * 2

    def grants_batched(self, operations: int) -> int:
        """Many scripts in one message."""
        batches = operations // (2 * BATCH)
        for _ in range(batches):
            names = self._names(BATCH)
            self._together(self._GRANT, names)
            self._together(self._RETURN, names)
        return batches * 2 * BATCH

    def _together(self, text: str, names: list[str]) -> None:
        pipeline = self._client.pipeline(transaction=False)
        for name in names:
            self._call(pipeline, text, name)
        pipeline.execute()  # type: ignore[no-untyped-call]  # the client's own gap

    def grants_by_clients(self, operations: int, clients: int) -> int:
        """The client keeps a connection for each thread."""
        return in_threads(clients, lambda _: self.grants(operations // clients))

    def close(self) -> None:
        """Close the connections."""
        self._client.close()  # type: ignore[no-untyped-call]  # the client's own gap
