"""What to do next with a ledger of capacity: moves that press where such ledgers break, as calls of a judge.

A request asks for exactly what remains or for one more, a refused one is followed by one that fits, a grant is settled
twice or when time has given it back, and two calls meet at a line of the first one.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import count

from kvescrow.checks.fuzz.capacity import KEYS, Grant
from kvescrow.checks.fuzz.judge import Done
from kvescrow.checks.fuzz.moves import JudgedMoves
from kvescrow.checks.targets.capacity import Amounts, CapacitySetup

LIMITS: tuple[Amounts, ...] = ((8,), (2,), (1,), (8, 4), (2, 16))
"""Powers of two, for the reason that the window is one."""
SHAPES = len(LIMITS)
WHO = 6
TURNS = 240
LINES = 12
"""Of Python, that a call is taken to run until one was seen."""
SWEEP = 4
"""Lines at which one move halts one settlement after the other."""


def setup_of(shape: int) -> CapacitySetup:
    """Return the limits that `shape` picks."""
    return CapacitySetup(LIMITS[shape])


def ways_of(steps: tuple[tuple[object, ...], ...]) -> Iterator[tuple[tuple[object, ...], ...]]:
    """Yield a scenario with its last call, where that is a race at no named line, at one line after the other.

    How many lines lie before a place differs between releases of Python, so a listed scenario names none.
    """
    if steps[-1][0] != "race" or steps[-1][-1] is not None:
        yield steps
        return
    for after in count():
        yield (*steps[:-1], (*steps[-1][:-1], after))


class CapacityMoves(JudgedMoves):
    """Moves over the judge of a ledger."""

    _swept = False
    """Whether settlements of this history have been halted all over."""

    def _do(self, move: str, who: int, turn: int) -> None:
        CAPACITY_MOVES[move](self, who, turn)

    def take(self, who: int, turn: int) -> None:
        """Ask for an amount around what remains."""
        self._take(KEYS[who % 2], turn)

    def fill(self, who: int, turn: int) -> None:
        """Take all but a little, ask for more than that, and then for exactly that."""
        key = KEYS[who % 2]
        remaining = self._remaining(key)
        self._acquire(key, tuple(amount - 1 for amount in remaining))
        rest = self._remaining(key)
        self._acquire(key, tuple(amount + 1 for amount in rest))
        if len(rest) > 1:
            # The first resource alone fits.
            self._acquire(key, (rest[0], *(amount + 1 for amount in rest[1:])))
        self._acquire(key, rest)

    def settle(self, who: int, turn: int) -> None:
        """Settle a live grant, which has used nothing, a part, or all."""
        live = self._live()
        if live:
            key, name, grant = live[who % len(live)]
            self._judge.call("settle", key, name, grant.amounts, _used(grant, turn))

    def settle_all(self, who: int, turn: int) -> None:
        """Settle every live grant."""
        for key, name, grant in self._live():
            self._judge.call("settle", key, name, grant.amounts, _used(grant, turn))

    def settle_again(self, who: int, turn: int) -> None:
        """Settle a grant that is settled."""
        over = [each for each in self._grants() if each[2].used is not None]
        if over and self._provokes("settled.once"):
            key, name, grant = over[who % len(over)]
            self._judge.call("settle", key, name, grant.amounts, grant.used)

    def repeat(self, who: int, turn: int) -> None:
        """Ask for a live grant again."""
        live = self._live()
        if live and self._provokes("retry"):
            key, name, grant = live[who % len(live)]
            self._judge.call("acquire", key, name, grant.amounts)

    def wait(self, who: int, turn: int) -> None:
        """Let half a window pass, one, or two, and a little more."""
        self._wait(turn)

    def settle_late(self, who: int, turn: int) -> None:
        """Take something, let its time pass, let another take everything, and settle the first."""
        key = KEYS[who % 2]
        if not self._provokes("settled.late"):
            return
        taken = self._take(key, turn)
        self._wait(2)
        self._acquire(key, self._remaining(key))
        grant = self._judge.accounts[key].grants.get(taken)
        if grant is not None:
            self._judge.call("settle", key, taken, grant.amounts, _used(grant, turn))

    def settle_what_flowed_in(self, who: int, turn: int) -> None:
        """Take everything, take what has flowed in for it, settle the first, and take what that gives back."""
        key = KEYS[who % 2]
        if not self._provokes("flow") or not self._judge.declared.gives_back:
            return
        taken = self._acquire(key, self._remaining(key))
        self._wait(0)
        self._acquire(key, self._remaining(key))
        grant = self._judge.accounts[key].grants.get(taken)
        if grant is not None:
            self._judge.call("settle", key, taken, grant.amounts, _used(grant, turn))
            self._acquire(key, self._remaining(key))

    def cross_a_window(self, who: int, turn: int) -> None:
        """Take everything at the end of a window, and again at the beginning of the next."""
        key = KEYS[who % 2]
        self._take(key, 3)
        self._wait(0)
        self._acquire(key, self._remaining(key))
        self._wait(0)
        self._take(key, turn)

    def resize(self, who: int, turn: int) -> None:
        """Change a limit, at times to less than is taken."""
        key = KEYS[who % 2]
        limits = self._judge.setup.limits
        self._judge.call("set_limits", key, tuple((limit, max(1, limit // 2), limit * 2)[turn % 3] for limit in limits))

    def restart(self, who: int, turn: int) -> None:
        """Restart the ledger."""
        self._judge.call("restart")

    def race_to_take(self, who: int, turn: int) -> None:
        """Ask twice at the same moment: for what fits once, for what fits twice, or for the same grant."""
        if not self._provokes("race"):
            return
        key = KEYS[who % 2]
        remaining = self._remaining(key)
        amounts = remaining if turn % 3 == 0 else tuple(1 for _ in remaining)
        first, second = self._names(2)
        if turn % 3 == 1 and self._judge.declared.duplicate_ids:
            second = first
        self._race(("acquire", (key, first, amounts)), ("acquire", (key, second, amounts)), who, turn)

    def race_to_settle(self, who: int, turn: int) -> None:
        """Settle at the same moment two grants, or one while another is asked for."""
        live = self._live()
        if not live or not self._provokes("race"):
            return
        one, other = live[turn % len(live)], live[(turn + 1) % len(live)]
        first, second = (_settling(*each) for each in (one, other))
        if who % 2:
            second = ("acquire", (one[0], self._names(1)[0], self._judge.setup.limits))
        self._race(first, second, who, turn)

    def race_to_settle_twice(self, who: int, turn: int) -> None:
        """Settle one grant twice at the same moment, and so one grant after the other, each halted further on.

        Together they are halted all over a settlement, in steps where it is long. Once in a history is enough: such
        calls wait for each other, and that takes time.
        """
        key = KEYS[who % 2]
        if self._swept or not self._provokes("race") or not self._provokes("settled.once"):
            return
        self._swept = True
        for place in range(SWEEP):
            name = self._acquire(key, tuple(1 for _ in self._judge.setup.limits))
            grant = self._judge.accounts[key].grants.get(name)
            if grant is None:
                return
            both = _settling(key, name, grant)
            self._race(both, both, who, turn + place * TURNS // SWEEP)

    # --- how ----------------------------------------------------------------------------------------------------------

    def _race(self, first: Done, second: Done, who: int, turn: int) -> None:
        key, asked = first[1][0], [arguments[2] for method, arguments in (first, second) if method == "acquire"]
        nothing = (0,) * len(self._judge.setup.limits)
        together = tuple(map(sum, zip(nothing, *asked, strict=True)))
        if not self._provokes("refused") and not self._judge.accounts[key].fits(together):
            return
        lines = self._judge.lines.get(first[0], LINES)
        self._judge.call("race", first, second, lines * (turn % TURNS // 3) // (TURNS // 3))

    def _take(self, key: str, turn: int) -> str:
        remaining, limits = self._remaining(key), self._judge.setup.limits
        wanted = (
            tuple(1 for _ in limits),
            remaining,
            tuple(amount + 1 for amount in remaining),
            tuple(-(-amount // 2) for amount in remaining),
            tuple(limit + 1 for limit in limits),
        )
        return self._acquire(key, wanted[turn % len(wanted)])

    def _acquire(self, key: str, amounts: Amounts) -> str:
        (name,) = self._names(1)
        # What a refusal may have changed, where it is known to change something, need not be seen at once.
        if self._judge.accounts[key].fits(amounts) or self._provokes("refused"):
            self._judge.call("acquire", key, name, amounts)
        return name

    def _wait(self, turn: int) -> None:
        # A little more each time: to whom the very end of a window belongs is nobody's claim.
        window = self._judge.setup.window
        self._judge.call("tick", self._judge.now + (window // 2, window, 2 * window)[turn % 3] + window // 64)

    def _remaining(self, key: str) -> Amounts:
        amounts: Amounts = self._judge.accounts[key].remaining
        return amounts

    def _names(self, number: int) -> list[str]:
        """Return names that no grant has had."""
        first = 2 * len(self._judge.done)
        return [f"g{first + place}" for place in range(number)]

    def _grants(self) -> list[tuple[str, str, Grant]]:
        accounts = self._judge.accounts
        return [(key, name, grant) for key in KEYS for name, grant in accounts[key].grants.items()]

    def _live(self) -> list[tuple[str, str, Grant]]:
        return [each for each in self._grants() if each[2].used is None]

    def _provokes(self, law: str) -> bool:
        return law in self._judge.laws and law not in self._listed


def _settling(key: str, name: str, grant: Grant) -> Done:
    return "settle", (key, name, grant.amounts, _used(grant, 0))


def _used(grant: Grant, turn: int) -> Amounts:
    return tuple((0, amount // 2, amount)[turn % 3] for amount in grant.amounts)


CAPACITY_MOVES: Mapping[str, Callable[[CapacityMoves, int, int], object]] = {
    move.__name__: move
    for move in (
        CapacityMoves.take,
        CapacityMoves.fill,
        CapacityMoves.settle,
        CapacityMoves.settle_all,
        CapacityMoves.settle_again,
        CapacityMoves.repeat,
        CapacityMoves.wait,
        CapacityMoves.settle_late,
        CapacityMoves.settle_what_flowed_in,
        CapacityMoves.cross_a_window,
        CapacityMoves.resize,
        CapacityMoves.restart,
        CapacityMoves.race_to_take,
        CapacityMoves.race_to_settle,
        CapacityMoves.race_to_settle_twice,
    )
}
