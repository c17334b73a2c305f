"""The choice of a chunk."""

from collections.abc import Iterator, Mapping
from itertools import product

from kvescrow.checks.explore.instance import BOTH, Instance, Known, Move, Observation, Place, integers, members
from kvescrow.spec.language.expressions import FALSE, Expression
from kvescrow.spec.tables.chunk_choice import CHUNK_CHOICE, ChunkSearch, batch, search

DURATIONS: Mapping[int, int] = {4: 4, 2: 3, 1: 2}
"""Chunks on offer, the largest first, and the predicted duration of each beside the decodes."""
FINISH: Mapping[int, int] = {4: 1, 2: 2, 1: 3}
"""The least time to the end of the prompt in chunks of each size."""
ALONE = 1
"""What the decodes take alone."""
UNMEASURED = 4
"""The chunk that is outside the model's range."""
NOTHING_MEASURED = 0
"""The time that is left of the prompt in the one moment in which every chunk is outside the range."""
BOUND = 2


def chunk_choice() -> Instance:
    """Chunks of 4, 2 and 1 tokens, weighed for every moment: decodes wait or not, with every gap that is left.

    The largest chunk is outside the model's range. In a moment without time left for the prompt all chunks are. Steps
    carry the decodes, or do not; then two chunks may go before decodes that wait.
    """
    asked = Place(
        "search",
        search,
        {
            "state": members(ChunkSearch),
            "at": (0, *sorted(DURATIONS)),
            "seen": BOTH,
            "chosen": (0, *sorted(DURATIONS)),
            "waiting": BOTH,
            "room": integers(0, 4),
            "time_left": integers(0, 3),
        },
    )
    the_batch = Place("batch", batch, {"consecutive": integers(0, BOUND)})
    binds = {"search": "search", "batch": "batch"}
    seen = tuple(Observation(CHUNK_CHOICE, binds, {**_worker(), **_rival(tokens)}) for tokens in DURATIONS)
    return Instance("chunk_choice", (asked, the_batch), tuple(_moves(binds)), seen, note=chunk_choice.__doc__ or "")


def _moves(binds: Mapping[str, str]) -> Iterator[Move]:
    given = {**_worker(), **_rival(max(DURATIONS))}
    for waiting, room, time_left in product((False, True), range(5), range(4)):
        name = f"ask with {room} of the gap and {time_left} of the prompt's time left{' while decodes wait' * waiting}"
        yield Move(name, CHUNK_CHOICE, "ask", binds, _asked(waiting=waiting, room=room, time_left=time_left), given)
    untrusted: dict[tuple[str, str], Known] = {**given, ("worker", "trusted"): False}
    yield Move("ask a model that failed", CHUNK_CHOICE, "ask", binds, _asked(), untrusted)
    yield Move("ask beside unmeasured decodes", CHUNK_CHOICE, "ask", binds, _asked(in_range=False), given)
    yield Move("ask for no token", CHUNK_CHOICE, "ask", binds, _asked(largest=0), {**given, **_absent()})
    for tokens, mixed in product(DURATIONS, (False, True)):
        how = "in a step of its own" if not mixed else "in the decodes' step"
        yield Move(
            f"weigh {tokens} {how}",
            CHUNK_CHOICE,
            "weigh",
            binds,
            _figures(tokens),
            {**_worker(mixed=mixed), **_rival(tokens)},
            where=(search.at == tokens) if tokens != max(DURATIONS) else (search.at == tokens) | (search.at == 0),
        )
    yield Move("weigh another chunk than the one at hand", CHUNK_CHOICE, "weigh", binds, _figures(2), given,
               where=search.at == 1)  # fmt: skip
    malformed = {"smaller chunk": _figures(1), **{f"chunk above {n}": {**_figures(2), "below": n} for n in (-1, 2)}}
    for what, figures in malformed.items():
        yield Move(f"weigh a {what} where 2 is at hand", CHUNK_CHOICE, "weigh", binds, figures, given,
                   where=search.at == 2)  # fmt: skip
    yield Move("decode", CHUNK_CHOICE, "decode", binds, {}, given)


def _asked(
    *, largest: int = max(DURATIONS), waiting: bool = True, room: int = 4, time_left: int = 3, in_range: bool = True
) -> dict[str, Known]:
    return {
        "largest": largest,
        "waiting": waiting,
        "room": room,
        "time_left": time_left,
        "alone": ALONE,
        "in_range": in_range,
    }


def _figures(tokens: int) -> dict[str, Known]:
    return {
        "tokens": tokens,
        "below": max((smaller for smaller in DURATIONS if smaller < tokens), default=0),
        "duration": DURATIONS[tokens],
        "finish": FINISH[tokens],
        "in_range": _in_range(tokens),
    }


def _in_range(tokens: int) -> Expression:
    return FALSE if tokens == UNMEASURED else search.time_left != NOTHING_MEASURED


def _worker(*, mixed: bool = False) -> dict[tuple[str, str], Known]:
    return {("worker", "trusted"): True, ("worker", "mixed"): mixed, ("worker", "bound"): BOUND}


def _rival(tokens: int) -> dict[tuple[str, str], Known]:
    return {
        ("rival", "on_offer"): True,
        ("rival", "tokens"): tokens,
        ("rival", "duration"): DURATIONS[tokens],
        ("rival", "in_range"): _in_range(tokens),
    }


def _absent() -> dict[tuple[str, str], Known]:
    return {("rival", "on_offer"): False}
