"""Rows made wrong on purpose, so that an agreement on errors is seen as well: both sides must find each of them."""

from attrs import evolve, frozen

from kvescrow.checks.explore.instance import Instance
from kvescrow.spec.language.expressions import FALSE
from kvescrow.spec.language.table import Row, Table


@frozen
class Planted:
    """One error: a row that lost an effect, or one that never fires."""

    instance: str
    row: str
    lost: str = ""
    """The field that is no longer written, as `entity.field`; empty where the row never fires."""

    def __str__(self) -> str:
        return f"{self.row} {f'forgets {self.lost}' if self.lost else 'never fires'}"

    def of(self, instance: Instance) -> Instance:
        """Return `instance` over the table with this error."""
        name = self.row.partition(".")[0]
        table = next(table for table in instance.tables if table.name == name)
        return instance.with_table(evolve(table, rows=tuple(self._changed(row, table) for row in table.rows)))

    def _changed(self, row: Row, table: Table) -> Row:
        if row.id != self.row:
            return row
        if not self.lost:
            return evolve(row, when=FALSE)
        left = tuple(effect for effect in row.do if str(effect.target) != self.lost)
        if len(left) == len(row.do):
            raise ValueError(f"table {table.name}: {row.id} does not write {self.lost}")
        return evolve(row, do=left)


PLANTED = (
    Planted("lifecycle-xs", "reservation.cancel.reserved", "tenant.active"),
    Planted("lifecycle-xs", "reservation.finish.stale_generation"),
    Planted("executions", "ticket.settle.done", "execution.in_flight"),
    Planted("executions", "execution.certify.in_flight"),
    Planted("account", "account.set_budget.malformed"),
    Planted("promises", "promise.grow.pool_capacity"),
    Planted("scope_reuse", "scope_reuse.look_up.salt"),
    Planted("chunk_choice", "chunk_choice.weigh.too_long"),
    Planted("chunk_choice", "chunk_choice.ask.decodes_first"),
    Planted("release", "release.look.fail"),
    Planted("release", "release.orphan.marked", "candidate.in_flight"),
    Planted("pages-limit", "page.drop.private_free", "pool.free"),
)
"""At least one in each table, of guards and of effects, that break invariants and step rules."""
