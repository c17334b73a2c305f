"""What a target does wrong is a finding wherever it is called: it raises, leaves Python, or answers of another type."""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from kvescrow.checks.cli.front import main
from kvescrow.checks.explore.conformance import conform
from kvescrow.checks.fuzz.guard import PROTOCOLS
from kvescrow.checks.fuzz.profiles import PROFILES
from kvescrow.checks.fuzz.result import FAILED
from kvescrow.checks.fuzz.run import fuzz
from kvescrow.checks.targets.capacity import Amounts, Answer, CapacitySetup
from kvescrow.checks.targets.composed import open_composed
from kvescrow.checks.targets.ledgers import open_memory
from kvescrow.checks.targets.pools import open_pool
from kvescrow.checks.targets.protocols import Denied, Granted, ManagerPool, ManagerSetup, SchedulerSetup
from kvescrow.checks.targets.release import open_release
from kvescrow.checks.targets.subject import Capabilities, Kind, Subject
from kvescrow.spec.vocabulary import UserError

BRIEF = evolve(PROFILES["pr"], examples=20, least_rounds=1, most_rounds=4)


class Manager:
    """Gives each request pages of its own, and caches nothing."""

    def __init__(self, setup: ManagerSetup | SchedulerSetup) -> None:
        self.setup = setup
        self.tables: dict[str, list[int]] = {}
        self.ends: dict[str, int] = {}

    def submit(self, request: str, prompt: Any, scope: Any, priority: int = 0) -> Granted:
        self.tables.setdefault(request, [])
        self.ends.setdefault(request, 0)
        return Granted()

    def free(self) -> list[int]:
        return [page for page in range(self.setup.pages) if all(page not in table for table in self.tables.values())]

    def reserve(self, request: str, tokens: int) -> Granted | Denied:
        table = self.tables[request]
        lacking = -(-(self.ends[request] + tokens) // self.setup.page_length) - len(table)
        if lacking > len(self.free()):
            return Denied()
        table += self.free()[: max(0, lacking)]
        return Granted()

    def launch(self, request: str, tokens: int) -> None:
        self.ends[request] += tokens

    def complete(self, request: str, sampled: Any) -> None:
        pass

    def release(self, request: str) -> None:
        self.tables.pop(request, None)
        self.ends.pop(request, None)

    def pages_of(self, request: str) -> tuple[int, ...]:
        return tuple(self.tables.get(request, ()))

    def evict(self) -> None:
        pass

    def pool(self) -> ManagerPool:
        held = {page: 1 for table in self.tables.values() for page in table}
        return ManagerPool(self.setup.pages, frozenset(self.free()), frozenset(), held)

    def step(self, sampled: Any) -> tuple[Any, ...]:
        return ()

    def cancel(self, request: str) -> None:
        self.release(request)

    def close(self) -> None:
        pass


class Counter:
    """A ledger that remembers nothing but a sum a key."""

    def __init__(self, setup: CapacitySetup) -> None:
        self.limits: dict[str, Amounts] = {}
        self.setup = setup
        self.grants: dict[tuple[str, str], Amounts] = {}

    def acquire(self, key: str, grant: str, amounts: Amounts) -> Answer:
        if (key, grant) in self.grants:
            return Answer.DONE
        if any(amount > rest for amount, rest in zip(amounts, self.remaining(key), strict=True)):
            return Answer.REFUSED
        self.grants[key, grant] = amounts
        return Answer.DONE

    def settle(self, key: str, grant: str, amounts: Amounts, used: Amounts) -> Answer:
        return Answer.REFUSED if self.grants.pop((key, grant), None) is None else Answer.DONE

    def remaining(self, key: str) -> Amounts:
        taken = [amounts for (of, _), amounts in self.grants.items() if of == key]
        limits = self.limits.get(key, self.setup.limits)
        return tuple(max(0, limit - sum(each[place] for each in taken)) for place, limit in enumerate(limits))

    def set_limits(self, key: str, limits: Amounts) -> None:
        self.limits[key] = limits

    def held(self, key: str) -> int:
        return sum(of == key for of, _ in self.grants)

    def tick(self, now: int) -> None:
        pass

    def restart(self) -> None:
        pass

    def close(self) -> None:
        pass


OPEN: Mapping[Kind, Callable[[Any], Any]] = {
    Kind.LEDGER: open_memory,
    Kind.PAGES: open_pool,
    Kind.COMPOSED: open_composed,
    Kind.RELEASE: open_release,
    Kind.MANAGER: Manager,
    Kind.SCHEDULER: Manager,
    Kind.CAPACITY: Counter,
}
DECLARED = Capabilities(durable=True, concurrent=False)


class Changed:
    """A target, but for one method."""

    def __init__(self, target: Any, method: str, instead: Callable[..., Any]) -> None:
        self.__dict__.update(target=target, **{method: instead})

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["target"], name)


