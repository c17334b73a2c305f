"""A ledger in a PostgreSQL database, which several gateways on many machines share (SCA-1, SCA-2).

`PostgresLedger` decides and commits by the same functions as every store. `database` and `session` alone talk to
PostgreSQL; `schema` has the tables and their migrations, `statements` the queries.
"""

from kvescrow.spec.vocabulary import UserError

try:
    import psycopg as _psycopg  # noqa: F401  # only whether it is there
except ImportError as _error:
    raise UserError("a ledger in PostgreSQL needs psycopg 3: pip install 'kvescrow[postgres]'") from _error

from kvescrow.reference.ledger.postgres.ledger import PostgresLedger, drop

__all__ = ["PostgresLedger", "drop"]
