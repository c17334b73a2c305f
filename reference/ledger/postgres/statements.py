"""The statements of a ledger in PostgreSQL, written for one schema.

Rows travel as one JSON array: one parameter, however many events a transaction carries, so that one plan serves all.
"""

import re
from collections.abc import Sequence

from attrs import frozen

from kvescrow.reference.ledger import rows
from kvescrow.reference.ledger.postgres.schema import CHARGED
from kvescrow.spec.vocabulary import UserError

POOL_COLUMNS = (*rows.POOL_COLUMNS, "epoch", "writer", "recovering")
VERSION = "pool.xmin::text"
"""The transaction that wrote the pool's row: the server's own version of it, which no writer can forget to raise."""
RESERVATION_COLUMNS = (*rows.RESERVATION_COLUMNS, "due")

_NOW = "floor(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
"""The server's clock in microseconds; unlike `now()` it goes on within a transaction."""
_BOUND = "set_config('transaction_timeout', %(longest)s::text, true)"
"""Lets the server end the transaction after that many milliseconds, whoever stopped meanwhile."""
_NAMES = "SELECT json_array_elements_text(%(names)s::json)"


def quoted(schema: str) -> str:
    """Return `schema` as an SQL identifier; raise `UserError` where its name would need escaping."""
    if not re.fullmatch(r"[a-z_][a-z0-9_]*", schema):
        raise UserError(f"schema {schema!r}: name it with small letters, digits and underscores")
    return f'"{schema}"'


def _names(columns: Sequence[str], prefix: str = "") -> str:
    return ", ".join(prefix + column for column in columns)


def _taken(columns: Sequence[str], source: str, but: Sequence[str]) -> str:
    return ", ".join(f"{column} = {source}.{column}" for column in columns if column not in but)


@frozen
class Statements:
    """SQL text with psycopg's parameters."""

    lock: str
    """Lock the accounts called %(names)s by name, then the pool; return the pool, the accounts as JSON, the pool's
    version, the server's clock. From then on the server ends the transaction after %(longest)s milliseconds."""
    lock_pool: str
    """Lock and read the pool alone."""
    concerned: str
    """Read what the events on %(keys)s of the tenants %(names)s may look at."""
    tenants: str
    """Read the accounts called %s."""
    save: str
    """Write one group of changes; return the pool's version."""
    save_standing: str
    """Lock as `lock` does and write one group of changes, if the pool's version is %(version)s and its last change
    %(last)s by %(last_writer)s in %(epoch)s, none of %(absent)s is there, and the server's clock shows %(now)s or at
    most %(stalest)s microseconds more, unless %(now)s is null; return the pool's version and the clock, and no row
    where nothing was written."""
    all_tenants: str
    all_reservations: str
    read_pool: str
    lock_tenants: str
    """Lock and read the accounts called %s, in the order of their names."""
    queue: str
    due: str
    """Read the keys whose time limit has passed at %s, or at the server's clock where that is null."""
    now: str
    entries: str
    """Read the changes above %s."""
    touch_pool: str
    """Give the pool's row a new version."""
    writer_of: str
    """Read who wrote the change %s."""
    last_change: str
    add_tenant: str
    set_queue_limit: str
    set_retention: str
    keep_clock: str
    recover: str
    """Grant nothing from now on; %s is the number of a change that may be missing."""
    recovered: str
    """Grant again. No more lives and generations were drawn in what is missing than there were changes."""