def changed(kind: Kind, method: str, act: Callable[[Callable[..., Any]], Any]) -> Subject:
    """Return a subject whose `method`, at times of a part of it, does what `act` does, which is given the right one."""

    def opened(setup: Any) -> Any:
        target = OPEN[kind](setup)
        part, _, name = method.rpartition(".")
        of = getattr(target, part) if part else target
        right = getattr(of, name)
        new = Changed(of, name, lambda *arguments, **named: act(lambda: right(*arguments, **named)))
        return Changed(target, part, new) if part else new

    return Subject(kind, opened, DECLARED)


def methods_of(protocol: Any) -> list[str]:
    parts = [f"{name}.{method}" for name, of in inspect.get_annotations(protocol).items() for method in methods_of(of)]
    return [name for name, _ in inspect.getmembers(protocol, inspect.isfunction) if name[0] != "_"] + parts


SELDOM = ("drop", "evict", "forget", "grow", "park", "retire_page", "seal", "settle", "share", "touch")
"""Of the pages of a composed target: driven where the pool stands alone."""
EVERY = [
    (kind, name)
    for kind in Kind
    for name in methods_of(PROTOCOLS[kind])
    if kind is not Kind.COMPOSED
    or name not in {"ledger.restart", "ledger.sign_fence", *(f"pages.{each}" for each in SELDOM)}
]


def leave(right: Callable[..., Any]) -> Any:
    sys.exit(0)


@pytest.mark.parametrize(("kind", "method"), EVERY, ids=lambda part: getattr(part, "value", part))
def test_an_exit_of_python_in_any_method_is_a_finding(kind: Kind, method: str) -> None:
    result = fuzz("mine", changed(kind, method, leave), BRIEF)
    assert result.verdict == FAILED
    assert "raised SystemExit: 0" in result.failure
    assert len(result.findings) == 1


@pytest.mark.parametrize("part", ["ledger", "pages"])
def test_an_exit_of_python_where_a_part_is_asked_for_is_a_finding(part: str) -> None:
    class Without:
        def __init__(self, target: Any) -> None:
            self._target = target

        def __getattr__(self, name: str) -> Any:
            return sys.exit(0) if name == part else getattr(self._target, name)

    result = fuzz("mine", Subject(Kind.COMPOSED, lambda setup: Without(OPEN[Kind.COMPOSED](setup)), DECLARED), BRIEF)
    assert result.verdict == FAILED
    assert "raised SystemExit: 0" in result.failure


def fail(right: Callable[..., Any]) -> Any:
    raise ZeroDivisionError("it is broken")


def cancelled(right: Callable[..., Any]) -> Any:
    raise asyncio.CancelledError


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize(("act", "told"), [(fail, "ZeroDivisionError: it is broken"), (cancelled, "CancelledError: ")])
def test_whatever_a_target_raises_at_its_end_is_a_finding(kind: Kind, act: Callable[..., Any], told: str) -> None:
    last = {Kind.COMPOSED: "ledger.close", Kind.PAGES: "snapshot", Kind.RELEASE: "snapshot"}.get(kind, "close")
    result = fuzz("mine", changed(kind, last, act), BRIEF)
    assert (result.verdict, len(result.findings)) == (FAILED, 1)
    assert f"raised {told}" in result.failure


def test_the_users_own_interrupt_is_no_finding() -> None:
    def interrupted(right: Callable[..., Any]) -> Any:
        raise KeyboardInterrupt

    for kind in Kind:
        method = {Kind.RELEASE: "snapshot", Kind.COMPOSED: "ledger.submit"}.get(kind, methods_of(PROTOCOLS[kind])[0])
        with pytest.raises(KeyboardInterrupt):
            fuzz("mine", changed(kind, method, interrupted), BRIEF)


def test_what_breaks_first_is_told_and_not_what_then_goes_wrong_in_closing() -> None:
    def opened(setup: CapacitySetup) -> Any:
        counter = Counter(setup)
        return Changed(Changed(counter, "held", lambda key: 7), "close", lambda: 1 / 0 if counter.grants else None)

    result = fuzz("mine", Subject(Kind.CAPACITY, opened, DECLARED), BRIEF)
    assert result.failure.startswith("Law broken: counted")


class Almost(int):
    """An integer of another type, as array libraries have them."""


