"""Public simulators of serving on the same trace: what they take, or why they cannot be run.

Installed from PyPI and run as they are. A simulator decides who runs next and how long a step takes; it keeps no
ledger, checks no invariant and writes no journal.
"""

from collections.abc import Callable, Mapping
from time import process_time

from attrs import frozen

from kvescrow.checks.targets.own_replay import repeated

SCHED_SIM = "sched-sim"
POOL_TOKENS = 524_288
"""As many as the replay's pool has."""
TOKEN_BUDGET = 2_048
"""Prompt tokens a step, as in the replay."""


@frozen
class Simulated:
    """One run of a simulator."""

    requests: int
    completed: int
    span: int
    """Virtual time in microseconds."""
    steps: int
    seconds: float
    """Of one processor."""


@frozen
class NotRun:
    """Why a simulator was not run."""

    reason: str


def sched_sim(requests: int) -> Simulated | NotRun:
    """Run the chunked-prefill scheduler of sched-sim, with a pool and a cost of about the replay's defaults.

    Its accelerator is chosen so that a step takes 5 ms, a prompt token 10 microseconds more and a context token 10 ns.
    Prefix caching is left off: it would need every prompt as a list of tokens.
    """
    try:
        from sched_sim.core.event_engine import Simulator
        from sched_sim.core.request import Request
        from sched_sim.hardware.profile import HardwareProfile
        from sched_sim.schedulers.factory import create_scheduler
    except ImportError as error:
        return NotRun(f"{SCHED_SIM} is not installed ({error}): install kvescrow[peers]")
    hardware = HardwareProfile(
        name="synthetic",
        vram_gb=77.76,
        memory_bandwidth_gb_s=8_000,
        fp16_tflops=4_000,
        tensor_core_efficiency=1.0,
        kernel_launch_overhead_ms=0.0,
        parameter_count_billions=20,
        num_layers=20,
        num_kv_heads=8,
        head_dim=128,
    )
    scheduler = create_scheduler("chunked", hardware, token_budget=TOKEN_BUDGET)
    simulator = Simulator(hardware, scheduler)
    simulator.submit_workload(
        [
            Request(
                request_id=each.request,
                arrived_at=each.arrival / 1_000_000,
                prompt_tokens=each.input_tokens,
                output_tokens=each.output_tokens,
            )
            for each in repeated(requests).requests
        ]
    )
    began = process_time()
    found = simulator.run()
    seconds = process_time() - began
    span = round(simulator.current_time * 1_000_000)
    return Simulated(requests, found.completed_requests, span, found.total_iterations, seconds)


def vidur(requests: int) -> Simulated | NotRun:
    """Vidur predicts the times of steps from profiles that it downloads when it starts."""
    return NotRun(
        "vidur 0.0.26 installs, but reads the profiles of its models from the Hugging Face hub when it starts, and a "
        "run must not depend on that"
    )


SIMULATORS: Mapping[str, Callable[[int], Simulated | NotRun]] = {SCHED_SIM: sched_sim, "vidur": vidur}
"""By name. Others that were looked at have no package (LLMServingSim, inference-sim), or none for Python."""
