"""A ledger in Valkey or Redis, which several gateways share (SCA-1, SCA-2).

`ValkeyLedger` decides by the same functions as every store: it loads, decides, and keeps the change with one script
that refuses where anything has changed since. `KeyStore` is the only module that talks to the server.
"""

from kvescrow.spec.vocabulary import UserError

try:
    import valkey as _valkey  # noqa: F401  # only whether it is there
except ImportError as _error:
    raise UserError("a ledger in Valkey needs its client: pip install 'kvescrow[valkey]'") from _error

from kvescrow.reference.ledger.valkey.ledger import ValkeyLedger, drop

__all__ = ["ValkeyLedger", "drop"]
