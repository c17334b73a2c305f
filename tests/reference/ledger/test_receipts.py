"""Receipts and fence proofs: what is not authentic changes nothing, and keys rotate (REC-1, LEA-4)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from attrs import evolve

from kvescrow.reference.ledger import Ledger, LedgerConfig, MemoryLedger
from kvescrow.reference.receipts import Keyring
from kvescrow.spec.vocabulary import (
    Cancel,
    Decision,
    Finish,
    Key,
    Reason,
    Receipt,
    Reserve,
    Start,
    StopOutcome,
    UserError,
)

KEY = Key("red", "work")
STATED = Receipt("pool", KEY, "worker", 1, 7, StopOutcome.COMPLETED, 40, "", b"")


@pytest.fixture
def ledger(config: LedgerConfig, keyring: Keyring) -> Ledger:
    """A ledger whose one reservation runs under generation 1."""
    ledger = MemoryLedger(config, keyring=keyring)
    ledger.submit(Reserve(KEY, 100, "digest", 10**12))
    ledger.submit(Start(KEY, 1, "worker"))
    return ledger


def refused_as_forged(ledger: Ledger, receipt: Receipt) -> bool:
    before = ledger.snapshot()
    reply = ledger.submit(Finish(receipt))
    assert ledger.snapshot() == before
    return (reply.decision, reply.reason) == (Decision.REFUSED, Reason.FORGED)


@pytest.mark.parametrize(
    "alter",
    [
        lambda r: evolve(r, pool="loop"),
        lambda r: evolve(r, key=Key("blue", "work")),
        lambda r: evolve(r, key=Key("red", "wor")),
        lambda r: evolve(r, owner="another"),
        lambda r: evolve(r, generation=2),
        lambda r: evolve(r, last_ticket=8),
        lambda r: evolve(r, outcome=StopOutcome.FAILED),
        lambda r: evolve(r, used=0),
        lambda r: evolve(r, key_id="unknown"),
        lambda r: evolve(r, mac=b""),
        lambda r: evolve(r, mac=r.mac[:-1]),
        lambda r: evolve(r, mac=r.mac + b"\0"),
        lambda r: evolve(r, mac=bytes([r.mac[0] ^ 1]) + r.mac[1:]),
    ],
)
def test_an_altered_receipt_is_forged(ledger: Ledger, keyring: Keyring, alter: Callable[[Receipt], Receipt]) -> None:
    genuine = keyring.sign(STATED)
    assert refused_as_forged(ledger, alter(genuine))
    assert ledger.submit(Finish(genuine)).decision is Decision.RELEASED


def test_a_receipt_for_another_pool_is_forged_though_its_signature_holds(ledger: Ledger, keyring: Keyring) -> None:
    assert refused_as_forged(ledger, keyring.sign(evolve(STATED, pool="loop")))


def test_a_receipt_under_another_ring_is_forged(ledger: Ledger) -> None:
    stranger = Keyring({"first": b"thirty-two bytes of another key."}, "first")
    assert refused_as_forged(ledger, stranger.sign(STATED))


def test_a_ledger_without_keys_believes_nobody(config: LedgerConfig, keyring: Keyring) -> None:
    assert refused_as_forged(MemoryLedger(config), keyring.sign(STATED))


def test_fields_are_framed() -> None:
    """Two receipts that read the same when joined must not share a signature."""
    ring = Keyring({"k": bytes(16)}, "k")
    joined = [
        ring.sign(evolve(STATED, key=Key("org_1", "2345"))),
        ring.sign(evolve(STATED, key=Key("org_12345", ""))),
    ]
    assert joined[0].mac != joined[1].mac


def test_keys_rotate_while_receipts_are_under_way(ledger: Ledger, keyring: Keyring) -> None:
    under_way = keyring.sign(STATED)
    keyring.rotate("second", b"the second key has also 32 bytes")
    assert keyring.sign(STATED).key_id == "second"
    assert ledger.submit(Finish(under_way)).decision is Decision.RELEASED
    assert ledger.submit(Finish(keyring.sign(STATED))).decision is Decision.RECORDED
    keyring.retire("first")
    assert refused_as_forged(ledger, under_way)


def test_a_proof_names_the_owner_that_is_gone(ledger: Ledger, keyring: Keyring) -> None:
    def reason(fence: object) -> Reason:
        return ledger.submit(fence).reason  # type: ignore[arg-type]  # the fixtures below are fences

    proof = keyring.fence("pool", KEY, "worker")
    assert reason(keyring.fence("pool", KEY, "another")) is Reason.NOT_OWNER
    assert reason(evolve(keyring.fence("pool", KEY, "another"), owner="worker")) is Reason.FORGED
    assert reason(keyring.fence("loop", KEY, "worker")) is Reason.FORGED
    assert reason(evolve(proof, key_id="unknown")) is Reason.FORGED
    assert reason(evolve(proof, proof=keyring.sign(STATED).mac)) is Reason.FORGED
    assert reason(proof) is Reason.OWNER_FENCED


def test_text_that_no_encoding_takes_is_signed_as_it_is(ledger: Ledger, keyring: Keyring) -> None:
    odd = keyring.sign(evolve(STATED, owner="\ud800"))
    assert ledger.submit(Finish(odd)).reason is Reason.NOT_OWNER
    assert ledger.submit(Cancel(KEY, 1)).decision is Decision.ACCEPTED


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda: Keyring({"short": b"x" * 15}, "short"), "'short' needs at least 16 bytes"),
        (lambda: Keyring({"first": bytes(16)}, "second"), "'second' is not among the keys"),
        (lambda: Keyring({"first": bytes(16)}, "first").rotate("first", bytes(16)), "'first' is in use"),
        (lambda: Keyring({"first": bytes(16)}, "first").rotate("new", b""), "'new' needs at least"),
        (lambda: Keyring({"first": bytes(16)}, "first").retire("first"), "rotate to another before"),
        (lambda: Keyring({"first": bytes(16)}, "first").retire("other"), "no key 'other'"),
    ],
)
def test_a_ring_that_cannot_work_is_refused(make: Callable[[], object], names: str) -> None:
    with pytest.raises(UserError, match=names):
        make()