@pytest.mark.parametrize("wrong", [float, Almost], ids=["float", "scalar"])
@pytest.mark.parametrize(
    ("kind", "method", "put"),
    [
        (Kind.LEDGER, "submit", lambda facts, wrong: evolve(facts, life=wrong(facts.life))),
        (Kind.LEDGER, "snapshot", lambda seen, wrong: evolve(seen, clock=wrong(seen.clock))),
        (
            Kind.PAGES,
            "snapshot",
            lambda seen, wrong: evolve(seen, promised={h: wrong(n) for h, n in seen.promised.items()}),
        ),
        (Kind.COMPOSED, "ledger.snapshot", lambda seen, wrong: evolve(seen, pool_active=wrong(seen.pool_active))),
        (Kind.RELEASE, "snapshot", lambda seen, wrong: evolve(seen, looks=wrong(seen.looks))),
        (Kind.MANAGER, "submit", lambda granted, wrong: Granted(wrong(granted.cached_tokens))),
        (Kind.MANAGER, "pages_of", lambda pages, wrong: tuple(map(wrong, pages))),
        (Kind.SCHEDULER, "pool", lambda pool, wrong: evolve(pool, free=frozenset(map(wrong, pool.free)))),
        (Kind.CAPACITY, "remaining", lambda rest, wrong: tuple(map(wrong, rest))),
        (Kind.CAPACITY, "held", lambda held, wrong: wrong(held)),
    ],
    ids=lambda part: getattr(part, "value", part) if not callable(part) else "",
)
def test_an_integer_is_an_int(
    kind: Kind, method: str, put: Callable[[Any, Any], Any], wrong: Callable[[int], Any]
) -> None:
    result = fuzz("mine", changed(kind, method, lambda right: put(right(), wrong)), BRIEF)
    assert result.verdict == FAILED
    assert f"of type {type(wrong(1)).__name__}, where int is due" in result.failure


@pytest.mark.parametrize("answer", [None, True])
@pytest.mark.parametrize(
    ("kind", "method"),
    [
        (kind, method)
        for kind, methods in {
            Kind.LEDGER: ("submit", "snapshot", "sign"),
            Kind.PAGES: ("touch", "snapshot"),
            Kind.COMPOSED: ("worker.launch", "worker.state", "pages.snapshot"),
            Kind.RELEASE: ("tick", "snapshot"),
            Kind.MANAGER: ("submit", "pool"),
            Kind.CAPACITY: ("acquire", "remaining"),
        }.items()
        for method in methods
    ],
    ids=lambda part: getattr(part, "value", part),
)
def test_an_answer_of_another_kind_is_a_finding(kind: Kind, method: str, answer: object) -> None:
    result = fuzz("mine", changed(kind, method, lambda right: answer), BRIEF)
    assert result.verdict == FAILED
    assert "answered" in result.failure or "remains" in result.failure


@pytest.mark.parametrize(("act", "told"), [(leave, "SystemExit: 0"), (fail, "ZeroDivisionError: it is broken")])
@pytest.mark.parametrize("method", ["submit", "snapshot", "sign"])
@pytest.mark.parametrize("jobs", [1, 2])
def test_an_exhaustive_walk_tells_what_a_ledger_raises(
    jobs: int, method: str, act: Callable[..., Any], told: str
) -> None:
    result = conform(
        "mine", evolve(changed(Kind.LEDGER, method, act), capabilities=Capabilities()), "lifecycle-xs", jobs
    )
    assert result.verdict == "failed"
    assert told in str(result.disagreement)


def test_a_covering_walk_tells_what_a_ledger_raises_at_its_end() -> None:
    result = conform("mine", changed(Kind.LEDGER, "close", leave), "lifecycle-xs")
    assert result.verdict == "failed"
    assert "SystemExit: 0" in str(result.disagreement)


@pytest.mark.parametrize("durable", [True, False])
def test_a_walk_tells_a_snapshot_with_floats(durable: bool) -> None:
    subject = changed(Kind.LEDGER, "snapshot", lambda right: evolve(right(), pool_limit=float(right().pool_limit)))
    result = conform("mine", evolve(subject, capabilities=Capabilities(durable=durable)), "lifecycle-xs")
    assert result.verdict == "failed"
    assert ".pool_limit: 3.0 of type float, where int is due" in str(result.disagreement)


def test_a_target_that_cannot_be_copied_is_refused_with_the_remedy() -> None:
    def opened(setup: Any) -> Any:
        return Changed(open_memory(setup), "recent", deque())  # type: ignore[arg-type]

    with pytest.raises(UserError, match=r"the target cannot be copied .*declare the target durable"):
        conform("mine", Subject(Kind.LEDGER, opened), "lifecycle-xs")


def test_the_result_of_a_target_that_leaves_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "adapter_that_leaves.py").write_text(
        "import sys\nfrom kvescrow.checks.targets.subject import Kind, Subject\n"
        "def leave(setup): sys.exit(0)\ndef subject(): return Subject(Kind.CAPACITY, leave)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SystemExit) as left:
        main(["fuzz", "--target", "adapter_that_leaves:subject", "--json", str(tmp_path / "found.json")])
    assert left.value.code == 1
    found = json.loads((tmp_path / "found.json").read_text())
    assert (found["verdict"], found["laws"]["answers"]) == ("failed", "broken")