def statements(schema: str) -> Statements:
    """Return the statements for `schema`."""
    s = quoted(schema)
    tenant = _names(rows.TENANT_COLUMNS)
    reservation = _names(rows.RESERVATION_COLUMNS, "r.")
    pool = _names(POOL_COLUMNS)
    return Statements(
        lock=_lock(s, tenant, pool),
        lock_pool=f"SELECT {pool} FROM {s}.pool FOR NO KEY UPDATE",
        concerned=_concerned(s, reservation),
        tenants=f"SELECT {tenant} FROM {s}.tenant WHERE name = ANY(%s)",
        save=_save(s),
        save_standing=_save_standing(s),
        all_tenants=f"SELECT {tenant} FROM {s}.tenant ORDER BY name",
        all_reservations=f"SELECT {reservation} FROM {s}.reservation r ORDER BY place",
        read_pool=f"SELECT {pool} FROM {s}.pool",
        lock_tenants=f"SELECT {tenant} FROM {s}.tenant WHERE name = ANY(%s) ORDER BY name FOR NO KEY UPDATE",
        queue=f"SELECT tenant, request FROM {s}.reservation WHERE place > 0 ORDER BY place",
        due=(
            f"SELECT r.tenant, r.request, r.state FROM {s}.reservation r, {s}.pool p "
            f"WHERE r.due <= greatest(p.clock, %s::bigint) ORDER BY r.due, r.life"
        ),
        now=f"SELECT {_NOW}",
        entries=f"SELECT seq, now, event, reply FROM {s}.journal WHERE seq > %s ORDER BY seq",
        touch_pool=f"UPDATE {s}.pool SET seq = seq",
        writer_of=f"SELECT writer FROM {s}.journal WHERE seq = %s",
        last_change=f"SELECT coalesce(max(seq), 0) FROM {s}.journal",
        add_tenant=(
            f"INSERT INTO {s}.tenant ({tenant}) VALUES ({', '.join('%s' for _ in rows.TENANT_COLUMNS)}) "
            "ON CONFLICT (name) DO NOTHING"
        ),
        set_queue_limit=f"UPDATE {s}.tenant SET queue_limit = %s WHERE name = %s",
        set_retention=f"UPDATE {s}.pool SET retention = %s",
        keep_clock=f"UPDATE {s}.pool SET clock = greatest(clock, %s)",
        recover=f"UPDATE {s}.pool SET recovering = true, witnessed = greatest(witnessed, %s)",
        recovered=(
            f"UPDATE {s}.pool SET recovering = false, epoch = epoch + 1, witnessed = 0, "
            "next_life = next_life + witnessed, next_generation = next_generation + witnessed WHERE recovering"
        ),
    )


def _lock(s: str, tenant: str, pool: str) -> str:
    """One statement, so that no gateway can stop half-way and hold a lock for ever.

    The pool's row is locked after it was joined with the accounts, hence last. What stands in the outer query is
    evaluated after that lock was got.
    """
    return (
        f"WITH {_accounts(s, tenant)}, "
        "taken AS MATERIALIZED (SELECT coalesce(json_agg(account), '[]') AS accounts FROM account), "
        f"locked AS MATERIALIZED (SELECT {pool}, {VERSION} AS version, taken.accounts FROM {s}.pool, taken "
        "FOR NO KEY UPDATE OF pool) "
        f"SELECT {pool}, accounts, version, {_NOW}, {_BOUND} FROM locked"
    )


def _accounts(s: str, columns: str) -> str:
    return (
        f"account AS MATERIALIZED (SELECT {columns} FROM {s}.tenant WHERE name = ANY(ARRAY({_NAMES})) "
        "ORDER BY name FOR NO KEY UPDATE)"
    )


def _concerned(s: str, reservation: str) -> str:
    """The records of the keys, the queue, and the live work that must be over first, for pool and tenants.

    The last two decide hints alone (VIS-1). The keys are left out there: what becomes of them is known first-hand. They
    are sought by `NOT IN`, for which the server makes a hash table, since a group may have the very work that is first.
    """
    asked = "SELECT * FROM json_to_recordset(%(keys)s::json) AS k (tenant text, request text)"
    other = "(r.tenant, r.request) NOT IN (SELECT tenant, request FROM asked)"
    soonest = f"{CHARGED} AND {other} ORDER BY r.deadline LIMIT 1"
    return (
        f"WITH asked AS MATERIALIZED ({asked}) "
        f"(SELECT {reservation} FROM asked JOIN {s}.reservation r USING (tenant, request)) "
        f"UNION ALL (SELECT {reservation} FROM {s}.reservation r WHERE place > 0) "
        f"UNION ALL (SELECT {reservation} FROM {s}.reservation r WHERE {soonest}) "
        f"UNION ALL (SELECT {reservation} FROM ({_NAMES}) AS n (name) CROSS JOIN LATERAL "
        f"(SELECT * FROM {s}.reservation r WHERE r.tenant = n.name AND {soonest}) r)"
    )


