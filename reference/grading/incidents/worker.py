"""A small worker that serves a small workload on virtual time and tells how each request's time was spent.

It has the mechanisms whose failures are diagnosed: a pool that pages return to only after a lag, limits of tenants,
places in a batch, prefixes that are cached by scope, chunked prefill beside decodes, growth of reservations,
preemption, a host that launches, clients that stall. One step of the device follows the other. Times are
integer microseconds.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from random import Random

from attrs import define, field, frozen

from kvescrow.reference.grading.records import Ending, Evidence, RequestRecord, Run, Span, SpanKind
from kvescrow.spec.vocabulary import Reason

PROBE = 4_000
"""Microseconds of a fixed piece of work on a device of speed 1."""
BATCH_FULL = "BATCH_FULL"
OTHERS_PREFILL, PREEMPTED, LAUNCH, CLIENT = "prefill_of_others", "preempted", "launch", "client"


@frozen
class WorkerSettings:
    """What an incident changes. Times are microseconds, shares from 0 to 1."""

    device: float = 1.0
    """How many times as long everything takes that the device computes."""
    pool: int = 14_000
    """Tokens."""
    tenant_limit: Mapping[str, int] = field(factory=dict)
    """Tokens of a tenant at a time; the pool where one is missing."""
    places: int = 24
    """In the batch."""
    chunk: int = 512
    """Prompt tokens in a step."""
    hits: Mapping[str, float] = field(factory=dict)
    """Share of the shared prefix that is found, by scope; all of it where one is missing."""
    reclaim_lag: int = 2_000
    """From the end of a request until its pages are free."""
    reserved_output: float = 1.0
    """Share of the output that is reserved at admission; the rest is asked for when it is needed."""
    preemption: float = 0.0
    """Probability, at a token, that a request is set aside for `preempted_for`."""
    preempted_for: int = 400_000
    launch: int = 200
    """Of the host, in each step."""
    stall: float = 0.0
    """Probability, at a token, that the client does not take the next one for `stalled_for`."""
    stalled_for: int = 300_000
    longest_prompt: int = 100_000
    """Longer ones are refused."""
    output: float = 1.0
    """How many times as many output tokens."""
    fixed: int = 3_000
    per_prefill_token: int = 12
    per_decode: int = 60


@frozen
class Wish:
    """One request of the workload."""

    request: str
    tenant: str
    arrival: int
    prompt: int
    shared: int
    """Prompt tokens at its front that are in the cache of its scope, if anything is."""
    output: int


def workload(seed: int, count: int = 70) -> tuple[Wish, ...]:
    """Return a workload of three tenants; the same seed gives the same."""
    draw = Random(f"workload {seed}")
    arrival, wishes = 0, []
    for number in range(count):
        arrival += round(draw.expovariate(1 / 45_000))
        prompt = draw.randint(300, 2_400)
        wishes.append(
            Wish(
                request=str(number),
                tenant=draw.choice("abc"),
                arrival=arrival,
                prompt=prompt,
                shared=round(prompt * draw.uniform(0.4, 0.8)),
                output=draw.randint(10, 60),
            )
        )
    return tuple(wishes)


@define(eq=False)
class _Job:
    wish: Wish
    output: int
    cached: int
    amount: int
    spent: Counter[tuple[SpanKind, str]] = field(factory=Counter)
    frames: list[tuple[int, int]] = field(factory=list)
    prompt_left: int = 0
    started: int | None = None
    aside_until: int = 0
    aside: str = ""
    wants_growth: bool = False
    reason: str = ""
    """Why it has not been admitted."""

    @property
    def needs(self) -> int:
        """Tokens that it holds once it has one more."""
        return self.wish.prompt + len(self.frames) + 1


class _Simulation:
    def __init__(self, wishes: Sequence[Wish], settings: WorkerSettings, seed: int) -> None:
        self._settings, self._draw = settings, Random(f"worker {seed}")
        self._coming = list(reversed([self._job(wish) for wish in wishes]))
        self._waiting: list[_Job] = []
        self._batch: list[_Job] = []
        self._draining: list[tuple[int, int, str]] = []
        self._held: Counter[str] = Counter()
        self._now = 0
        self.records: list[RequestRecord] = []

    def _job(self, wish: Wish) -> _Job:
        settings = self._settings
        output = max(1, round(wish.output * settings.output))
        found = settings.hits.get(wish.tenant, 1.0) * self._draw.uniform(0.97, 1.0)
        reserved = wish.prompt + max(1, round(output * settings.reserved_output))
        cached = round(wish.shared * found)
        return _Job(wish, output, cached, reserved, prompt_left=wish.prompt - cached)

    def run(self) -> None:
        """Serve everything."""
        while self._coming or self._waiting or self._batch:
            self._arrive()
            self._drain()
            self._admit()
            if (self._waiting or self._batch or self._coming) and not self._step():
                self._skip()

    def _arrive(self) -> None:
        while self._coming and self._coming[-1].wish.arrival <= self._now:
            job = self._coming.pop()
            if job.wish.prompt > self._settings.longest_prompt:
                self._refuse(job)
            else:
                job.spent[SpanKind.QUEUE, BATCH_FULL] += self._now - job.wish.arrival
                self._waiting.append(job)

    def _refuse(self, job: _Job) -> None:
        wish = job.wish
        self.records.append(
            RequestRecord(
                wish.request,
                wish.tenant,
                "chat",
                wish.arrival,
                Ending.REFUSED,
                Reason.NEVER_FITS.value,
                sent=wish.arrival,
                ended=wish.arrival,
                input_tokens=wish.prompt,
                scope=wish.tenant,
            )
        )

    def _drain(self) -> None:
        for due, amount, tenant in [each for each in self._draining if each[0] <= self._now]:
            self._draining.remove((due, amount, tenant))
            self._held[tenant] -= amount

    def _admit(self) -> None:
        """Admit in order of arrival; one that its own tenant's limit keeps back does not block others."""
        for job in list(self._waiting):
            job.reason = self._why_not(job)
            if job.reason == Reason.TENANT_CAPACITY.value:
                continue
            if job.reason:
                for behind in self._waiting[self._waiting.index(job) + 1 :]:
                    behind.reason = job.reason
                return
            self._waiting.remove(job)
            self._held[job.wish.tenant] += job.amount
            job.started = self._now
            self._batch.append(job)

    def _why_not(self, job: _Job) -> str:
        tenant, total = job.wish.tenant, self._held.total()
        if len(self._batch) >= self._settings.places:
            return BATCH_FULL
        limit = self._settings.tenant_limit.get(tenant)
        if limit is not None and self._held[tenant] + job.amount > limit:
            return Reason.TENANT_CAPACITY.value
        if total + job.amount <= self._settings.pool:
            return ""
        draining = sum(amount for _, amount, _ in self._draining)
        return "reclaim" if total - draining + job.amount <= self._settings.pool else Reason.POOL_CAPACITY.value

    # --- steps --------------------------------------------------------------------------------------------------

    def _step(self) -> bool:
        """Launch one step and wait for it; whether there was one to launch."""
        settings = self._settings
        prefilling = [job for job in self._batch if job.prompt_left]
        decoding = [job for job in self._batch if not job.prompt_left and self._may_decode(job)]
        if not prefilling and not decoding:
            return False
        chunk = min(settings.chunk, prefilling[0].prompt_left) if prefilling else 0
        prefill = round(settings.device * chunk * settings.per_prefill_token)
        decode = round(settings.device * (settings.fixed + len(decoding) * settings.per_decode))
        duration = settings.launch + prefill + decode
        for job in self._batch:
            for kind, cause, spent in self._shares(job, prefilling, decoding, prefill, decode, duration):
                job.spent[kind, cause] += spent
        self._wait(duration)
        if prefilling:
            prefilling[0].prompt_left -= chunk
        for job in [*decoding, *(prefilling[:1] if prefilling and not prefilling[0].prompt_left else ())]:
            self._token(job)
        return True

    def _shares(
        self, job: _Job, prefilling: list[_Job], decoding: list[_Job], prefill: int, decode: int, duration: int
    ) -> Iterator[tuple[SpanKind, str, int]]:
        """Yield what a step was for one request of the batch; together it is the whole step."""
        if prefilling and job is prefilling[0]:
            yield SpanKind.GAP, LAUNCH, self._settings.launch
            yield SpanKind.PREFILL, "", prefill + decode
        elif job.prompt_left:
            yield SpanKind.QUEUE, "PROMPTS_BEFORE", duration
        elif job in decoding:
            yield SpanKind.GAP, LAUNCH, self._settings.launch
            yield SpanKind.GAP, OTHERS_PREFILL, prefill
            yield SpanKind.DECODE, "", decode
        elif job.wants_growth:
            yield SpanKind.GROWTH, "", duration
        else:
            yield SpanKind.GAP, job.aside, duration

    def _may_decode(self, job: _Job) -> bool:
        if job.aside_until > self._now:
            return False
        room = self._settings.pool - self._held.total()
        # The oldest grows in any case, on head-room, so that somebody always goes on.
        more = min(8, room) if room > 0 else 1 if job is self._batch[0] else 0
        job.wants_growth = job.needs > job.amount and not more
        if job.needs > job.amount and more:
            job.amount += more
            self._held[job.wish.tenant] += more
        return not job.wants_growth

    def _token(self, job: _Job) -> None:
        job.frames.append((self._now, 1))
        if len(job.frames) == job.output:
            self._end(job)
            return
        for probability, lasting, why in (
            (self._settings.preemption, self._settings.preempted_for, PREEMPTED),
            (self._settings.stall, self._settings.stalled_for, CLIENT),
        ):
            if self._draw.random() < probability:
                job.aside_until, job.aside = self._now + lasting, why

    def _end(self, job: _Job) -> None:
        self._batch.remove(job)
        self._draining.append((self._now + self._settings.reclaim_lag, job.amount, job.wish.tenant))
        wish = job.wish
        self.records.append(
            RequestRecord(
                wish.request,
                wish.tenant,
                "chat",
                wish.arrival,
                Ending.COMPLETED,
                sent=wish.arrival,
                frames=tuple(job.frames),
                ended=self._now,
                input_tokens=wish.prompt,
                cached_tokens=job.cached,
                correct=True,
                started=job.started,
                amount=job.amount,
                scope=wish.tenant,
                spans=tuple(Span(kind, cause, spent) for (kind, cause), spent in job.spent.items() if spent),
            )
        )

    def _wait(self, duration: int) -> None:
        for job in self._waiting:
            kind = SpanKind.RECLAIM if job.reason == "reclaim" else SpanKind.QUEUE
            job.spent[kind, "" if kind is SpanKind.RECLAIM else job.reason or BATCH_FULL] += duration
        self._now += duration

    def _skip(self) -> None:
        """Nothing can be computed: go to when something changes."""
        times = [due for due, _, _ in self._draining]
        times += [job.aside_until for job in self._batch if job.aside_until > self._now]
        times += [self._coming[-1].wish.arrival] if self._coming else []
        duration = min(times) - self._now
        for job in self._batch:
            kind, cause = (SpanKind.GROWTH, "") if job.wants_growth else (SpanKind.GAP, job.aside)
            job.spent[kind, cause] += duration
        self._wait(duration)


def simulate(name: str, wishes: Sequence[Wish], settings: WorkerSettings, seed: int) -> Run:
    """Serve `wishes` and return the records; the same arguments give the same."""
    simulation = _Simulation(wishes, settings, seed)
    simulation.run()
    records = tuple(sorted(simulation.records, key=lambda record: record.arrival))
    return Run(
        name,
        records,
        ended=max((record.ended or 0 for record in records), default=0),
        offered=len(records),
        workload=f"{len(wishes)} requests",
        synthetic=True,
        safety=Evidence(len(records), (), "the simulation keeps no ledger"),
        probe=round(PROBE * settings.device),
        pool=settings.pool,
    )
