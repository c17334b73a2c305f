"""Reuse of a page under a launched step: certain with a gate, and seen by memory and by the tickets (PAG-4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvescrow.gpu_harness.evidence import NOTHING, EvidenceKind
from kvescrow.gpu_harness.plan import StepBatch
from kvescrow.gpu_harness.tickets import TicketWatch

if TYPE_CHECKING:
    from tests.gpu_harness.conftest import Rig

PROMPT = list(range(40))


def start(rig: Rig) -> tuple[StepBatch, list[int]]:
    """A request after its prefill: its next step, and its pages."""
    request = rig.admit(1, PROMPT, 4)
    segment = request.next_segment(1000)
    rig.take([request], [segment], rig.step(segment))
    return StepBatch(90, [request.next_segment(1)]), [claim.page for claim in request.claims]


def test_a_page_reused_under_a_launched_step_is_seen(rig: Rig) -> None:
    batch, pages = start(rig)
    watch, gate = TicketWatch(), rig.device.gate()
    gate.hold(rig.device.decode)
    victim = rig.decoder.launch(rig.device.decode, batch)
    watch.launched(batch.ticket, batch.pages, victim.event)
    rig.memory.reclaim(rig.device.prefill, pages[:1]).wait()
    early = watch.granted(pages[:1], request=2)
    rig.memory.grant(rig.device.prefill, pages[:1], owner=2, scope=1, first_index=0).evidence.wait()
    assert gate.holding()
    gate.open()
    seen = victim.wait().evidence
    assert dict(early.counts) == {EvidenceKind.GRANT_BEFORE_TICKET_DONE: 1}
    assert (early.findings[0].page, early.findings[0].ticket) == (pages[0], 90)
    assert dict(seen.counts) == {
        EvidenceKind.GENERATION_MISMATCH: 1,
        EvidenceKind.OWNER_MISMATCH: 1,
        EvidenceKind.SCOPE_MISMATCH: 1,
        EvidenceKind.POISON_READ: 1,
        EvidenceKind.NAN_LOGITS: 1,
    }


def test_reuse_on_the_same_stream_leaves_no_trace_in_memory_and_the_tickets_see_it(rig: Rig) -> None:
    batch, pages = start(rig)
    watch, gate = TicketWatch(), rig.device.gate()
    gate.hold(rig.device.decode)
    victim = rig.decoder.launch(rig.device.decode, batch)
    watch.launched(batch.ticket, batch.pages, victim.event)
    rig.memory.reclaim(rig.device.decode, pages[:1])
    early = watch.granted(pages[:1], request=2)
    grant = rig.memory.grant(rig.device.decode, pages[:1], owner=2, scope=1, first_index=0)
    assert gate.holding()
    gate.open()
    assert victim.wait().evidence == NOTHING
    assert grant.evidence.wait() == NOTHING
    assert early.kinds == {EvidenceKind.GRANT_BEFORE_TICKET_DONE}


def test_reuse_after_the_ticket_is_done_is_no_evidence(rig: Rig) -> None:
    batch, pages = start(rig)
    watch = TicketWatch()
    victim = rig.decoder.launch(rig.device.decode, batch)
    watch.launched(batch.ticket, batch.pages, victim.event)
    assert victim.wait().evidence == NOTHING
    scrub = rig.memory.reclaim(rig.device.prefill, pages)
    rig.device.decode.wait(scrub.event)
    assert watch.granted(pages, request=2) == NOTHING
    grant = rig.memory.grant(rig.device.decode, pages, owner=2, scope=1, first_index=0)
    assert grant.evidence.wait() == NOTHING


def test_a_grant_that_does_not_wait_for_the_scrub_is_seen(rig: Rig) -> None:
    _, pages = start(rig)
    gate = rig.device.gate()
    gate.hold(rig.device.prefill)
    rig.memory.reclaim(rig.device.prefill, pages[:1])
    grant = rig.memory.grant(rig.device.decode, pages[:1], owner=2, scope=1, first_index=0)
    assert dict(grant.evidence.wait().counts) == {EvidenceKind.CANARY_BROKEN: 1}
    gate.open()
    rig.device.synchronize()


def test_a_ticket_watch_forgets_what_is_done(rig: Rig) -> None:
    watch, gate = TicketWatch(), rig.device.gate()
    watch.launched(1, [4, 5], rig.device.prefill.submit(lambda: None).event)
    rig.device.prefill.synchronize()
    gate.hold(rig.device.decode)
    watch.launched(2, [5], rig.device.decode.record())
    assert watch.in_flight(4) == ()
    assert watch.in_flight(5) == (2,)
    assert watch.in_flight(6) == ()
    gate.open()
    rig.device.synchronize()
    assert watch.in_flight(5) == ()
