"""What was sampled and written, compared with an independent decode of each request alone (CON-2)."""

from collections.abc import Sequence

import torch

from kvescrow.gpu_harness.conform.platform import Platform
from kvescrow.gpu_harness.conform.serving import Serving
from kvescrow.gpu_harness.conform.workload import OWNERS
from kvescrow.gpu_harness.evidence import NOTHING, Evidence, EvidenceKind, Finding, from_findings
from kvescrow.gpu_harness.oracle import OracleRun, compare_with_oracle
from kvescrow.gpu_harness.pages import PAGE_LENGTH

_OF_BITS = frozenset({EvidenceKind.LOGITS_DIFFER, EvidenceKind.PAGE_DIFFERS})


def compared_with_oracle(platform: Platform, served: Sequence[Serving]) -> Evidence:
    """TOKENS_DIFFER and LOGITS_DIFFER over every token that was sampled, those of cancelled requests included, and
    PAGE_DIFFERS over the whole pages of completed ones.

    Fast arithmetic is compared with nothing. Logits and pages count only where the probe says that the device is exact;
    elsewhere their bits depend on the batch.
    """
    evidence = NOTHING
    if platform.probe.recipe.fused:
        return evidence
    for serving in served:
        if not serving.tokens:
            continue
        epoch = serving.scope // len(OWNERS)
        run = platform.decoded(serving.scope, epoch, serving.planned.prompt, len(serving.tokens))
        evidence += compare_with_oracle(serving.generation, serving.tokens, torch.stack(serving.logits), run)
        evidence += _pages(serving, run)
    return evidence if platform.probe.exact else _without_bits(evidence)


def _pages(serving: Serving, run: OracleRun) -> Evidence:
    if serving.sums is None:
        return NOTHING
    sums = serving.sums.result()
    # The last token that was sampled is not in the cache yet; the oracle may have decoded further than the request.
    whole = zip((claim.page for claim in serving.claims[: serving.position // PAGE_LENGTH]), run.sums, strict=False)
    return from_findings(
        Finding(
            EvidenceKind.PAGE_DIFFERS, page, serving.generation, -1, f"place {place}: {hex(wanted)}", hex(sums[page])
        )
        for place, (page, wanted) in enumerate(whole)
        if sums[page] != wanted
    )


def _without_bits(evidence: Evidence) -> Evidence:
    counts = {kind: number for kind, number in evidence.counts.items() if kind not in _OF_BITS}
    return Evidence(counts, tuple(finding for finding in evidence.findings if finding.kind not in _OF_BITS))
