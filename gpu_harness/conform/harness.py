"""One conformance run, from a workload to a result."""

import platform as system
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from attrs import evolve, frozen

from kvescrow.gpu_harness.conform.arrivals import Progress
from kvescrow.gpu_harness.conform.conduct import Conduct
from kvescrow.gpu_harness.conform.control import POOL, Control
from kvescrow.gpu_harness.conform.hazards import EPOCH_AFTER, POOL_PAGES, hazards
from kvescrow.gpu_harness.conform.journal import RunJournal
from kvescrow.gpu_harness.conform.judge import compared_with_oracle
from kvescrow.gpu_harness.conform.loop import Clock, Loop
from kvescrow.gpu_harness.conform.platform import Platform, open_platform
from kvescrow.gpu_harness.conform.records import run_of
from kvescrow.gpu_harness.conform.result import ConformResult
from kvescrow.gpu_harness.conform.serving import Serving
from kvescrow.gpu_harness.conform.settings import LIMITS, TENANT_SHARE, Settings
from kvescrow.gpu_harness.conform.workload import BLOCK, TENANTS, Planned, workload
from kvescrow.gpu_harness.evidence import EvidenceKind, Finding, from_findings
from kvescrow.gpu_harness.pages import PAGE_LENGTH
from kvescrow.gpu_harness.streams import EventMisuse
from kvescrow.reference.grading.files import write_run
from kvescrow.reference.ledger import LedgerConfig, TenantConfig
from kvescrow.reference.traces import Trace

RETENTION = 50_000
"""Microseconds of virtual time after which a terminal record is forgotten: well within a run."""
TEXTS_SHOWN = 5


@frozen
class Workload:
    """What is offered in a run, and where it comes from."""

    name: str
    attribution: str
    planned: tuple[Planned, ...]


def conform(
    trace: Trace,
    settings: Settings,
    *,
    conduct: Conduct | None = None,
    journal: Path | None = None,
    records: Path | None = None,
    progress: Progress | None = None,
) -> ConformResult:
    """Run `trace` on a decoder under the reference's control, and watch its memory (CON-1, CON-2).

    `conduct` is for sabotage. Raises HardwareAbsent where the device is not in this machine (CON-3), UserError for a
    user's mistake, ConformFault where the reference contradicts itself, DeviceError where the device fails.
    """
    with open_platform(settings) as platform:
        offered = of_trace(trace, settings, platform)
        return conform_on(
            platform, offered, settings, conduct=conduct, journal=journal, records=records, progress=progress
        )


def of_trace(trace: Trace, settings: Settings, platform: Platform) -> Workload:
    """The requests of a trace as a run of `settings` offers them. Raises UserError where there are fewer."""
    planned = workload(
        trace,
        requests=settings.requests,
        seed=settings.seed,
        tokens=platform.tokens,
        chunk=LIMITS.prefill_chunk,
        cancel_rate=settings.cancel_rate,
    )
    return Workload(trace.name, trace.attribution, planned)


def of_hazards(settings: Settings, platform: Platform) -> tuple[Workload, Settings]:
    """The workload of all hazards, and `settings` with the pool and the change of weights that belong to it."""
    planned = hazards(settings.seed, platform.tokens)
    small = evolve(settings, requests=len(planned), pages=POOL_PAGES, epoch_after=EPOCH_AFTER)
    return Workload("hazards", "made here, seeded", planned), small


def conform_on(
    platform: Platform,
    offered: Workload,
    settings: Settings,
    *,
    conduct: Conduct | None = None,
    journal: Path | None = None,
    records: Path | None = None,
    progress: Progress | None = None,
) -> ConformResult:
    """Run `offered` on `platform`; as `conform`.

    An event that is refused ends the run where it is: that is evidence, and nothing after it would be.
    """
    began = time.perf_counter()
    if settings.epoch_after is not None:
        platform.weights(1)  # made before they are changed to: a step under way is not to wait for it
    clock, config = Clock(), _ledger(offered.planned, settings.pages)
    record = RunJournal(config, settings.pages + 1, PAGE_LENGTH, journal)
    control = Control(config, settings.pages + 1, PAGE_LENGTH, record, clock)
    loop = Loop(offered.planned, platform, settings, control, clock, conduct or Conduct(), progress)
    try:
        evidence = loop.run() + compared_with_oracle(platform, loop.served)
        left = control.not_conserved(tuple(loop.arrivals.keys))
    except EventMisuse as misuse:
        finding = Finding(
            EvidenceKind.EVENT_REFUSED, -1, -1, loop.tally.steps, "an event that was recorded", str(misuse)
        )
        evidence, left = loop.evidence + from_findings([finding]), []
    finally:
        loop.close()
    verdict = record.close()
    result = ConformResult(
        settings=settings,
        trace=offered.name,
        attribution=offered.attribution,
        torch=torch.__version__,
        hardware=_hardware(platform),
        exact=platform.probe.exact,
        reason=platform.probe.reason,
        recipe=platform.probe.recipe.name,
        requests=len(offered.planned),
        tokens=loop.clients.tokens,
        tally=loop.tally,
        evidence=evidence,
        journal_events=verdict.events,
        rows=len(verdict.rows),
        violations=(*map(str, verdict.findings), *left),
        texts=_texts(platform, loop.served),
        seconds=time.perf_counter() - began,
    )
    if records is not None:
        write_run(records, run_of(result, offered.planned, loop.clients, frozenset(loop.arrivals.keys), ended=clock()))
    return result


def _texts(platform: Platform, served: Sequence[Serving]) -> tuple[tuple[str, str], ...]:
    """The end of some prompts and what was said after them, where tokens have meaning."""
    text = platform.text
    if text is None:
        return ()
    complete = [serving for serving in served if serving.sums is not None][:TEXTS_SHOWN]
    return tuple((text.decode(each.planned.prompt[-BLOCK:]), text.decode(each.tokens)) for each in complete)


def _ledger(planned: Sequence[Planned], pages: int) -> LedgerConfig:
    """A ledger in tokens whose queues and budgets hold the whole run: this harness looks at memory."""
    tokens = pages * PAGE_LENGTH
    limit = tokens * TENANT_SHARE[0] // TENANT_SHARE[1]
    # Requests of a killed worker are offered again.
    budget = 2 * len(planned) * tokens
    terms = TenantConfig(limit=limit, budget=budget, queue_limit=2 * len(planned))
    return LedgerConfig(POOL, tokens, dict.fromkeys(TENANTS, terms), RETENTION)


def _hardware(platform: Platform) -> str:
    device = platform.base.embedding.device
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return system.processor() or system.machine()
