"""Who owns a shared prefix when the request that computed it leaves (PAG-3, PAG-5)?

Nobody does: the pages have an account of their own, and holders are a set. So the first owner's exit neither frees a
page that others read, nor charges it twice. The last holder's exit leaves it cached, where it may be evicted or hit.
"""

from attrs import frozen

from kvescrow.checks.experiments.result import Experiment, Input, Line, Origin, Plot
from kvescrow.reference.pages import Acquired, PagePool, PageUse
from kvescrow.spec.vocabulary import PageState, PrefixScope

PAGE_LENGTH = 16
FIRST = "first#1"

ASSUMPTIONS = (
    f"Pages have {PAGE_LENGTH} tokens. Each request has the prefix, one page of its own prompt and one page of output.",
    "All requests have one scope: tenant, model and everything else that the pages depend on are equal.",
    "The requests come one after the other; the pages are the reference's own pool, and no model runs.",
    "Prompts and times are synthetic.",
)


@frozen
class Constraints:
    """What a reader moves."""

    sharers: int = 3
    """Requests that come after the first and have its prefix."""
    prefix: int = 4
    """Pages of the prefix."""
    pool: int = 24
    """Usable pages."""
    in_flight: bool = True
    """Whether a step of the first request still reads its pages when it leaves."""


@frozen
class Moment:
    """The pool after one event."""

    event: str
    answer: str
    free: int
    private: int
    shared: int
    cached: int
    draining: int
    promised: int
    prefix_states: tuple[PageState, ...]
    prefix_holders: int
    """Holders of the first page of the prefix."""

    @property
    def total(self) -> int:
        """Every page is in exactly one state (PAG-2)."""
        return self.free + self.private + self.shared + self.cached + self.draining


