"""One structured log line a refusal, with the numbers of the reply (VIS-1, VIS-2)."""

import json
import logging

from kvescrow.reference.ledger.port import JournalEntry, Recorder, key_of
from kvescrow.spec.vocabulary import Decision, event_name

LOGGER = "kvescrow.refusals"


class RefusalLog:
    """Logs each refusal as one line of JSON, through the standard library, as the recorder of a ledger."""

    def __init__(self, logger: logging.Logger | None = None, level: int = logging.INFO) -> None:
        """Log to `logger`, or to the one called `kvescrow.refusals`; refusals are outcomes, so INFO is the level."""
        self._logger = logger if logger is not None else logging.getLogger(LOGGER)
        self._level = level

    def __call__(self, entry: JournalEntry) -> None:
        """Log `entry` where it is a refusal."""
        if entry.reply.decision is Decision.REFUSED and self._logger.isEnabledFor(self._level):
            self._logger.log(self._level, "%s", json.dumps(line_of_refusal(entry), separators=(",", ":")))


def line_of_refusal(entry: JournalEntry) -> dict[str, object]:
    """Return what is logged of a refusal: who asked for what, why not, and the numbers that it was decided by."""
    key, reply = key_of(entry.event), entry.reply
    return {
        "now": entry.now,
        "event": event_name(entry.event).value,
        "tenant": key.tenant if key is not None else None,
        "request": key.request if key is not None else None,
        "reason": reply.reason.value,
        "asked": reply.asked,
        "free_tenant": reply.free_tenant,
        "free_pool": reply.free_pool,
        "retry_after": reply.retry_after,
        "state": reply.state.value if reply.state is not None else None,
        "seq": reply.seq,
    }


def all_of(*recorders: Recorder) -> Recorder:
    """Return a recorder that tells each of `recorders`, in their order."""

    def record(entry: JournalEntry) -> None:
        for recorder in recorders:
            recorder(entry)

    return record
