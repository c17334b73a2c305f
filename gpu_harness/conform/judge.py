"""What was sampled, compared with an independent decode of each request alone (CON-2)."""

from collections.abc import Sequence

import torch

from kvescrow.gpu_harness.conform.serving import Serving
from kvescrow.gpu_harness.conform.settings import POSITIONS
from kvescrow.gpu_harness.evidence import NOTHING, Evidence, EvidenceKind
from kvescrow.gpu_harness.model import ModelWeights
from kvescrow.gpu_harness.oracle import DenseOracle, compare_with_oracle
from kvescrow.gpu_harness.probe import ProbeResult

ORACLE_CHUNK = 64
"""Prompt tokens that the oracle reads at once; another number than the worker's, so that no chunking is shared."""


def compared_with_oracle(weights: ModelWeights, probe: ProbeResult, served: Sequence[Serving]) -> Evidence:
    """TOKENS_DIFFER and LOGITS_DIFFER over every token that was sampled, those of cancelled requests included.

    Logits count only where `probe` says that the device is exact; elsewhere their bits depend on the batch.
    """
    evidence = NOTHING
    for serving in served:
        if not serving.tokens:
            continue
        oracle = DenseOracle(weights, probe.recipe, serving.planned.scope, POSITIONS)
        run = oracle.run(serving.planned.prompt, len(serving.tokens), chunk=ORACLE_CHUNK)
        evidence += compare_with_oracle(serving.generation, serving.tokens, torch.stack(serving.logits), run)
    return evidence if probe.exact else _without(evidence, EvidenceKind.LOGITS_DIFFER)


def _without(evidence: Evidence, kind: EvidenceKind) -> Evidence:
    counts = {each: number for each, number in evidence.counts.items() if each is not kind}
    return Evidence(counts, tuple(finding for finding in evidence.findings if finding.kind is not kind))
