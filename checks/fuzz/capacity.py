"""Random histories of a ledger of capacity, judged from outside by laws (TGT-1).

The judge keeps the account of each key as its client would: what was granted, when, and what of it was settled. After
every call it compares what the ledger says that remains with what the account leaves.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from attrs import evolve, frozen

from kvescrow.checks.fuzz.differences import shown
from kvescrow.checks.fuzz.interleave import interleave
from kvescrow.checks.fuzz.judge import Done, Judge
from kvescrow.checks.targets.capacity import Amounts, Answer, CapacitySetup
from kvescrow.checks.targets.subject import Expiry

KEYS = ("a", "b")


@frozen
class Grant:
    """One grant, as its client knows it."""

    amounts: Amounts
    at: int
    """Microseconds."""
    used: Amounts | None = None
    """What it had used when it was settled; None while it is live."""


@frozen
class Account:
    """What the client knows of one key."""

    limits: Amounts
    taken: Amounts
    """By grants that time has not given back."""
    grants: Mapping[str, Grant]
    greatest: Amounts
    """Of all limits that were in force."""

    @property
    def remaining(self) -> Amounts:
        """Return what should remain: nothing where more is taken than a lowered limit allows."""
        return tuple(max(0, limit - taken) for limit, taken in zip(self.limits, self.taken, strict=True))

    def fits(self, amounts: Amounts) -> bool:
        """Return whether a request fits."""
        return all(a + t <= n for a, t, n in zip(amounts, self.taken, self.limits, strict=True))

    def acquired(self, grant: str, amounts: Amounts, now: int) -> "tuple[Answer, Account]":
        """Return what a right ledger answers to a request, and the account after it."""
        if grant in self.grants:
            return Answer.DONE, self
        if not self.fits(amounts):
            return Answer.REFUSED, self
        granted = {**self.grants, grant: Grant(amounts, now)}
        return Answer.DONE, evolve(self, taken=_plus(self.taken, amounts), grants=granted)

    def settled(self, grant: str, used: Amounts, back: Amounts) -> "tuple[Answer, Account]":
        """Return what a right ledger answers to a settlement that gives `back`, and the account after it."""
        if self.grants[grant].used is not None:
            return Answer.REFUSED, self
        after = {**self.grants, grant: evolve(self.grants[grant], used=used)}
        return Answer.DONE, evolve(self, taken=_minus(self.taken, back), grants=after)


class CapacityJudge(Judge):
    """A fresh ledger, the account of each key, and every law after every call."""

    view: dict[str, Amounts]
    """Key -> what the ledger says that remains."""

    def open_with(self, setup: Any) -> None:
        """Open the ledger, with one resource where it knows no more at once."""
        given: CapacitySetup = setup
        self.setup = given if self.declared.joint else evolve(given, limits=given.limits[:1])
        self.now = 0
        self.lines: dict[str, int] = {}
        """Method -> the most lines of Python that a raced call was seen to run."""
        self.target = self._opened(self.setup)
        limits = self.setup.limits
        self.accounts = {key: Account(limits, (0,) * len(limits), {}, limits) for key in KEYS}
        self.view = self._look(None)
        for key in KEYS:
            self._require("bounds", self.view[key] == limits, f"{shown(self.view[key])} of {limits} at the opening")

    # --- which calls a client may make --------------------------------------------------------------------------------

    def _may_acquire(self, key: str, grant: str, amounts: Amounts) -> bool:
        known = self.accounts[key].grants.get(grant)
        if len(amounts) != len(self.setup.limits) or min(amounts) < 1:
            return False
        if known is None:
            return all(grant not in account.grants for account in self.accounts.values())
        # A retry: of the same request, and while time has given nothing of it back.
        same = known.amounts == amounts and known.used is None
        return self.declared.duplicate_ids and same and not self._age(known)

    def _may_settle(self, key: str, grant: str, amounts: Amounts, used: Amounts) -> bool:
        known = self.accounts[key].grants.get(grant)
        if known is None or not self.declared.gives_back or known.amounts != amounts or len(used) != len(amounts):
            return False
        if not all(0 <= u <= a for u, a in zip(used, amounts, strict=True)):
            return False
        # Who is not known by a name has to know by himself that he has settled, and that his time is over.
        once = known.used is None and self._age(known) < self._lasts
        return once or (self._remembers and known.used in (None, used))

    def _may_tick(self, now: int) -> bool:
        if now <= self.now:
            return False
        # A ledger that is not exact says by itself only whether a whole window is over.
        partly = self.declared.expiry is Expiry.WINDOW and not self.declared.exact
        return not partly or all(self._is_whole(account, now) for account in self.accounts.values())

    def _is_whole(self, account: Account, now: int) -> bool:
        times = [grant.at for grant in account.grants.values() if self._age(grant) < self._lasts]
        return not times or now < min(times) + self._lasts or now >= max(times) + self._lasts

    def _may_set_limits(self, key: str, limits: Amounts) -> bool:
        return self.declared.resizes and len(limits) == len(self.setup.limits) and min(limits) > 0

    def _may_restart(self) -> bool:
        return self.declared.durable

    def _may_race(self, first: Done, second: Done, after: int) -> bool:
        """Whether both calls may be made now, in either order, and it is certain what each gives back."""
        if not self.declared.concurrent or not all(self._may_be_raced(*call) for call in (first, second)):
            return False
        if first[1][:2] != second[1][:2]:
            return True
        return first == second and (self.declared.duplicate_ids if first[0] == "acquire" else self._remembers)

    def _may_be_raced(self, method: str, arguments: tuple[Any, ...]) -> bool:
        if method == "acquire":
            return self._may_acquire(*arguments)
        if method != "settle" or not self._may_settle(*arguments):
            return False
        account = self.accounts[arguments[0]]
        grant = account.grants[arguments[1]]
        return grant.used is None and not self._age(grant) and not self._is_partly_back(account)

    @property
    def _remembers(self) -> bool:
        return self.declared.remembers_grants

    @property
    def _lasts(self) -> int:
        """Return the microseconds after which nothing of a grant is taken any more."""
        return int(self.setup.window) * (2 if self.declared.expiry is Expiry.GRADUAL else 1)

    def _age(self, grant: Grant) -> int:
        """Return the microseconds since a grant; none pass where time gives nothing back."""
        return 0 if self.declared.expiry is Expiry.NEVER else self.now - grant.at

    def _tried(self, method: str, arguments: tuple[Any, ...]) -> str:
        if method == "acquire" and arguments[1] in self.accounts[arguments[0]].grants:
            return "retry"
        if method == "settle":
            grant = self.accounts[arguments[0]].grants[arguments[1]]
            return "settled.once" if grant.used is not None else self._law_of_settling(grant)
        return {"race": "race", "restart": "restarted", "set_limits": "resized"}.get(method, "answers")

    def _law_of_settling(self, grant: Grant) -> str:
        return "settled.late" if self._age(grant) >= self._lasts else "settled"

    def _make(self, method: str, arguments: tuple[Any, ...]) -> Any:
        """Two calls at the same moment are made here, since no protocol has them."""
        if method != "race":
            return self._ask((method, arguments))
        first, second, after = arguments
        both = interleave(lambda: self._ask(first), lambda: self._ask(second), after)
        self.is_last_way = not both.halted
        self.lines[first[0]] = max(self.lines.get(first[0], 0), both.lines)
        if both.halted:
            self.exercised.add("race")
        return both.first, both.second

    def _ask(self, call: Done) -> Any:
        method, arguments = call
        return getattr(self.target, method)(*arguments)

    # --- what each call must come to ----------------------------------------------------------------------------------

    def _after_acquire(self, before: dict[str, Amounts], reply: Answer, key: str, grant: str, amounts: Amounts) -> None:
        account, was, now = self.accounts[key], before[key], self.view[key]
        if grant in account.grants:
            told = f"answered {shown(reply)}; {shown(was)} remained and {shown(now)} remains"
            self._require("retry", reply is Answer.DONE and now == was, told)
            self.exercised.add("retry")
            return
        _, after = account.acquired(grant, amounts, self.now)
        if reply is Answer.REFUSED:
            self._refused(account, was, now, amounts)
            return
        self._within(key, account, amounts)
        self._require("charged", now == after.remaining, f"{shown(was)} remained, and now {shown(now)}")
        self.exercised |= {"charged", "limit", "grants"} if 0 in now else {"charged"}
        self.accounts[key] = after

    def _refused(self, account: Account, was: Amounts, now: Amounts, amounts: Amounts) -> None:
        told = f"{shown(amounts)} refused where {shown(account.remaining)} remains"
        self._require("grants", not account.fits(amounts), told)
        fitting = any(a <= r for a, r in zip(amounts, account.remaining, strict=True))
        law = "joint" if fitting else "refused"
        self._require(law, now == was, f"{shown(was)} remained before the refusal and {shown(now)} after it")
        self.exercised.add(law)

    def _within(self, key: str, account: Account, amounts: Amounts) -> None:
        """Require that what was just granted is within the limit, now and in the window that ends now."""
        outstanding = _plus(account.taken, amounts)
        told = f"{shown(outstanding)} of {shown(account.limits)} is granted on {key}"
        self._require("limit", account.fits(amounts), told)
        if self.declared.expiry is Expiry.NEVER:
            return
        if self.declared.expiry is Expiry.GRADUAL:
            self._flows(key, account, amounts)
        recent = [grant for grant in account.grants.values() if self.now - grant.at < self.setup.window]
        sums = _plus(amounts, self._sum(recent))
        fits = all(s <= n for s, n in zip(sums, account.limits, strict=True))
        self._require("interval", fits, f"{shown(sums)} of {shown(account.limits)} granted on {key} within one window")
        if any(grant.at < self.now for grant in recent):
            self.exercised.add("interval")

    def _flows(self, key: str, account: Account, amounts: Amounts) -> None:
        """Require that the grants since any earlier one are within the limit and what has flowed in since then.

        What a settlement gives back counts as never granted. So it may not come on top of what flowed in for it. What
        flowed in is rounded up: a ledger that answers in whole units may round in its client's favour.
        """
        window = self.setup.window
        for start in sorted({grant.at for grant in account.grants.values()} | {self.now}, reverse=True):
            sums = _plus(amounts, self._sum([grant for grant in account.grants.values() if grant.at >= start]))
            most = tuple(-(-limit * (window + self.now - start) // window) for limit in account.greatest)
            told = f"{shown(sums)} granted on {key} in {self.now - start} microseconds, in which {shown(most)} may be"
            self._require("flow", all(s <= m for s, m in zip(sums, most, strict=True)), told)
            if start < self.now and any(s == m for s, m in zip(sums, most, strict=True)):
                self.exercised.add("flow")

    def _sum(self, grants: "list[Grant]") -> Amounts:
        """Return what grants still take: all of it while they live, and afterwards what was spent."""
        total: Amounts = (0,) * len(self.setup.limits)
        for grant in grants:
            total = _plus(total, grant.amounts if grant.used is None else _minus(grant.amounts, self._back(grant)))
        return total

    def _back(self, grant: Grant, used: Amounts | None = None) -> Amounts:
        """Return what the settlement of a grant gives back."""
        spent = grant.used if used is None else used
        return grant.amounts if self.declared.holds or spent is None else _minus(grant.amounts, spent)

    def _after_settle(
        self, before: dict[str, Amounts], reply: Answer, key: str, grant: str, amounts: Amounts, used: Amounts
    ) -> None:
        account, was, now = self.accounts[key], before[key], self.view[key]
        known, told = account.grants[grant], f"{shown(was)} remained, and now {shown(now)}"
        if known.used is not None:
            self._require("settled.once", now == was, told)
            self.exercised.add("settled.once")
            return
        back = self._back(known, used)
        if self._age(known) >= self._lasts:
            self._require("settled.late", now == was, told)
            self.exercised.add("settled.late")
            back = (0,) * len(amounts)
        elif self._is_partly_back(account):
            # Time may have given back a part of it, or of another grant that was given back in full since.
            most = tuple(min(n, r + b) for n, r, b in zip(account.limits, was, back, strict=True))
            within = all(w <= n <= m for w, n, m in zip(was, now, most, strict=True))
            # After one window it may have given back all of it, and then a refusal is right as well.
            done = reply is Answer.DONE or (now == was and self._age(known) >= self.setup.window)
            self._require("settled", within and done, f"answered {shown(reply)}; {told}")
            back = _minus(now, was)
        else:
            _, after = account.settled(grant, used, back)
            done = reply is Answer.DONE and now == after.remaining
            self._require("settled", done, f"answered {shown(reply)}; {told}")
            self.exercised.add("settled")
        _, self.accounts[key] = account.settled(grant, used, back)

    def _is_partly_back(self, account: Account) -> bool:
        """Return whether time may have given back a part of what the account counts as taken."""
        grants = [grant for grant in account.grants.values() if self._age(grant) < self._lasts]
        return self.declared.expiry is Expiry.GRADUAL and any(grant.at < self.now for grant in grants)

    def _after_tick(self, before: dict[str, Amounts], reply: None, now: int) -> None:
        was_at, self.now = self.now, now
        self._bounded()
        for key, account in self.accounts.items():
            self._passed(key, account, before[key], was_at)

    def _passed(self, key: str, account: Account, was: Amounts, was_at: int) -> None:
        """Look what time has given back on one key, and take that over."""
        now, expiry = self.view[key], self.declared.expiry
        told = f"{shown(was)} remained of {key}, and now {shown(now)}"
        running = [grant for grant in account.grants.values() if was_at - grant.at < self._lasts]
        over = [grant for grant in running if self.now - grant.at >= self._lasts]
        if expiry is Expiry.NEVER or (expiry is Expiry.WINDOW and not over):
            self._require("early", now == was, told)
            if was != account.limits:
                self.exercised.add("early")
            return
        if len(over) == len(running):
            self._require("expired", now == account.limits, told)
            if running:
                self.exercised.add("expired")
        elif expiry is Expiry.WINDOW:
            # The ledger is exact: what remains is what the grants leave that are not over.
            account = evolve(account, taken=self._sum([grant for grant in running if grant not in over]))
            self._require("expired", all(n >= d for n, d in zip(now, account.remaining, strict=True)), told)
            self._require("early", all(n <= d for n, d in zip(now, account.remaining, strict=True)), told)
        else:
            self._require("expired", all(n >= w for n, w in zip(now, was, strict=True)), told)
        self.accounts[key] = evolve(account, taken=_minus(account.limits, now))

    def _after_set_limits(self, before: dict[str, Amounts], reply: None, key: str, limits: Amounts) -> None:
        account = self.accounts[key]
        after = evolve(account, limits=limits, greatest=tuple(map(max, account.greatest, limits)))
        self.accounts[key] = after
        told = f"{shown(before[key])} remained, and now {shown(self.view[key])}"
        self._require("resized", self.view[key] == after.remaining, told)
        if any(after.taken):
            self.exercised.add("resized")

    def _after_restart(self, before: dict[str, Amounts], reply: None) -> None:
        self._require("restarted", self.view == before, f"{shown(before)} remained, and now {shown(self.view)}")
        if any(any(account.taken) for account in self.accounts.values()):
            self.exercised.add("restarted")

    def _after_race(
        self, before: dict[str, Amounts], reply: tuple[Answer, Answer], first: Done, second: Done, after: int
    ) -> None:
        orders = list(self._orders(first, second))
        explained = [accounts for answers, accounts in orders if self._same(answers, reply, first, second)]
        told = f"answered {' and '.join(map(shown, reply))}; {shown(self.view)} remains"
        twice = {"acquire": "retry", "settle": "settled.once"}[first[0]] if first == second else "race"
        self._require(twice, bool(explained), told)
        right = [accounts for accounts in explained if self._leaves(accounts)]
        if not right and Answer.REFUSED in reply and first[0] == second[0] == "acquire" and first != second:
            # Whatever the order, it is the refusal that has changed something.
            self._require("refused", False, told)
        self._require(twice, bool(right), told)
        self.accounts = right[0] if right else explained[0]

    def _orders(self, first: Done, second: Done) -> Iterator[tuple[tuple[Answer, Answer], dict[str, Account]]]:
        """Yield what a right ledger comes to in either order: the answers as they are given, and the accounts."""
        for calls in ((first, second), (second, first)):
            accounts, answers = dict(self.accounts), {}
            for call in calls:
                method, (key, grant, amounts, *rest) = call
                if method == "acquire":
                    answer, accounts[key] = accounts[key].acquired(grant, amounts, self.now)
                else:
                    back = self._back(accounts[key].grants[grant], rest[0])
                    answer, accounts[key] = accounts[key].settled(grant, rest[0], back)
                answers[id(call)] = answer
            yield (answers[id(first)], answers[id(second)]), accounts

    def _same(self, answers: tuple[Answer, Answer], reply: tuple[Answer, Answer], first: Done, second: Done) -> bool:
        """Whether the answers are those; what a second settlement answers is left to the ledger."""
        twice = first[0] == second[0] == "settle" and first[1][:2] == second[1][:2]
        return Answer.DONE in reply if twice else answers == reply

    def _leaves(self, accounts: Mapping[str, Account]) -> bool:
        return all(self.view[key] == account.remaining for key, account in accounts.items())

    # --- what must hold after every call ------------------------------------------------------------------------------

    def _general(self, before: dict[str, Amounts], acting: Any) -> None:
        self._bounded()
        for key, account in self.accounts.items():
            now = self.view[key]
            if acting in KEYS and key != acting:
                self._require("keys", now == before[key], f"{shown(before[key])} remained on {key}, now {shown(now)}")
                self.exercised |= {"keys"} if any(account.taken) else set()
            self._counts(key, account)

    def _bounded(self) -> None:
        for key, account in self.accounts.items():
            now = self.view[key]
            within = all(0 <= n <= limit for n, limit in zip(now, account.limits, strict=True))
            self._require("bounds", within, f"{shown(now)} remains of {shown(account.limits)} on {key}")
            if 0 in now:
                self.exercised.add("bounds")

    def _counts(self, key: str, account: Account) -> None:
        """Require that the ledger has as many live grants as its client; unless time has ended some."""
        live = [grant for grant in account.grants.values() if grant.used is None]
        if "counted" not in self.laws or any(self._age(grant) >= self._lasts for grant in live):
            return
        held = self._asked("answers", lambda: self.target.held(key))
        self._require("counted", held == len(live), f"{held} grants are held on {key}, and {len(live)} are live")
        if len(live) > 1:
            self.exercised.add("counted")

    def _look(self, acting: str | None) -> dict[str, Amounts]:
        seen: dict[str, Amounts] = self._asked(
            "answers", lambda: {key: tuple(self.target.remaining(key)) for key in KEYS}
        )
        return seen


def _plus(one: Amounts, other: Amounts) -> Amounts:
    return tuple(a + b for a, b in zip(one, other, strict=True))


def _minus(one: Amounts, other: Amounts) -> Amounts:
    return tuple(a - b for a, b in zip(one, other, strict=True))