def _save(s: str) -> str:
    return f"WITH {_changes(s)} {_save_pool(s)} RETURNING {VERSION}"


def _save_standing(s: str) -> str:
    """The same under the conditions on which it was decided, all of them looked at after the locks were got.

    Where another session changed the pool's row meanwhile, the server looks at the version anew. Where none did,
    nothing else has changed either, since whoever changes anything changes the pool.
    """
    there = (
        f"SELECT FROM json_to_recordset(%(absent)s::json) AS k (tenant text, request text) "
        f"JOIN {s}.reservation r USING (tenant, request)"
    )
    return (
        f"WITH {_accounts(s, 'name')}, "
        "taken AS MATERIALIZED (SELECT count(*) FROM account), "
        f"locked AS MATERIALIZED (SELECT pool.id FROM {s}.pool, taken WHERE {VERSION} = %(version)s "
        "AND seq = %(last)s AND writer = %(last_writer)s AND epoch = %(epoch)s FOR NO KEY UPDATE OF pool), "
        f"clock AS MATERIALIZED (SELECT {_NOW} AS now, {_BOUND} AS bound FROM locked), "
        f"fit AS MATERIALIZED (SELECT now, bound FROM clock WHERE NOT EXISTS ({there}) "
        "AND (%(now)s::bigint IS NULL OR now BETWEEN %(now)s::bigint AND %(now)s::bigint + %(stalest)s)), "
        f"{_changes(s, ', fit')} {_save_pool(s, ' FROM fit')} RETURNING {VERSION}, fit.now, fit.bound"
    )


def _changes(s: str, condition: str = "") -> str:
    """Everything but the pool's row; `condition` joins a table with one row where it is to be written."""
    columns = _names(RESERVATION_COLUMNS)
    return (
        f"change AS (INSERT INTO {s}.journal (seq, now, event, reply, writer) "
        "SELECT c.seq, c.now, c.event, c.reply, %(writer)s FROM json_to_recordset(%(changes)s::json) "
        f"AS c (seq bigint, now bigint, event text, reply text){condition}), "
        f"kept AS (INSERT INTO {s}.reservation ({columns}) "
        f"SELECT {_names(RESERVATION_COLUMNS, 'r.')} "
        f"FROM json_populate_recordset(NULL::{s}.reservation, %(kept)s::json) r{condition} "
        "ON CONFLICT (tenant, request) DO UPDATE SET "
        f"{_taken(RESERVATION_COLUMNS, 'excluded', ('tenant', 'request'))}), "
        f"altered AS (UPDATE {s}.reservation t SET {_taken(RESERVATION_COLUMNS, 'r', rows.BOUND_COLUMNS)} "
        f"FROM json_populate_recordset(NULL::{s}.reservation, %(altered)s::json) r{condition} "
        "WHERE t.tenant = r.tenant AND t.request = r.request), "
        f"gone AS (DELETE FROM {s}.reservation r "
        f"USING json_to_recordset(%(gone)s::json) AS g (tenant text, request text){condition} "
        "WHERE r.tenant = g.tenant AND r.request = g.request), "
        f"account_kept AS (UPDATE {s}.tenant t SET {_taken(rows.TENANT_COLUMNS, 'a', ('name', 'queue_limit'))} "
        f"FROM json_populate_recordset(NULL::{s}.tenant, %(accounts)s::json) a{condition} WHERE t.name = a.name)"
    )


def _save_pool(s: str, condition: str = "") -> str:
    columns = ("capacity", "active", "clock", "next_life", "next_generation", "seq")
    return (
        f"UPDATE {s}.pool SET {', '.join(f'{name} = %({name})s' for name in columns)}, writer = %(writer)s{condition}"
    )
