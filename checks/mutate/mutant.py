"""What a mutant is: a table with one small change in one row, or in the order of two."""

from enum import Enum

from attrs import evolve, field, frozen

from kvescrow.spec.language.table import Row, Table


class Operator(Enum):
    """One kind of small change."""

    CONJUNCT_DROPPED = "conjunct dropped"
    """One part of a guard that must hold need not hold any more."""
    CONJUNCT_NEGATED = "conjunct negated"
    """One part of a guard must not hold where it had to."""
    ALTERNATIVE_DROPPED = "alternative dropped"
    """One of several conditions that suffice does not suffice any more."""
    COMPARISON_WEAKENED = "comparison weakened"
    """`<` becomes `<=`, `<=` becomes `<`, and `==` becomes `<=`."""
    COMPARISON_SHIFTED = "comparison shifted"
    """A boundary is off by one."""
    EFFECT_SHIFTED = "effect shifted"
    """A new value is off by one, or the opposite truth value."""
    EFFECT_DROPPED = "effect dropped"
    """A field keeps its old value."""
    EFFECT_DOUBLED = "effect doubled"
    """What is added or taken is added or taken twice."""
    EFFECT_REDIRECTED = "effect redirected"
    """Another field of the same type gets it."""
    TARGET_CHANGED = "target changed"
    """The row leads to another state."""
    SOURCE_DROPPED = "source dropped"
    """The row does not apply in one of its states."""
    ROW_DROPPED = "row dropped"
    """The row is gone."""
    DECISION_CHANGED = "decision changed"
    """The row answers another decision, one that other rows of its event answer."""
    REASON_CHANGED = "reason changed"
    """The row gives another reason, one that other rows of its event give, or none."""
    ROWS_SWAPPED = "rows swapped"
    """Two rows that are read one after the other are read in the other order."""


@frozen(eq=False)
class Mutant:
    """One changed table. It is only built when asked, since building it may already refuse it."""

    original: Table = field(repr=False)
    operator: Operator
    row: Row
    """The row that is changed, of the original; the first one, where two are swapped."""
    change: str
    """What is different, in the words of the table."""
    rows: tuple[Row, ...] = field(repr=False)
    """All rows of the changed table."""
    number: int = 0
    """Tells mutants of one row and operator apart."""

    @property
    def name(self) -> str:
        """Return the name that the mutant is cited by; the same in every run on the same tables."""
        return f"{self.row.id}: {self.operator.value} {self.number}"

    @property
    def changed(self) -> frozenset[str]:
        """Return the ids of the rows that are not as they were, or not in their place."""
        before = self.original.rows
        stays = {row for row, now in zip(before, self.rows, strict=False) if row is now}
        if len(self.rows) < len(before):
            return frozenset({self.row.id})
        return frozenset(row.id for row in before if row not in stays)

    def build(self) -> Table:
        """Return the changed table; raise `TableError` where it contradicts itself."""
        return evolve(self.original, rows=self.rows)
