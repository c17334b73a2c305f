"""The release of one candidate, moved by its table."""

from collections.abc import Mapping
from typing import Any

from kvescrow.spec.language.compiler import compiled
from kvescrow.spec.language.table import Table
from kvescrow.spec.tables.registry import TABLE_BY_NAME
from kvescrow.spec.tables.release import candidate, plan, release
from kvescrow.spec.vocabulary import GradeVerdict, ReleaseSnapshot, ReleaseState
from kvescrow.spec.world.ledger import Watch
from kvescrow.spec.world.outcome import MutableRecord, Outcome, apply_row, blank


class ReleaseWorld:
    """The oracle of one release: `looks` were planned, and `limit` microseconds from the start to a decision."""

    def __init__(
        self,
        looks: int,
        limit: int,
        epoch: int,
        watch: Watch | None = None,
        tables: Mapping[str, Table] = TABLE_BY_NAME,
    ) -> None:
        """Plan a release while `epoch` is in force. `watch` sees every view before a row of `tables` fires."""
        self._table = compiled(tables["release"])
        self._watch = watch
        self._records: dict[str, MutableRecord] = {
            "release": blank(release, state=ReleaseState.PLANNED),
            "plan": blank(plan, looks=looks, limit=limit),
            "candidate": blank(candidate, epoch=epoch),
        }

    @property
    def view(self) -> Mapping[str, MutableRecord]:
        """The records as they are."""
        return self._records

    def snapshot(self) -> ReleaseSnapshot:
        """Return what of the state is compared."""
        of_release, of_candidate = self._records["release"], self._records["candidate"]
        values: dict[str, Any] = {name: of_release[name] for name in ("state", "looks", "until", "clock")}
        values |= {name: value for name, value in of_candidate.items()}
        return ReleaseSnapshot(**values)

    def tick(self, now: int) -> Outcome:
        """Read the clock."""
        return self._fire("tick", now=now)

    def measure(self, requests: int) -> Outcome:
        """Record a run of the baseline."""
        return self._fire("measure", requests=requests)

    def start(self) -> Outcome:
        """Let the candidate serve its share."""
        return self._fire("start")

    def grant(self, epoch: int) -> Outcome:
        """Admit one request of the candidate under `epoch`."""
        return self._fire("grant", epoch=epoch)

    def settle(self, orphan: bool) -> Outcome:
        """Confirm the stop of one request."""
        return self._fire("settle", orphan=orphan)

    def look(self, verdict: GradeVerdict) -> Outcome:
        """Take in a look."""
        return self._fire("look", verdict=verdict)

    def breach(self) -> Outcome:
        """Take in that an invariant was violated."""
        return self._fire("breach")

    def sweep(self) -> Outcome:
        """Look whether the time limit has passed."""
        return self._fire("sweep")

    def ship(self, authorised: bool) -> Outcome:
        """Let the candidate serve everything."""
        return self._fire("ship", authorised=authorised)

    def abandon(self, authorised: bool) -> Outcome:
        """Give the candidate up."""
        return self._fire("abandon", authorised=authorised)

    def raise_epoch(self, epoch: int) -> Outcome:
        """Fence the candidate's epoch off."""
        return self._fire("raise_epoch", epoch=epoch)

    def orphan(self) -> Outcome:
        """Mark what is in flight as orphaned."""
        return self._fire("orphan")

    def drain(self) -> Outcome:
        """Look whether anything is in flight."""
        return self._fire("drain")

    def verify(self, charged: int) -> Outcome:
        """Compare with the ledger's charge."""
        return self._fire("verify", charged=charged)

    def switch(self) -> Outcome:
        """Route everything to the baseline."""
        return self._fire("switch")

    def _fire(self, event: str, **parameters: int | bool | GradeVerdict) -> Outcome:
        return apply_row(self._table, self._records, event, parameters, self._watch)
