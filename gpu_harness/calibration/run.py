"""A whole calibration: measure, fit, check on unseen steps, then serve with the rule and without it."""

import random
from collections.abc import Callable, Iterator

from attrs import field, frozen, validators

from kvescrow.gpu_harness.calibration.grid import Grid, measured
from kvescrow.gpu_harness.calibration.result import Calibration, Infeasible
from kvescrow.gpu_harness.calibration.serve import Load, Served, fixed, serve
from kvescrow.gpu_harness.calibration.workbench import Bench
from kvescrow.reference.scheduler import (
    ChunkRule,
    CostModel,
    GapBudget,
    MeasuredStep,
    Moment,
    calibrated,
    checked,
    of_chunk,
    of_decodes,
)
from kvescrow.reference.scheduler.cost import PERMILLE

GRANULE = 8
"""Tokens: fine enough that a budget is used, coarse enough that chunks are of a few sizes."""
HEADROOM = 100
"""Thousandths of the budget that the rule is not given: its upper edge holds for 99 of 100 steps, so that a rule which
used all of the budget would have its 99th percentile on the edge, and time between steps is not in the model."""
TYPICAL_CHUNK = 96
"""The budget that is used where none is given leaves a chunk of so many tokens in the middle of a prompt."""

_positive = [validators.instance_of(int), validators.ge(1)]

Told = Callable[[int, int, str], None]
"""Called with the parts done, all parts, and what is next."""


@frozen
class Plan:
    """What is measured and served."""

    grid: Grid = field(factory=Grid)
    load: Load = field(factory=Load)
    gap: int | None = field(default=None, validator=validators.optional(_positive))
    """Token-gap budget in microseconds; None: see TYPICAL_CHUNK."""
    seed: int = 1

    @property
    def slots(self) -> int:
        """Requests at a time."""
        return max(self.grid.slots, self.load.decodes + 1)

    @property
    def positions(self) -> int:
        """Most tokens of a request."""
        return max(self.grid.positions, self.load.positions)


def calibrate(bench: Bench, plan: Plan, told: Told = lambda done, total, next_: None) -> Calibration:
    """Calibrate on `bench` and show the rule at work. Raises UserError where too few steps are measured."""
    parts = 7
    told(0, parts, "warming up")
    for _ in measured(bench, Grid(decodes=(2,), contexts=(16,), chunks=(8, 256)), random.Random(plan.seed)):
        pass
    # What is held out is measured between two passes over the grid, so that a machine whose pace changes is no liar.
    told(1, parts, "measuring the grid")
    steps = list(measured(bench, plan.grid, random.Random(plan.seed)))
    told(2, parts, "measuring what is held out")
    draw = random.Random(plan.seed + 1)
    held_out = tuple(measured(bench, plan.grid.between(draw), draw))
    told(3, parts, "measuring the grid again")
    steps += measured(bench, plan.grid, random.Random(plan.seed + 2))
    fit_to, banded_by = _dealt(steps, random.Random(plan.seed))
    model = calibrated(fit_to, banded_by)
    gap = plan.gap or _typical_gap(model, plan.load)
    budget = GapBudget(_given(gap), largest=max(plan.grid.chunks), granule=GRANULE)
    told(4, parts, "serving with the rule")
    rule = ChunkRule(model, budget)
    with_rule = serve(bench, plan.load, rule.choose, rule)
    told(5, parts, "serving with a fixed chunk")
    with_fixed = serve(bench, plan.load, fixed(budget.largest), ChunkRule(model, budget))
    told(6, parts, "serving under a budget that cannot be kept")
    return Calibration(
        model=model,
        gap=gap,
        budget=budget,
        fit_to=tuple(fit_to),
        banded_by=tuple(banded_by),
        held_out=held_out,
        check=checked(model, held_out),
        with_rule=with_rule,
        with_fixed=with_fixed,
        infeasible=(_too_small(bench, model, plan), *_answers(model, budget, plan)),
    )


def _dealt(steps: list[MeasuredStep], draw: random.Random) -> tuple[list[MeasuredStep], list[MeasuredStep]]:
    """Return the steps in two halves by lot, so that one is no later and no warmer than the other."""
    dealt = draw.sample(steps, len(steps))
    return dealt[::2], dealt[1::2]


def _typical_gap(model: CostModel, load: Load) -> int:
    decodes = of_decodes([load.context + load.most_steps // 2] * load.decodes)
    needed = model.at_most(of_chunk(load.prompt // 2, TYPICAL_CHUNK) + decodes)
    return needed * PERMILLE // (PERMILLE - HEADROOM)


def _given(gap: int) -> int:
    """Return what of the budget the rule is given, in microseconds; at least one."""
    return max(1, gap * (PERMILLE - HEADROOM) // PERMILLE)


# --- what cannot be done ----------------------------------------------------------------------------------------------


def _too_small(bench: Bench, model: CostModel, plan: Plan) -> Infeasible:
    """Serve under half of what the decodes alone are predicted to take."""
    alone = of_decodes([plan.load.context] * plan.load.decodes)
    budget = GapBudget(max(1, model.at_most(alone) // 2), largest=max(plan.grid.chunks), granule=GRANULE)
    rule = ChunkRule(model, budget)
    served: Served = serve(bench, plan.load, rule.choose, rule)
    return Infeasible(f"a gap of {budget.gap} us beside {plan.load.decodes} decodes", served.given_up)


def _answers(model: CostModel, budget: GapBudget, plan: Plan) -> Iterator[Infeasible]:
    """Ask the rule, without serving, for what else it must name."""
    decodes = of_decodes([plan.load.context] * plan.load.decodes)
    late = Moment(0, plan.load.prompt, decodes, time_left=1)
    yield Infeasible("a prompt with 1 us to its deadline", ChunkRule(model, budget).choose(late).reason)
    many = of_decodes([1] * (max(plan.grid.decodes) + 1))
    beyond = Moment(0, plan.load.prompt, many)
    yield Infeasible("more decodes than were measured", ChunkRule(model, budget).choose(beyond).reason)
    failed = ChunkRule(model, budget, trusted=False).choose(Moment(0, plan.load.prompt, decodes))
    yield Infeasible("a model that left its band", failed.reason)
