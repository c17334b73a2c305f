"""Stop receipts and fence proofs: HMAC-SHA256 over framed fields, with keys that rotate (REC-1, LEA-4).

Every field is framed by its length, so that no two different receipts have the same bytes. The first frame says
what is signed: a fence proof can never pass for a receipt.
"""

import hashlib
import hmac
from collections.abc import Mapping

from attrs import evolve

from kvescrow.spec.vocabulary import Fence, Key, Receipt, UserError

LEAST_KEY_LENGTH = 16
"""Shortest key in bytes: 128 bits, the usual floor against guessing."""


class Keyring:
    """Keys by key id: one signs, all of them verify.

    To rotate, `rotate` to a new key everywhere, wait until no receipt under the old one is under way, then `retire`
    the old one. A gateway and the workers of its pool share a ring; it never leaves the trusted side.
    """

    def __init__(self, keys: Mapping[str, bytes], current: str) -> None:
        """Hold `keys`; `current` names the one that signs. Raises `UserError` where a key is short or missing."""
        for key_id, key in keys.items():
            _check_key(key_id, key)
        if current not in keys:
            raise UserError(f"keyring: current key {current!r} is not among the keys: add it, or name another")
        self._keys = dict(keys)
        self._current = current

    @property
    def current(self) -> str:
        """Id of the key that signs."""
        return self._current

    def rotate(self, key_id: str, key: bytes) -> None:
        """Add `key` and sign with it from now on. Raises `UserError` where it is short or its id is taken."""
        _check_key(key_id, key)
        if key_id in self._keys:
            raise UserError(f"keyring: key id {key_id!r} is in use: give the new key an id of its own")
        # A new dictionary, so that a thread that verifies meanwhile sees the old ring or the new one.
        self._keys = {**self._keys, key_id: key}
        self._current = key_id

    def retire(self, key_id: str) -> None:
        """Stop verifying under `key_id`. Raises `UserError` for the key that signs and for an unknown one."""
        if key_id == self._current:
            raise UserError(f"keyring: key {key_id!r} signs: rotate to another before retiring it")
        if key_id not in self._keys:
            raise UserError(f"keyring: there is no key {key_id!r} to retire")
        self._keys = {name: key for name, key in self._keys.items() if name != key_id}

    def sign(self, receipt: Receipt) -> Receipt:
        """Return `receipt` signed under the current key; the key id and signature it came with are replaced (REC-1)."""
        named = evolve(receipt, key_id=self._current)
        return evolve(named, mac=_signature(self._keys[self._current], _receipt_bytes(named)))

    def fence(self, pool: str, key: Key, owner: str) -> Fence:
        """Return the event that confirms the stop of `key`; its proof holds for all work of `owner` (LEA-4)."""
        proof = _signature(self._keys[self._current], _fence_bytes(pool, owner, self._current))
        return Fence(key=key, owner=owner, key_id=self._current, proof=proof)

    def vouches_for_receipt(self, receipt: Receipt, pool: str) -> bool:
        """Return whether `receipt` was signed under a key of this ring, for this pool, and is unaltered."""
        key = self._keys.get(receipt.key_id)
        if key is None or receipt.pool != pool:
            return False
        return hmac.compare_digest(_signature(key, _receipt_bytes(receipt)), receipt.mac)

    def vouches_for_fence(self, fence: Fence, pool: str) -> bool:
        """Return whether the proof says, under a key of this ring, that the owner is fenced off from this pool."""
        key = self._keys.get(fence.key_id)
        if key is None:
            return False
        return hmac.compare_digest(_signature(key, _fence_bytes(pool, fence.owner, fence.key_id)), fence.proof)


def _check_key(key_id: str, key: bytes) -> None:
    if not isinstance(key, bytes) or len(key) < LEAST_KEY_LENGTH:
        raise UserError(f"keyring: key {key_id!r} needs at least {LEAST_KEY_LENGTH} bytes of random data")


def _signature(key: bytes, content: bytes) -> bytes:
    return hmac.digest(key, content, hashlib.sha256)


def _receipt_bytes(receipt: Receipt) -> bytes:
    return _framed(
        "kvescrow stop receipt 1",
        receipt.pool,
        receipt.key.tenant,
        receipt.key.request,
        receipt.owner,
        str(receipt.generation),
        str(receipt.last_ticket),
        receipt.outcome.value,
        str(receipt.used),
        receipt.key_id,
    )


def _fence_bytes(pool: str, owner: str, key_id: str) -> bytes:
    return _framed("kvescrow fence proof 1", pool, owner, key_id)


def _framed(*fields: str) -> bytes:
    # A client's text may hold lone surrogates; it is signed as it is rather than failing here.
    encoded = [field.encode("utf-8", "surrogatepass") for field in fields]
    return b"".join(len(part).to_bytes(8, "big") + part for part in encoded)
