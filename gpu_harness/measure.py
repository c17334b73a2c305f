"""Step times of the decoder and the share of its evidence, on this machine.

python gpu_harness/measure.py --device cpu --shape small --batches 8,32
"""

import argparse
import runpy
import statistics
import sys
from pathlib import Path

import torch
from attrs import frozen

if not __package__:
    runpy.run_path(str(Path(__file__).with_name("checkout.py")))["enable"]()

from kvescrow.gpu_harness.arithmetic import Recipe
from kvescrow.gpu_harness.decoder import PagedDecoder, StepResult
from kvescrow.gpu_harness.device import Device, open_device
from kvescrow.gpu_harness.inspection import Inspector
from kvescrow.gpu_harness.model import SHAPES, ModelWeights, named_shape, seeded_weights
from kvescrow.gpu_harness.pages import PAGE_LENGTH, PageClaim, PagedMemory
from kvescrow.gpu_harness.plan import Segment, StepBatch, plan_step
from kvescrow.gpu_harness.probe import ProbeResult, exact_recipe
from kvescrow.gpu_harness.streams import HardwareAbsent
from kvescrow.spec.vocabulary import UserError

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def main(arguments: list[str]) -> int:
    """Parse, probe, measure, print. Status 1 if the probe finds the device not exact, 2 for a user's
    mistake.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
    parser.add_argument("--shape", default="tiny", help=", ".join(SHAPES))
    parser.add_argument("--dtype", default="float32", choices=DTYPES)
    parser.add_argument("--batches", default="8,32", help="decode rows per step, separated by commas")
    parser.add_argument("--context", type=int, default=128, help="prompt tokens of each request")
    parser.add_argument("--steps", type=int, default=32, help="decode steps timed for each batch")
    options = parser.parse_args(arguments)
    try:
        shape = named_shape(options.shape)
        batches = [int(size) for size in options.batches.split(",")]
        with open_device(options.device) as device:
            weights = seeded_weights(shape, 1, dtype=DTYPES[options.dtype], device=device.torch_device)
            probe = exact_recipe(device, weights)
            print(f"{options.device} {options.shape} {options.dtype}: {_verdict(probe)}", flush=True)
            bench = _Bench(device, weights, probe.recipe, options.context, options.steps)
            for rows in batches:
                print(bench.measured(rows), flush=True)
    except (UserError, HardwareAbsent, ValueError) as mistake:
        print(f"measure: {mistake}", file=sys.stderr)
        return 2
    return 0 if probe.exact else 1


def _verdict(probe: ProbeResult) -> str:
    return f"exact with {probe.recipe.name}" if probe.exact else f"NOT exact: {probe.reason}"


@frozen
class _Bench:
    """What stays the same over batch sizes: `context` prompt tokens of each request, then `steps` decode
    steps.
    """

    device: Device
    weights: ModelWeights
    recipe: Recipe
    context: int
    steps: int

    def measured(self, rows: int) -> str:
        """One line about decode steps of `rows` requests, each prefilled alone before."""
        pages = -(-(self.context + self.steps) // PAGE_LENGTH)
        memory = PagedMemory(self.device, self.weights.shape, 1 + rows * pages, self.weights.dtype)
        decoder = PagedDecoder(self.weights, memory, self.recipe, slots=rows, positions=self.context + self.steps)
        stream, requests = self.device.decode, list(range(rows))
        claims = [
            memory.grant(stream, range(1 + i * pages, 1 + (i + 1) * pages), owner=i, scope=0, first_index=0).claims
            for i in requests
        ]
        prompt = tuple(place % self.weights.shape.vocabulary for place in range(self.context))
        prefill = [decoder.launch(stream, _batch(i, [i], 0, prompt, claims)) for i in requests]
        decode = [
            decoder.launch(stream, _batch(rows + n, requests, self.context + n, None, claims))
            for n in range(self.steps)
        ]
        results = [launched.wait(600_000_000) for launched in (*prefill, *decode)]
        findings = sum(sum(result.evidence.counts.values()) for result in results)
        step = statistics.median(launched.elapsed_microseconds() for launched in decode)
        chunk = statistics.median(launched.elapsed_microseconds() for launched in prefill)
        evidence = self._evidence_microseconds(memory, results[-1])
        return (
            f"  decode {rows} rows: {step / 1000:.2f} ms a step, {rows / step * 1e6:.0f} tokens/s; "
            f"evidence {evidence:.0f} us ({100 * evidence / step:.2f} %); "
            f"prefill of {self.context}: {chunk / 1000:.2f} ms; findings {findings}"
        )

    def _evidence_microseconds(self, memory: PagedMemory, last: StepResult) -> float:
        """Median time of the stamp, canary and NaN checks of a step alone."""
        inspector = Inspector(memory)
        plan = plan_step(last.batch, self.recipe, self.device.upload)
        logits = last.logits.to(self.device.torch_device)
        self.device.synchronize()

        def work() -> None:
            inspector.after(plan, inspector.before(plan, last.batch.ticket), logits)

        launched = [self.device.decode.submit(work) for _ in range(50)]
        self.device.synchronize()
        return statistics.median(one.elapsed_microseconds() for one in launched)


def _batch(
    ticket: int,
    requests: list[int],
    start: int,
    tokens: tuple[int, ...] | None,
    claims: list[tuple[PageClaim, ...]],
) -> StepBatch:
    return StepBatch(ticket, [Segment(i, 0, i, start, tokens, claims[i]) for i in requests])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
