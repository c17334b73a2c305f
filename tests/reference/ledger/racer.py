"""One gateway process of a race. It opens a shared ledger and obeys its standard input, one command a line.

`race TENANT REQUEST` reserves 4,000 and answers `DECISION REASON LIFE`; `cancel TENANT REQUEST LIFE` gives it back
and answers the decision. Arguments: the kind of store, its address, the schema or prefix.
"""

import sys

from kvescrow.reference.ledger import Ledger, LedgerConfig, TenantConfig
from kvescrow.spec.vocabulary import Cancel, Key, Reserve

CONFIG = LedgerConfig(
    pool="pool",
    pool_limit=6_000,
    tenants={name: TenantConfig(limit=6_000, budget=10**9, queue_limit=4) for name in ("red", "blue")},
    retention=10**12,
)


def opened(kind: str, url: str, name: str) -> Ledger:
    """Open the shared ledger of this kind."""
    if kind == "postgres":
        from kvescrow.reference.ledger.postgres import PostgresLedger

        return PostgresLedger(url, CONFIG, schema=name)
    from kvescrow.reference.ledger.valkey import ValkeyLedger

    return ValkeyLedger(url, CONFIG, prefix=name)


def main() -> None:
    """Serve until the input ends."""
    ledger = opened(*sys.argv[1:])
    print("ready", flush=True)
    for line in sys.stdin:
        command, tenant, request, *life = line.split()
        key = Key(tenant, request)
        if command == "race":
            reply = ledger.submit(Reserve(key, 4_000, "digest", 10**17))
            print(reply.decision.value, reply.reason.value, reply.life, flush=True)
        else:
            print(ledger.submit(Cancel(key, int(life[0]))).decision.value, flush=True)
    ledger.close()


if __name__ == "__main__":
    main()