class _Run:
    """The pool and what was seen of it."""

    def __init__(self, asked: Constraints) -> None:
        self.asked = asked
        self.pool = PagePool(asked.pool + 1, PAGE_LENGTH)
        self.scope = PrefixScope("tenant", model="synthetic", page_length=PAGE_LENGTH)
        self.prefix: tuple[int, ...] = ()
        self.moments: list[Moment] = []

    def see(self, event: str, answer: str) -> None:
        """Record the pool as it is now."""
        counts, pages = self.pool.counts(), self.pool.snapshot().pages
        self.moments.append(
            Moment(
                event,
                answer,
                counts.free,
                counts.private,
                counts.shared,
                counts.cached,
                counts.draining,
                counts.promised,
                tuple(pages[page].state for page in self.prefix),
                len(pages[self.prefix[0]].holders) if self.prefix else 0,
            )
        )

    def arrive(self, holder: str, number: int) -> bool:
        """Let a request come, compute its prompt and publish it; return whether it was admitted."""
        prefix = [1000 + token for token in range(self.asked.prefix * PAGE_LENGTH)]
        prompt = [*prefix, *([10_000 + number] * PAGE_LENGTH)]
        got = self.pool.acquire(holder, self.scope, prompt, len(prompt) + PAGE_LENGTH)
        if not isinstance(got, Acquired):
            self.see(f"{holder} comes", f"{got.decision.value} {got.reason.value}")
            return False
        if holder == FIRST:
            self.prefix = got.pages[: self.asked.prefix]
        fresh = tuple(got.pages[got.cached_tokens // PAGE_LENGTH :])
        use = [PageUse(holder, reads=got.pages, writes=fresh, filled=frozenset(fresh))]
        self.pool.launch(use)
        self.pool.finish(use, ok=True)
        self.pool.publish(holder, prompt)
        hit = got.cached_tokens // PAGE_LENGTH
        self.see(f"{holder} comes", f"{hit} pages hit, {len(fresh)} computed, {got.promised} promised")
        return True

    def decode_step(self, holder: str) -> PageUse:
        """Draw the page that the next token needs, and return what the step does."""
        drawn = self.pool.allocate(holder).page
        pages = self.pool.pages_of(holder)
        return PageUse(holder, reads=pages, writes=() if drawn is None else (drawn,))

    def leave(self, holder: str) -> None:
        """Let a request go."""
        reply = self.pool.release(holder)
        self.see(f"{holder} leaves", reply.decision.value)


def prefix_ownership(constraints: Constraints | None = None) -> Experiment:
    """Run the experiment: requests come, share, and leave, the first one first."""
    asked = constraints or Constraints()
    run = _Run(asked)
    run.see("at rest", "")
    came = [f"sharer {number}#1" for number in range(1, asked.sharers + 1)]
    admitted = [holder for number, holder in enumerate([FIRST, *came]) if run.arrive(holder, number)]
    before = run.moments[-1]
    reading = [run.decode_step(FIRST)] if asked.in_flight and FIRST in admitted else []
    if reading:
        run.pool.launch(reading)
        run.see("a decode step of the first is launched", "reads all its pages, writes one")
    after = before
    if FIRST in admitted:
        run.leave(FIRST)
        after = run.moments[-1]
    if reading:
        run.pool.finish(reading, ok=True)
        run.see("that step ends", "")
    for holder in admitted:
        if holder != FIRST:
            run.leave(holder)
    run.pool.check()
    return _report(run, len(admitted), before, after)


def _report(run: _Run, admitted: int, before: Moment, after: Moment) -> Experiment:
    asked = run.asked
    figures = {
        "admitted": admitted,
        "prefix_pages": list(run.prefix),
        "freed_by_first_exit": sum(state is PageState.FREE for state in after.prefix_states),
        "shared_before_first_exit": before.shared,
        "shared_after_first_exit": after.shared,
        "pages_if_each_had_a_copy": admitted * asked.prefix,
        "at_rest": {"free": run.moments[-1].free, "cached": run.moments[-1].cached},
        "every_page_in_one_state": all(moment.total == asked.pool for moment in run.moments),
    }
    return Experiment(
        name="prefix-ownership",
        question="What becomes of a shared prefix when the request that computed it leaves first?",
        inputs=(
            Input("requests that share", asked.sharers, "requests", Origin.CHOSEN),
            Input("prefix", asked.prefix, "pages", Origin.CHOSEN),
            Input("pool", asked.pool, "pages", Origin.CHOSEN),
            Input("a step in flight when the first leaves", asked.in_flight, "", Origin.CHOSEN),
            Input("page", PAGE_LENGTH, "tokens", Origin.SYNTHETIC),
        ),
        assumptions=ASSUMPTIONS,
        findings=_findings(asked, admitted, after, run.moments),
        figures=figures,
        columns=("event", "answer", "free", "private", "shared", "cached", "draining", "promised", "prefix", "holders"),
        rows=tuple(map(_row, run.moments)),
        plots=(_plot(run.moments),),
    )


def _findings(asked: Constraints, admitted: int, after: Moment, moments: list[Moment]) -> tuple[str, ...]:
    freed = sum(state is PageState.FREE for state in after.prefix_states)
    lines = [f"{admitted} of {asked.sharers + 1} requests were admitted; the pool promised each its worst case."]
    if admitted > 1:
        lines.append(
            f"When the first left, {freed} of the {asked.prefix} prefix pages became free: {after.prefix_holders} "
            "others hold them."
        )
        lines.append(
            f"The pool is charged {asked.prefix} pages for the prefix, before and after; a copy for each request would "
            f"be {admitted * asked.prefix}."
        )
    elif admitted == 1:
        rest = "are cached" if PageState.CACHED in moments[-1].prefix_states else "went"
        lines.append(f"Nobody shared: when the first left, its prefix pages {rest}, and the next may hit them.")
    if asked.in_flight and admitted:
        lines.append(
            f"Its step was still in flight: {after.draining} pages that nobody holds drained until the step had ended."
        )
    return tuple(lines)


def _row(moment: Moment) -> tuple[str, ...]:
    figures = (moment.free, moment.private, moment.shared, moment.cached, moment.draining, moment.promised)
    states = ", ".join(dict.fromkeys(state.value for state in moment.prefix_states)) or "-"
    return (moment.event, moment.answer or "-", *map(str, figures), states, str(moment.prefix_holders))


def _plot(moments: list[Moment]) -> Plot:
    lines = tuple(
        Line(name, tuple((number, getattr(moment, name)) for number, moment in enumerate(moments)))
        for name in ("free", "private", "shared", "cached", "draining")
    )
    return Plot("Pages by state", "event", "pages", lines)
