"""Request-level records of a conformance run: what each client was given, on the run's virtual clock.

The clock moves with launches, so times are synthetic; tokens are the device's. A grade can so compare the outputs of
two versions token by token, and take the memory's evidence as that of safety. A client whose worker was killed asks
again under a new name; that is the same request, from its first arrival on.
"""

import hashlib
from collections.abc import Collection, Sequence

from kvescrow.gpu_harness.conform.arrivals import again_of
from kvescrow.gpu_harness.conform.client import Clients
from kvescrow.gpu_harness.conform.result import ConformResult
from kvescrow.gpu_harness.conform.workload import Planned
from kvescrow.reference.grading.records import Ending, Evidence, RequestRecord, Run
from kvescrow.spec.vocabulary import Key

CLASS = "all"


def run_of(
    result: ConformResult, planned: Sequence[Planned], clients: Clients, keys: Collection[Key], *, ended: int
) -> Run:
    """Return the records of a run with these keys; `ended` is its last moment, in microseconds of virtual time."""
    findings = (*map(str, result.evidence.findings), *result.violations)
    records = tuple(_record(each, clients, _asked_last(each.key, keys), ended) for each in planned)
    return Run(
        f"conform on {result.hardware}",
        records,
        ended=max([ended, *(each.arrival for each in planned)]),
        offered=len(records),
        workload=f"{result.trace}, {len(records)} requests, seed {result.settings.seed}",
        synthetic=True,
        safety=Evidence(result.journal_events, findings, "evidence in memory, and the journal's check"),
        remarks=("times are virtual: they move with launches", f"{result.settings.shape}, {result.settings.dtype}"),
    )


def _asked_last(key: Key, keys: Collection[Key]) -> Key:
    """Return the name under which a client asked last."""
    while (again := again_of(key)) in keys:
        key = again
    return key


def _record(planned: Planned, clients: Clients, last: Key, ended: int) -> RequestRecord:
    given, cancelled = clients.given(last), clients.cancelled(last)
    arrival = planned.arrival
    if cancelled is not None:
        ending, over = Ending.CANCELLED, max([cancelled, *(time for time, _ in given)])
    elif len(given) == planned.output:
        ending, over = Ending.COMPLETED, given[-1][0]
    else:
        ending, over = Ending.FAILED, ended
    tokens = ",".join(str(token) for _, token in given)
    return RequestRecord(
        request=planned.key.request,
        tenant=planned.key.tenant,
        class_name=CLASS,
        arrival=arrival,
        ending=ending,
        reason="" if ending is not Ending.FAILED else "not all of its output was given",
        sent=arrival,
        frames=tuple((time, 1) for time, _ in given),
        ended=max(over, arrival),
        input_tokens=len(planned.prompt),
        output=hashlib.sha256(tokens.encode()).hexdigest() if ending is Ending.COMPLETED else "",
    )
