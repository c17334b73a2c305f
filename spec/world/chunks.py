"""The choice of a chunk, moved by its table: chunks are weighed one by one, from the largest on offer down."""

from collections.abc import Mapping, Sequence
from typing import cast

from attrs import frozen

from kvescrow.spec.language.compiler import compiled
from kvescrow.spec.language.table import Table
from kvescrow.spec.tables.chunk_choice import ChunkSearch, batch, rival, search, worker
from kvescrow.spec.tables.registry import TABLE_BY_NAME
from kvescrow.spec.vocabulary import Decision
from kvescrow.spec.world.ledger import Watch
from kvescrow.spec.world.outcome import MutableRecord, Outcome, apply_row, blank


@frozen
class Moment:
    """When a chunk is asked for. Times are integer microseconds."""

    waiting: bool
    """Whether decodes wait for their next token."""
    room: int
    """The token-gap budget less the time that they have waited."""
    alone: int
    """What they are predicted to take alone."""
    time_left: int
    """Until the prompt's deadline."""
    in_range: bool = True
    """Whether the decodes alone are inside the cost model's range."""


@frozen
class Offered:
    """One chunk on offer, with what the cost model says of it. Times are integer microseconds."""

    tokens: int
    duration: int
    """Until every waiting decode has its next token, if this chunk goes first."""
    finish: int
    """At least, to the end of the prompt in chunks like this one."""
    in_range: bool = True


class ChunkWorld:
    """One worker's choices. `bound`: chunks that may go before decodes that wait; `mixed`: steps carry both."""

    def __init__(
        self,
        bound: int = 1,
        *,
        mixed: bool = True,
        watch: Watch | None = None,
        tables: Mapping[str, Table] = TABLE_BY_NAME,
    ) -> None:
        """Begin with no chunk launched."""
        self._table = compiled(tables["chunk_choice"])
        self._watch = watch
        self._records = {
            "search": blank(search, state=ChunkSearch.IDLE),
            "batch": blank(batch),
            "worker": blank(worker, trusted=True, mixed=mixed, bound=bound),
            "rival": blank(rival),
        }

    @property
    def chosen(self) -> int:
        """The tokens of the chunk that was chosen last; 0 where a question is open, or decodes were served since."""
        return cast(int, self._records["search"]["chosen"])

    @property
    def consecutive(self) -> int:
        """Chunks launched since the waiting decodes had their last token."""
        return cast(int, self._records["batch"]["consecutive"])

    def trust(self, trusted: bool) -> None:
        """Say whether the cost model is trusted from now on."""
        self._records["worker"]["trusted"] = trusted

    def choose(self, moment: Moment, offers: Sequence[Offered]) -> Outcome:
        """Return the row that ends the choice among `offers`, which come from the largest down."""
        outcome = self.ask(moment, offers[0].tokens if offers else 0)
        if outcome.decision is not Decision.NOTED:
            return outcome
        for chunk, below in zip(offers, (*(smaller.tokens for smaller in offers[1:]), 0), strict=True):
            outcome = self.weigh(chunk, below)
            if outcome.decision is not Decision.NOTED:
                return outcome
        return self.weigh(Offered(0, 0, 0), 0)

    def ask(self, moment: Moment, largest: int) -> Outcome:
        """Ask for a chunk of at most `largest` tokens."""
        return self._fire(
            "ask",
            {
                "largest": largest,
                "waiting": moment.waiting,
                "room": moment.room,
                "time_left": moment.time_left,
                "alone": moment.alone,
                "in_range": moment.in_range,
            },
        )

    def weigh(self, chunk: Offered, below: int) -> Outcome:
        """Weigh the chunk at hand; `below` is the next smaller one on offer, 0 where there is none."""
        return self._fire(
            "weigh",
            {
                "tokens": chunk.tokens,
                "below": below,
                "duration": chunk.duration,
                "finish": chunk.finish,
                "in_range": chunk.in_range,
            },
        )

    def decode(self) -> Outcome:
        """Launch a step that carries the waiting decodes."""
        return self._fire("decode", {})

    def _fire(self, event: str, parameters: MutableRecord) -> Outcome:
        return apply_row(self._table, self._records, event, parameters, self._watch)
