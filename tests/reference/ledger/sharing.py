"""One place on a shared server, as the tests of shared stores need it: opened many times, cut off, set back in time."""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any, Protocol

import psycopg
import valkey

from kvescrow.reference.ledger import LedgerConfig
from kvescrow.reference.ledger.postgres import PostgresLedger
from kvescrow.reference.ledger.shared import SharedLedger
from kvescrow.reference.ledger.valkey import ValkeyLedger, scripts
from kvescrow.reference.receipts import Keyring


class Place(Protocol):
    """Where one shared ledger lies."""

    commit: bytes
    """What the client sends when it commits what it loaded, and at no other time."""
    commit_standing: bytes
    """What it sends when it commits without having loaded."""

    def open(self, config: LedgerConfig, **options: Any) -> SharedLedger:
        """Open it as one more gateway."""

    def open_through(self, socket_path: Path, config: LedgerConfig, **options: Any) -> SharedLedger:
        """The same through another socket."""

    def socket(self) -> Path:
        """The server's own socket."""

    def cut_connections(self) -> None:
        """Let the server close all sessions but its own."""

    def backup(self) -> Callable[[], None]:
        """Copy the ledger; the result puts the copy back in its place."""


class PostgresPlace:
    commit = b"COMMIT\0"
    # Of a line of the journal.
    commit_standing = b'"reply":{'

    def __init__(self, url: str, schema: str, keyring: Keyring | None) -> None:
        self.url, self.schema, self.keyring = url, schema, keyring

    def open(self, config: LedgerConfig, **options: Any) -> SharedLedger:
        options = {"keyring": self.keyring, "clock": None, **options}
        return PostgresLedger(self.url, config, schema=self.schema, **options)

    def socket(self) -> Path:
        return Path(psycopg.conninfo.conninfo_to_dict(self.url)["host"]) / ".s.PGSQL.5432"

    def open_through(self, socket_path: Path, config: LedgerConfig, **options: Any) -> SharedLedger:
        url = f"postgresql://postgres@/postgres?host={socket_path.parent}"
        options = {"keyring": self.keyring, "clock": None, **options}
        return PostgresLedger(url, config, schema=self.schema, **options)

    def run(self, *statements: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.replace("{s}", self.schema))

    def cut_connections(self) -> None:
        self.run(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )

    def backup(self) -> Callable[[], None]:
        tables = ("pool", "tenant", "reservation", "journal")
        self.run(*(f"CREATE TABLE {{s}}.old_{table} AS TABLE {{s}}.{table}" for table in tables))
        return lambda: self.run(
            f"TRUNCATE {', '.join(f'{{s}}.{table}' for table in tables)}",
            *(f"INSERT INTO {{s}}.{table} TABLE {{s}}.old_{table}" for table in tables),
        )


class ValkeyPlace:
    commit = commit_standing = hashlib.sha1(scripts.COMMIT.encode()).hexdigest().encode()

    def __init__(self, url: str, prefix: str, keyring: Keyring | None) -> None:
        self.url, self.prefix, self.keyring = url, prefix, keyring

    def open(self, config: LedgerConfig, **options: Any) -> SharedLedger:
        options = {"keyring": self.keyring, "clock": None, **options}
        return ValkeyLedger(self.url, config, prefix=self.prefix, **options)

    def socket(self) -> Path:
        return Path(self.url.removeprefix("unix://"))

    def open_through(self, socket_path: Path, config: LedgerConfig, **options: Any) -> SharedLedger:
        options = {"keyring": self.keyring, "clock": None, **options}
        return ValkeyLedger(f"unix://{socket_path}", config, prefix=self.prefix, **options)

    def client(self) -> valkey.Valkey:
        return valkey.Valkey.from_url(self.url)

    def cut_connections(self) -> None:
        with self.client() as client:
            client.client_kill_filter(_type="normal", skipme=True)

    def backup(self) -> Callable[[], None]:
        def names(client: valkey.Valkey) -> list[bytes]:
            return list(client.scan_iter(f"{{{self.prefix}}}:*"))

        with self.client() as client:
            copy = {name: client.dump(name) for name in names(client)}

        def restore() -> None:
            with self.client() as client:
                client.delete(*names(client))
                for name, content in copy.items():
                    client.restore(name, 0, content)

        return restore


class Cutter:
    """A socket before a server's that can be cut at a chosen message: before it arrives, or after it was answered."""

    def __init__(self, path: Path, server: Path) -> None:
        self.path = path
        self._server = server
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._armed: tuple[bytes, bool] | None = None
        self._stay_down = False
        self._holds_back = False
        self._held_back: tuple[socket.socket, bytes, Thread] | None = None
        self.is_down = False
        self.cuts = 0
        Thread(target=self._accept, daemon=True).start()

    def arm(self, message: bytes, *, after_answer: bool, stay_down: bool = False, holds_back: bool = False) -> None:
        """Cut the connection at the next data that holds `message`; `deliver` brings what was held back."""
        self._armed = message, after_answer
        self._stay_down, self._holds_back = stay_down, holds_back

    def deliver(self) -> None:
        """Let the server have what was held back, late, and answer it to nobody."""
        assert self._held_back is not None
        server, data, back = self._held_back
        server.sendall(data)
        # It ends when it cannot pass the answer on.
        back.join(10)
        assert not back.is_alive(), "it was answered"
        server.close()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.is_down:
                client.close()
                continue
            Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        server = socket.socket(socket.AF_UNIX)
        server.connect(str(self._server))
        back = Thread(target=_copy, args=(server, client), daemon=True)
        back.start()
        while data := _received(client):
            if self._armed is not None and self._armed[0] in data:
                (_, after_answer), self._armed = self._armed, None
                self.cuts += 1
                self.is_down = self._stay_down
                if self._holds_back:
                    # The server still waits for it, while the client is gone.
                    self._held_back = server, data, back
                    client.shutdown(socket.SHUT_RDWR)
                    client.close()
                    return
                if after_answer:
                    # The answer comes, and cannot be passed on.
                    client.shutdown(socket.SHUT_WR)
                    server.sendall(data)
                    back.join(0.3)
                break
            server.sendall(data)
        for end in (client, server):
            # A plain close would wait for whoever still reads from it.
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    while data := _received(source):
        try:
            sink.sendall(data)
        except OSError:
            return


def _received(source: socket.socket) -> bytes:
    try:
        return source.recv(1 << 20)
    except OSError:
        return b""
