"""The digest of a page's place: its scope, every page before it, and its tokens (SCO-1, SCO-2).

A place is named by a chain of SHA-256 digests that starts with the scope record. Each field of the record is framed
by its kind and its length, since joined fields collide; page digests need no frame, since a parent digest has 32
bytes and a token has 4. A digest finds a page; whether it matches is decided by comparing the tokens themselves.
"""

from array import array
from collections.abc import Callable, Sequence
from hashlib import sha256

from attrs import astuple

from kvescrow.spec.vocabulary import PrefixScope, UserError

TOKEN_BYTES = array("i").itemsize
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


def packed(tokens: Sequence[int]) -> bytes:
    """Return `tokens` as signed 32-bit integers in the machine's byte order.

    Raises UserError where a token is no such integer.
    """
    try:
        return array("i", tokens).tobytes()
    except (OverflowError, TypeError) as error:
        raise UserError(f"tokens: each must be an integer of 32 bits ({error})") from error


def unpacked(tokens: bytes) -> tuple[int, ...]:
    """Return the tokens that `packed` was given."""
    return tuple(array("i", tokens))
