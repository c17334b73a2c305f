"""The release of one candidate."""

from collections.abc import Iterator

from kvescrow.checks.explore.instance import BOTH, Instance, Known, Move, Observation, Place, integers, members
from kvescrow.spec.tables.release import RELEASE, candidate, plan, release
from kvescrow.spec.vocabulary import GradeVerdict, ReleaseState

LOOKS = 2
LIMIT = 1
WORK = 2
CLOCK = 2


def release_process() -> Instance:
    """One candidate with two planned looks and a time limit of 1, on a clock that reads 0, 1 and 2.

    At most two requests are granted at a time: further grants are not taken. The epoch is raised once, from 1 to 2.
    """
    places = (
        Place(
            "release",
            release,
            {
                "state": members(ReleaseState),
                "looks": integers(0, LOOKS),
                "until": integers(0, CLOCK + LIMIT),
                "clock": integers(0, CLOCK),
            },
        ),
        Place("plan", plan, {}, {"looks": LOOKS, "limit": LIMIT}),
        Place(
            "candidate",
            candidate,
            {
                "grants": BOTH,
                "routed": BOTH,
                "epoch": (1, 2),
                "under": (0, 1),
                "in_flight": integers(0, WORK),
                "orphaned": integers(0, WORK),
            },
            initial={"epoch": 1},
            cut=frozenset({"in_flight"}),
        ),
    )
    binds = {"release": "release", "plan": "plan", "candidate": "candidate"}
    moves = tuple(Move(name, RELEASE, event, binds, parameters) for name, event, parameters in _events())
    return Instance("release", places, moves, (Observation(RELEASE, binds),), note=release_process.__doc__ or "")


def _events() -> Iterator[tuple[str, str, dict[str, Known]]]:
    for event in ("start", "breach", "sweep", "orphan", "drain", "switch"):
        yield event, event, {}
    for now in range(CLOCK + 1):
        yield f"tick {now}", "tick", {"now": now}
    for requests in (0, 1):
        yield f"measure {requests}", "measure", {"requests": requests}
    for epoch in (1, 2):
        yield f"grant under {epoch}", "grant", {"epoch": epoch}
        yield f"raise the epoch to {epoch}", "raise_epoch", {"epoch": epoch}
    for orphan in (False, True):
        yield f"settle {'an orphan' if orphan else 'a request'}", "settle", {"orphan": orphan}
    for verdict in GradeVerdict:
        yield f"look {verdict.value}", "look", {"verdict": verdict}
    for event in ("ship", "abandon"):
        for authorised in (True, False):
            yield f"{event}{'' if authorised else ' unauthorised'}", event, {"authorised": authorised}
    for charged in range(WORK + 1):
        yield f"verify {charged}", "verify", {"charged": charged}
