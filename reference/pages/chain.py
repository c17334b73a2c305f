"""The digest of a page's place: its scope, every page before it, and its tokens (SCO-1, SCO-2).

A place is named by a chain of SHA-256 digests that starts with the scope record. Each field of the record is framed
by its kind and its length, since joined fields collide; page digests need no frame, since a parent digest has 32
bytes and a token has 4. A digest finds a page; whether it matches is decided by comparing the tokens themselves.
"""

import struct
from collections.abc import Callable, Sequence
from hashlib import sha256

from attrs import astuple, frozen

from kvescrow.spec.vocabulary import PrefixScope, UserError

TOKEN_BYTES = 4
_SCOPE_TAG = b"kvescrow prefix scope 1"

Digest = Callable[[bytes, bytes], bytes]
"""(digest of the page before, packed tokens of this page) -> digest of this page."""


def chain_digest(parent: bytes, tokens: bytes) -> bytes:
    """Return the 32-byte digest of a page that follows `parent` and holds the packed `tokens`."""
    return sha256(parent + tokens).digest()


def root_digest(scope: PrefixScope) -> bytes:
    """Return the 32-byte digest that stands before the first page of `scope`."""
    return sha256(_SCOPE_TAG + _frame(astuple(scope, recurse=False))).digest()


def _frame(value: object) -> bytes:
    match value:
        case None:
            kind, body = b"n", b""
        case bool():
            kind, body = b"b", b"\1" if value else b"\0"
        case int():
            kind, body = b"i", str(value).encode("ascii")
        case str():
            kind, body = b"s", value.encode("utf-8", "surrogatepass")
        case tuple():
            kind, body = b"t", b"".join(_frame(part) for part in value)
        case _:
            raise UserError(f"prefix scope: {value!r} is not text, a number, a flag or a tuple of these")
    return kind + len(body).to_bytes(8, "big") + body


@frozen
class PackedTokens:
    """A sequence of tokens as the pool compares and hashes them; made by `pack`, and good for any call."""

    data: bytes

    def __len__(self) -> int:
        return len(self.data) // TOKEN_BYTES


Tokens = Sequence[int] | PackedTokens
"""Tokens as they come, or packed once for several calls."""


def pack(tokens: Sequence[int]) -> PackedTokens:
    """Return `tokens` as signed little-endian integers of 32 bits.

    Raises UserError where a token is no such integer.
    """
    try:
        return PackedTokens(struct.pack(f"<{len(tokens)}i", *tokens))
    except struct.error as error:
        raise UserError(f"tokens: each must be an integer of 32 bits ({error})") from error


def packed(tokens: Tokens) -> bytes:
    """Return the bytes of `tokens`. Raises UserError where a token is no integer of 32 bits."""
    return tokens.data if isinstance(tokens, PackedTokens) else pack(tokens).data


def unpacked(tokens: bytes) -> tuple[int, ...]:
    """Return the tokens whose bytes these are."""
    return struct.unpack(f"<{len(tokens) // TOKEN_BYTES}i", tokens)
