"""One conformance run, from a trace to a result."""

import platform
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from kvescrow.gpu_harness.conform.conduct import Conduct
from kvescrow.gpu_harness.conform.control import POOL, Control
from kvescrow.gpu_harness.conform.journal import RunJournal
from kvescrow.gpu_harness.conform.judge import compared_with_oracle
from kvescrow.gpu_harness.conform.loop import Clock, Loop, Progress
from kvescrow.gpu_harness.conform.result import ConformResult
from kvescrow.gpu_harness.conform.settings import LIMITS, POSITIONS, TENANT_SHARE, USABLE_PAGES, Settings
from kvescrow.gpu_harness.conform.workload import TENANTS, Planned, workload
from kvescrow.gpu_harness.decoder import PagedDecoder
from kvescrow.gpu_harness.device import Device, open_device
from kvescrow.gpu_harness.model import named_shape, seeded_weights
from kvescrow.gpu_harness.pages import PAGE_LENGTH, PagedMemory
from kvescrow.gpu_harness.probe import exact_recipe
from kvescrow.reference.ledger import LedgerConfig, TenantConfig
from kvescrow.reference.traces import Trace

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
RETENTION = 50_000
"""Microseconds of virtual time after which a terminal record is forgotten: well within a run."""


def conform(
    trace: Trace,
    settings: Settings,
    *,
    conduct: Conduct | None = None,
    journal: Path | None = None,
    progress: Progress | None = None,
) -> ConformResult:
    """Run `trace` on a decoder under the reference's control, and watch its memory (CON-1, CON-2).

    `conduct` is for sabotage. Raises HardwareAbsent where the device is not in this machine (CON-3), UserError for a
    user's mistake, ConformFault where the reference contradicts itself, DeviceError where the device fails.
    """
    began = time.perf_counter()
    shape = named_shape(settings.shape)
    planned = workload(
        trace,
        requests=settings.requests,
        seed=settings.seed,
        vocabulary=shape.vocabulary,
        chunk=LIMITS.prefill_chunk,
        cancel_rate=settings.cancel_rate,
    )
    with open_device(settings.device) as device:
        weights = seeded_weights(
            shape,
            settings.seed,
            scopes=len(TENANTS),
            dtype=_DTYPES[settings.dtype],
            device=device.torch_device,
        )
        probe = exact_recipe(device, weights)
        memory = PagedMemory(device, shape, USABLE_PAGES + 1, weights.dtype)
        decoder = PagedDecoder(weights, memory, probe.recipe, slots=LIMITS.sequences, positions=POSITIONS)
        clock, config = Clock(), _ledger(planned)
        record = RunJournal(config, USABLE_PAGES + 1, PAGE_LENGTH, journal)
        control = Control(config, USABLE_PAGES + 1, PAGE_LENGTH, record, clock)
        loop = Loop(planned, device, decoder, control, clock, conduct or Conduct(), progress)
        evidence = loop.run()
        verdict = record.close()
        evidence += compared_with_oracle(weights, probe, loop.served)
        return ConformResult(
            settings=settings,
            trace=trace.name,
            attribution=trace.attribution,
            torch=torch.__version__,
            hardware=_hardware(device),
            exact=probe.exact,
            reason=probe.reason,
            recipe=probe.recipe.name,
            requests=len(planned),
            tokens=loop.clients.tokens,
            tally=loop.tally,
            evidence=evidence,
            journal_events=verdict.events,
            rows=len(verdict.rows),
            violations=(
                *map(str, verdict.findings),
                *control.not_conserved([each.key for each in planned]),
            ),
            seconds=time.perf_counter() - began,
        )


def _ledger(planned: Sequence[Planned]) -> LedgerConfig:
    """A ledger in tokens whose queues and budgets hold the whole run: this harness looks at memory."""
    tokens = USABLE_PAGES * PAGE_LENGTH
    limit = tokens * TENANT_SHARE[0] // TENANT_SHARE[1]
    budget = len(planned) * tokens
    terms = TenantConfig(limit=limit, budget=budget, queue_limit=len(planned))
    return LedgerConfig(POOL, tokens, dict.fromkeys(TENANTS, terms), RETENTION)


def _hardware(device: Device) -> str:
    if device.is_cuda:
        return torch.cuda.get_device_name(device.torch_device)
    return platform.processor() or platform.machine()
