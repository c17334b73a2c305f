"""The bounds of the fair queue, checked on every run by what was served, whatever the queue's counters say (FAI-2).

The resource is reserved tokens of one pool. For two tenants of a class, or two classes, with weights w_i and w_j, and
over any interval in which both have a request that no limit of their own blocks:

    reserved once       |R_i/w_i - R_j/w_j| <= E/w_i + E/w_j                       R: tokens reserved
    with refunds        |V_i/w_i - V_j/w_j| <= B_ij + B_ji                         V: reserved less refunded
                        B_ij = E/w_i + (P - 1)/w_j
    with growth too     the same, with (P - 1)/w_i more in each B_ij

E is the largest request, P the pool. The second is wider since what is in flight of one may be refunded after the
other was served, and that is at most the pool less the one token that served it. Put for a class with share m of T
tokens in the interval, the first is R >= m*T - E. An interval ends where one of the two ceases to wait or is blocked
by its own limit. The first two bounds are attained, and never passed, in all histories of small instances.

An amount and its normalised form are exact: tokens over weights are held as `Fraction`s. There is one watch: a replay
tells it what the queue does, and `grading.fairness` tells it, after a run, what the records say.
"""

from collections.abc import Mapping
from fractions import Fraction

from attrs import define, field

Party = tuple[str, ...]


@define
class _Interval:
    """Normalised service of one over another since both wait."""

    ahead: Fraction = Fraction(0)
    least: Fraction = Fraction(0)
    most: Fraction = Fraction(0)

    def move(self, by: Fraction) -> tuple[Fraction, Fraction]:
        """Move on, and return how far it has risen since its least, and fallen since its most."""
        self.ahead += by
        self.least, self.most = min(self.least, self.ahead), max(self.most, self.ahead)
        return self.ahead - self.least, self.most - self.ahead


@define
class FairnessWatch:
    """Follows each pair of parties of one level; an `Observer` of a `FairQueue`."""

    weights: Mapping[Party, int]
    """Of parties; one that is missing has weight 1."""
    leads: dict[tuple[Party, Party], Fraction] = field(factory=dict)
    """How far the first was served beyond the second, at most, in one interval; a pair stands in both orders."""
    service: dict[Party, int] = field(factory=dict)
    """Reserved less refunded, of each party."""
    refunded: bool = False
    grown: bool = False
    _waiting: dict[Party, list[Party]] = field(factory=dict)
    """By level: the classes, or the tenants of a class."""
    _intervals: dict[tuple[Party, Party], _Interval] = field(factory=dict)

    def waits(self, party: Party) -> None:
        """Open an interval with everyone of its level that waits."""
        others = self._waiting.setdefault(party[:-1], [])
        for other in others:
            self._intervals[_pair(party, other)] = _Interval()
        others.append(party)

    def rests(self, party: Party) -> None:
        """Close its intervals."""
        others = self._waiting[party[:-1]]
        others.remove(party)
        for other in others:
            del self._intervals[_pair(party, other)]

    def served(self, party: Party, amount: int) -> None:
        """Move its intervals by `amount` tokens."""
        self.service[party] = self.service.get(party, 0) + amount
        others = self._waiting.get(party[:-1], [])
        if party not in others:
            return
        step = Fraction(amount, self.weight(party))
        for other in others:
            if other != party:
                pair = _pair(party, other)
                rise, fall = self._intervals[pair].move(step if pair[0] == party else -step)
                self.leads[pair] = max(self.leads.get(pair, rise), rise)
                self.leads[pair[::-1]] = max(self.leads.get(pair[::-1], fall), fall)

    @property
    def gaps(self) -> dict[tuple[Party, Party], Fraction]:
        """The widest gap of each pair that was served while both waited."""
        return {pair: max(lead, self.leads[pair[::-1]]) for pair, lead in self.leads.items() if pair[0] < pair[1]}

    def adjusted(self, party: Party, amount: int) -> None:
        """Move its intervals by a refund or a growth."""
        self.refunded = self.refunded or amount < 0
        self.grown = self.grown or amount > 0
        self.served(party, amount)

    def weight(self, party: Party) -> int:
        """Return the weight of `party`."""
        return self.weights.get(party, 1)

    def bound(self, pair: tuple[Party, Party], largest: int, pool: int) -> Fraction:
        """Return the bound of `pair`: a wider one once there was a refund or a growth."""
        one, other = self.weight(pair[0]), self.weight(pair[1])
        if self.grown:
            return grown_bound(one, other, largest, pool)
        return refunded_bound(one, other, largest, pool) if self.refunded else reserved_bound(one, other, largest)

    def broken(self, largest: int, pool: int) -> list[str]:
        """Return a line for each pair whose gap has passed its bound; empty where FAI-2 holds."""
        return [
            f"{'/'.join(pair[0])} and {'/'.join(pair[1])} differ by {float(gap)} normalised tokens, "
            f"the bound is {float(self.bound(pair, largest, pool))}"
            for pair, gap in self.gaps.items()
            if gap > self.bound(pair, largest, pool)
        ]


def reserved_bound(weight: int, other: int, largest: int) -> Fraction:
    """Return E/w_i + E/w_j, the most by which normalised reserved tokens differ while nothing is refunded."""
    return Fraction(largest, weight) + Fraction(largest, other)


def refunded_bound(weight: int, other: int, largest: int, pool: int) -> Fraction:
    """Return B_ij + B_ji, the most by which normalised service differs where it is refunded at the end."""
    return reserved_bound(weight, other, largest) + reserved_bound(weight, other, pool - 1)


def grown_bound(weight: int, other: int, largest: int, pool: int) -> Fraction:
    """Return the bound where what is in flight may also grow, up to the pool, after the last dispatch."""
    return refunded_bound(weight, other, largest, pool) + reserved_bound(weight, other, pool - 1)


def shortfall(behind: Fraction, weight: int, other: int) -> Fraction:
    """Return by how many tokens a party with `weight` is below its share m of T where it is `behind`: m*T - R."""
    return behind * weight * other / (weight + other)


def _pair(one: Party, other: Party) -> tuple[Party, Party]:
    return (one, other) if one < other else (other, one)
