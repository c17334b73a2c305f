"""A scheduler that publishes what has run passes; one that publishes its plans is caught at the first read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import define, evolve, field

from kvescrow.checks.fuzz.laws import BY_NAME
from kvescrow.checks.fuzz.profiles import PROFILES
from kvescrow.checks.fuzz.result import FuzzResult
from kvescrow.checks.fuzz.run import fuzz
from kvescrow.checks.fuzz.scheduler import SchedulerJudge
from kvescrow.checks.targets.protocols import ManagerPool, Scheduled, SchedulerSetup
from kvescrow.checks.targets.subject import Capabilities, Kind, Publish, Subject
from kvescrow.spec.vocabulary import PrefixScope

QUICK = evolve(PROFILES["pr"], examples=30, least_rounds=1, most_rounds=20)
HOME = PrefixScope("a")


@define(eq=False)
class Job:
    """One request of the toy."""

    name: str
    tokens: list[int]
    priority: int
    pages: list[int] = field(factory=list)
    computed: int = 0


class Toy:
    """First come, first served within a priority; the last one makes room for the others."""

    publishes_plans = False

    def __init__(self, setup: SchedulerSetup) -> None:
        self.setup, self.free = setup, list(range(setup.pages))
        self.jobs: dict[str, Job] = {}
        self.index: dict[tuple[int, ...], int] = {}
        self.users: dict[int, int] = {}
        self.planned: list[Job] = []

    def submit(self, request: str, prompt: Sequence[int], scope: PrefixScope, priority: int) -> None:
        self.jobs[request] = Job(request, list(prompt), priority)

    def step(self, sampled: Mapping[str, int]) -> tuple[Scheduled, ...]:
        for job in self.planned:
            self.publish(job)
            job.tokens += [sampled[job.name]] if job.name in sampled else []
        self.planned, starts = [], {}
        for job in sorted(self.jobs.values(), key=lambda job: job.priority):
            if self.room_for(job):
                starts[job.name] = job.computed
                job.computed = min(len(job.tokens), job.computed + self.setup.long_prefill)
                self.planned.append(job)
                if self.publishes_plans:
                    self.publish(job)
        self.planned = [job for job in self.planned if job.pages]
        return tuple(Scheduled(job.name, starts[job.name], job.computed) for job in self.planned)

    def room_for(self, job: Job) -> bool:
        if not job.pages:
            self.match(job)
        end = min(len(job.tokens), job.computed + self.setup.long_prefill)
        lacking = -(-end // self.setup.page_length) - len(job.pages)
        victims = [other for other in self.jobs.values() if other.pages and other is not job]
        while lacking > len(self.free) + len(self.cached()) and victims:
            self.preempt(victims.pop())
        if lacking > len(self.free):
            self.free += self.cached()
            self.index = {prefix: page for prefix, page in self.index.items() if page in self.users}
        if lacking > len(self.free):
            self.preempt(job)
            return False
        for _ in range(lacking):
            self.use(job, self.free.pop())
        return True

    def match(self, job: Job) -> None:
        for end in range(self.setup.page_length, len(job.tokens), self.setup.page_length):
            page = self.index.get(tuple(job.tokens[:end]))
            if page is None:
                break
            self.use(job, page)
        job.computed = len(job.pages) * self.setup.page_length

    def use(self, job: Job, page: int) -> None:
        self.users[page] = self.users.get(page, 0) + 1
        job.pages.append(page)

    def publish(self, job: Job) -> None:
        for place in range(min(job.computed // self.setup.page_length, len(job.pages))):
            self.index.setdefault(tuple(job.tokens[: (place + 1) * self.setup.page_length]), job.pages[place])

    def preempt(self, job: Job) -> None:
        for page in job.pages:
            self.users[page] -= 1
            if not self.users[page]:
                del self.users[page]
                self.free += [] if page in self.index.values() else [page]
        job.pages, job.computed = [], 0

    def cached(self) -> set[int]:
        return set(self.index.values()) - set(self.users)

    def cancel(self, request: str) -> None:
        self.planned = [job for job in self.planned if job.name != request]
        self.preempt(self.jobs.pop(request))

    def pages_of(self, request: str) -> tuple[int, ...]:
        return tuple(self.jobs[request].pages) if request in self.jobs else ()

    def pool(self) -> ManagerPool:
        return ManagerPool(self.setup.pages, frozenset(self.free), frozenset(self.cached()), dict(self.users))

    def close(self) -> None:
        pass


class PublishesPlans(Toy):
    publishes_plans = True


class CountsOneMore(Toy):
    """Takes one position as computed that is not."""

    def step(self, sampled: Mapping[str, int]) -> tuple[Scheduled, ...]:
        shares = super().step(sampled)
        return tuple(evolve(share, start=share.start + (share.end - share.start > 1)) for share in shares)


class Leaks(Toy):
    def cancel(self, request: str) -> None:
        self.jobs[request].pages = self.jobs[request].pages[1:]
        super().cancel(request)


def run(scheduler: type[Toy], publish: Publish = Publish.AT_COMMIT) -> FuzzResult:
    return fuzz("toy", Subject(Kind.SCHEDULER, scheduler, Capabilities(publish=publish)), QUICK)


def test_a_correct_scheduler_passes_and_every_law_was_put_to_the_test() -> None:
    result = run(Toy)
    assert (result.failure, result.verdict) == ("", "passed")
    assert set(result.laws.values()) == {"passed"}
    assert "backed" in result.laws
    assert "denied" not in result.laws


def test_pages_of_a_plan_that_was_given_up_are_caught_where_they_are_read() -> None:
    result = run(PublishesPlans, Publish.AT_SCHEDULE)
    assert result.failure.startswith(f"Law broken: {BY_NAME['backed']}")
    (finding,) = result.findings
    assert len(finding.scenario) <= 13
    assert "positions as computed" in finding.implementation


def test_a_position_that_no_step_computes_is_caught() -> None:
    assert run(CountsOneMore).findings[0].law == "backed"


def test_a_page_that_is_lost_is_caught() -> None:
    assert run(Leaks).findings[0].law == "holders"


def test_a_share_of_an_unknown_request_is_told() -> None:
    class Invents(Toy):
        def step(self, sampled: Mapping[str, int]) -> tuple[Scheduled, ...]:
            return (*super().step(sampled), Scheduled("nobody", 0, 1))

    (finding,) = run(Invents).findings
    assert finding.law == "answers"
    assert "no live request's next positions" in finding.implementation


def test_calls_that_no_client_makes_are_left_out() -> None:
    judge = SchedulerJudge(Subject(Kind.SCHEDULER, Toy))
    judge.open_with(SchedulerSetup(4, 4, 16, 8, True))
    assert judge.call("submit", "r0", (1, 2, 3), HOME, 0)
    assert not judge.call("submit", "r0", (1, 2, 3), HOME, 0)
    assert not judge.call("cancel", "r1")
    assert judge.call("step", 1)
    assert judge.steps[-1] == "step(1) -> (Scheduled(request='r0', start=0, end=3))"
