"""Servers that tests start: which processes are theirs, and that nothing starts beside one that still writes."""

from __future__ import annotations

import os
import signal
import time

import psycopg

from kvescrow.checks.targets.servers import PostgresServer
from kvescrow.checks.targets.torture_servers import ServerStore


def test_a_session_that_outlives_its_server_is_one_of_its_processes_and_is_killed_with_it() -> None:
    """Else it goes on to write beside the server that is started next, and no check of the ledger means anything."""
    store = ServerStore("postgres")
    server = store._server
    assert isinstance(server, PostgresServer)
    with psycopg.connect(server.url) as session:
        pid = session.info.backend_pid
        # Stopped, it does not see its parent die.
        os.kill(pid, signal.SIGSTOP)
        os.kill(server.processes[0], signal.SIGKILL)
        while len(server.processes) > 1:
            time.sleep(0.005)
        assert server.processes == [pid]
        store.kill()
        assert server.processes == []
        store.start()
        assert len(server.processes) > 1
    store.close()
