"""The whole scheduler of vLLM 0.33 with its cache manager, as a `ServingScheduler`: released code, a stand-in executor.

Its configuration is a stand-in too: what is not set here is off. `vllm-scheduler-at-return` is a control. There the
scheduler's manager is asked, by its own `delay_cache_blocks` and `cache_blocks`, to hash blocks when their step has
returned, and everything else is the same: what differs between the two comes from the moment of publishing alone.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from kvescrow.checks.targets import protocols, subject
from kvescrow.checks.targets.vllm_manager import declared
from kvescrow.checks.targets.vllm_release import VLLM, cache_config, hasher, pool_of, request_of, scheduler_config
from kvescrow.spec.vocabulary import PrefixScope


class Executor:
    """Stands for the structured-output manager, which accepts every token."""

    def accept_tokens(self, *_: object) -> bool:
        """Accept them."""
        return True


class VllmScheduler:
    """One released `Scheduler`, without a connector and one step at a time; block 0 is its null block."""

    def __init__(self, setup: protocols.SchedulerSetup, *, delay: bool = False) -> None:
        """Open a scheduler; `delay`: blocks are hashed when their step has returned."""
        self._hasher, self._delay = hasher(setup.page_length), delay
        scheduler = VLLM.module("vllm.v1.core.sched.scheduler").Scheduler
        blocks = cache_config(setup.pages + 1, setup.page_length)
        self._scheduler = scheduler(scheduler_config(setup), blocks, Executor(), setup.page_length)
        self._manager = self._scheduler.kv_cache_manager
        if delay:
            allocate = self._manager.allocate_slots
            self._manager.allocate_slots = lambda *asked, **named: allocate(
                *asked, **{**named, "delay_cache_blocks": True}
            )
        self._output: Any = None
        self._arrivals = 0

    def submit(self, request: str, prompt: Sequence[int], scope: PrefixScope, priority: int) -> None:
        """Queue a request."""
        self._arrivals += 1
        asked = request_of(request, prompt, scope, self._hasher, priority=priority, arrival_time=float(self._arrivals))
        self._scheduler.add_request(asked)

    def step(self, sampled: Mapping[str, int]) -> tuple[protocols.Scheduled, ...]:
        """Return what the executor would, and plan a step.

        The scheduler counts the tokens of a step as computed at once, so a share ends where its request's count stands.
        """
        if self._output is not None:
            self._return(sampled)
        self._output = self._scheduler.schedule()
        counts = self._output.num_scheduled_tokens
        ends = {name: self._scheduler.requests[name].num_computed_tokens for name in counts}
        return tuple(protocols.Scheduled(name, end - counts[name], end) for name, end in ends.items())

    def _return(self, sampled: Mapping[str, int]) -> None:
        names = list(self._output.num_scheduled_tokens)
        output = VLLM.module("vllm.v1.outputs").ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: place for place, name in enumerate(names)},
            sampled_token_ids=[[sampled[name]] if name in sampled else [] for name in names],
        )
        live = [self._scheduler.requests[name] for name in names if name in self._scheduler.requests]
        self._scheduler.update_from_output(self._output, output)
        for request in live if self._delay else ():
            self._manager.cache_blocks(request, request.num_computed_tokens)

    def cancel(self, request: str) -> None:
        """Abort the request."""
        status = VLLM.module("vllm.v1.request").RequestStatus.FINISHED_ABORTED
        self._scheduler.finish_requests([request], status)

    def pages_of(self, request: str) -> tuple[int, ...]:
        """Return the request's blocks."""
        return tuple(self._manager.get_block_ids(request)[0])

    def pool(self) -> protocols.ManagerPool:
        """Return where every block is by the manager's own records."""
        return pool_of(self._manager)

    def close(self) -> None:
        """Hold nothing open."""


def vllm_scheduler_subject() -> subject.Subject:
    """Return the scheduler as it is."""
    known = declared(subject.Publish.AT_SCHEDULE)
    return subject.Subject(subject.Kind.SCHEDULER, VllmScheduler, known, DEVIATIONS, str(VLLM))


def vllm_scheduler_at_return_subject() -> subject.Subject:
    """Return the scheduler with blocks hashed when their step has returned."""
    known = declared(subject.Publish.AT_COMMIT)
    return subject.Subject(
        subject.Kind.SCHEDULER, lambda setup: VllmScheduler(setup, delay=True), known, engine=str(VLLM)
    )


_CAUSE = (
    "under the priority policy a request that was planned first can be the victim in the same schedule(); the blocks "
    "of its chunk are hashed and never computed, and it resumes from them; seen in vLLM 0.33.0, see "
    "vllm-project/vllm#57580"
)
_HOME = PrefixScope("a")
_STEPS = (
    ("submit", "short", (25, 26, 27, 28, 29, 25), _HOME, 0),
    ("submit", "long", tuple(range(1, 50)), _HOME, 1),
    ("step", 1),
    ("submit", "late", (33, 34, 35, 36, 37, 33, 34), _HOME, 0),
    *(("step", 1),) * 3,
    ("cancel", "short"),
    ("step", 1),
)
_TIGHT = protocols.SchedulerSetup(pages=17, page_length=4, step_tokens=64, long_prefill=12, priority=True)
DEVIATIONS = (subject.ListedDeviation("publish before compute", "backed", _CAUSE, _STEPS, _TIGHT),)
