"""The name of a page's place: its scope, every page before it, and its tokens, as a chain of SHA-256 digests.

A journal that gives the chain of a lookup instead of its tokens uses this definition. The first digest is taken over
the scope record, each field framed by its kind and length; each next one over the digest before it and the tokens
as signed 32-bit integers, least significant byte first.
"""

from collections.abc import Hashable
from functools import lru_cache
from hashlib import sha256
from struct import pack

from attrs import astuple

from kvescrow.spec.vocabulary import PrefixScope

_SCOPE_TAG = b"kvescrow prefix scope 1"


def place_after(parent: Hashable, scope: PrefixScope, tokens: tuple[int, ...]) -> bytes:
    """Return the digest of the page that follows the page with digest `parent` and holds `tokens`.

    A `parent` that is no digest stands before the first page of `scope`.
    """
    before = parent if isinstance(parent, bytes) else root_of(scope)
    return sha256(before + pack(f"<{len(tokens)}i", *tokens)).digest()


@lru_cache(maxsize=1024)
def root_of(scope: PrefixScope) -> bytes:
    """Return the digest that stands before the first page of `scope`."""
    return sha256(_SCOPE_TAG + _framed(astuple(scope, recurse=False))).digest()


def _framed(value: object) -> bytes:
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
            kind, body = b"t", b"".join(_framed(part) for part in value)
        case _:
            raise TypeError(f"a scope record has no field of type {type(value).__name__}")
    return kind + len(body).to_bytes(8, "big") + body
