"""Turns between classes for prefill, and the lines that the fair queue is compared with."""

from __future__ import annotations

from kvescrow.reference.scheduler.fair import ClassTerms, NoObserver, Room, TenantTerms, Waiting
from kvescrow.reference.scheduler.line import LineQueue
from kvescrow.reference.scheduler.turns import PrefillTurns
from kvescrow.spec.vocabulary import Key, Reason


def test_turns_follow_the_weights() -> None:
    """3 to 1: of 40 chunks of equal size, 30 are the first's."""
    turns = PrefillTurns({"interactive": 3, "bulk": 1})
    firsts = []
    for _ in range(40):
        firsts.append(turns.first(["interactive", "bulk"]))
        turns.charge(firsts[-1], 100)
    assert firsts.count("interactive") == 30


def test_a_class_without_prompts_gathers_no_credit() -> None:
    turns = PrefillTurns({"a": 1, "b": 1})
    for _ in range(50):
        assert turns.first(["a"]) == "a"
        turns.charge("a", 10)
    firsts = []
    for _ in range(6):
        firsts.append(turns.first(["a", "b"]))
        turns.charge(firsts[-1], 10)
    assert firsts.count("b") == 3


def line(ranks: dict[str, int]) -> LineQueue:
    classes = {name: ClassTerms(1, 3) for name in ranks}
    tenants = {"i": TenantTerms("interactive"), "b": TenantTerms("bulk")}
    return LineQueue(classes, tenants, TenantTerms("interactive"), ranks, NoObserver())


def waiting(tenant: str, name: str, expires: int = 100) -> Waiting:
    return Waiting(Key(tenant, name), 1, expires, 1_000)


def served(queue: LineQueue, rooms: dict[str, Room]) -> list[str]:
    asked: list[str] = []

    def ask(request: Waiting) -> Room:
        asked.append(request.key.request)
        return rooms.get(request.key.request, Room.ADMITTED)

    queue.dispatch(0, ask)
    return asked


def test_first_come_is_by_arrival_and_strict_priority_by_class() -> None:
    first_come, strict = line({"interactive": 0, "bulk": 0}), line({"interactive": 0, "bulk": 1})
    for queue in (first_come, strict):
        for tenant, name in (("b", "b1"), ("i", "i1"), ("b", "b2"), ("i", "i2")):
            assert queue.join(waiting(tenant, name)) is Reason.NONE
    assert served(first_come, {}) == ["b1", "i1", "b2", "i2"]
    assert served(strict, {}) == ["i1", "i2", "b1", "b2"]
    assert (len(first_come), len(strict)) == (0, 0)


def test_a_head_without_room_keeps_all_back_and_one_at_its_own_limit_only_its_own() -> None:
    queue = line({"interactive": 0, "bulk": 0})
    for tenant, name in (("b", "b1"), ("b", "b2"), ("i", "i1")):
        queue.join(waiting(tenant, name))
    assert served(queue, {"b1": Room.NO_ROOM}) == ["b1"]
    assert served(queue, {"b1": Room.OWN_LIMIT}) == ["b1", "i1"]
    assert served(queue, {"b1": Room.REFUSED}) == ["b1", "b2"]
    assert len(queue) == 0


def test_a_line_is_bounded_and_its_waits_end() -> None:
    queue = line({"interactive": 0, "bulk": 0})
    answers = [queue.join(waiting("i", f"i{number}", expires=number + 1)) for number in range(4)]
    assert answers == [Reason.NONE] * 3 + [Reason.QUEUE_FULL]
    assert [(each.key.request, why) for each, why in queue.expire(2)] == [
        ("i0", Reason.QUEUE_TIMEOUT),
        ("i1", Reason.QUEUE_TIMEOUT),
    ]
    assert queue.leave(Key("i", "i2")).key.request == "i2"
    assert (len(queue), Key("i", "i2") in queue) == (0, False)
