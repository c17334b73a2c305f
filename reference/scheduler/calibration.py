"""A cost model from measured steps: a robust fit, a stated band, and whether unseen steps lie in it (CHK-2, CHK-5).

The steps are dealt into three parts that are never mixed. The coefficients are fitted to the first: least squares on
relative errors under a soft absolute loss, so that a step which something else held up pulls little, and no coefficient
is negative. The band is read off the second: the smallest distance from the prediction inside which the share
`coverage` of steps lies, with the correction for a finite sample of split conformal prediction. The third decides
whether the model is trusted.
"""

import math
from collections.abc import Sequence

from attrs import astuple, fields, frozen

from kvescrow.reference.scheduler.cost import (
    FEMTOSECONDS_PER_NANOSECOND,
    PERMILLE,
    CostModel,
    StepCost,
    StepWork,
    WorkRange,
)
from kvescrow.spec.vocabulary import UserError

COVERAGE = 990
"""Of a thousand steps like the measured ones, those that the band should hold."""
OUTSIDE_AT_MOST = 50
"""Of a thousand unseen steps, those that may lie outside before the model is called failed: five times what the
coverage leaves, since a few hundred steps do not tell 1 % from 3 %."""
SOFTNESS = 0.1
"""Relative error from which on the loss grows with the error and no longer with its square."""
LEAST_STEPS = 100
"""Fewer steps do not show a share of 99 in 100."""

_NANOSECONDS_PER_MICROSECOND = 1000


@frozen
class MeasuredStep:
    """What a step did and how long it took."""

    work: StepWork
    microseconds: int


@frozen
class Checked:
    """A model against steps that neither its fit nor its band has seen.

    Residuals are in thousandths of the prediction.
    """

    steps: int
    inside: int
    """Those in the band."""
    median: int
    """Median residual: where the model is off on the whole."""
    typical: int
    """Median distance."""
    largest: int
    """Largest distance."""

    @property
    def holds(self) -> bool:
        """Whether few enough lie outside (CHK-5)."""
        return (self.steps - self.inside) * PERMILLE <= self.steps * OUTSIDE_AT_MOST


def calibrated(
    fit_to: Sequence[MeasuredStep], banded_by: Sequence[MeasuredStep], coverage: int = COVERAGE
) -> CostModel:
    """Return the model fitted to one part of the steps with its band from another; its range is what both measured.

    Raises:
        UserError: There are too few steps, or scipy is not installed.

    """
    for part in (fit_to, banded_by):
        if len(part) < LEAST_STEPS:
            raise UserError(f"{len(part)} measured steps are too few for a band of 99 in 100: measure {LEAST_STEPS}")
    model = CostModel(cost=fitted(fit_to), range=range_of([*fit_to, *banded_by]))
    distances = sorted(abs(residual(model, step)) for step in banded_by)
    place = min(len(distances), math.ceil((len(distances) + 1) * coverage / PERMILLE))
    return CostModel(model.cost, model.range, band=max(1, distances[place - 1]))


def fitted(steps: Sequence[MeasuredStep]) -> StepCost:
    """Return the coefficients that fit `steps` best. Raises UserError where scipy is not installed."""
    try:
        import numpy
        from scipy.optimize import least_squares
    except ImportError as error:
        raise UserError(f"a fit needs scipy ({error}): install kvescrow[calibration]") from error
    took = numpy.array([step.microseconds for step in steps], dtype=float)
    features = numpy.array([_features(step.work) for step in steps], dtype=float) / took[:, None]
    # Columns of one size, so that a pair and a whole step are sought on one scale.
    scale = numpy.maximum(features.max(axis=0), numpy.finfo(float).tiny)
    scaled = features / scale
    start = numpy.full(scaled.shape[1], 1 / scaled.shape[1])
    found = least_squares(
        lambda sought: scaled @ sought - 1,
        start,
        jac=lambda sought: scaled,
        bounds=(0, numpy.inf),
        loss="soft_l1",
        f_scale=SOFTNESS,
        xtol=1e-12,
    )
    return _cost([float(each) for each in found.x / scale])


def _features(work: StepWork) -> tuple[int, ...]:
    """Return what the coefficients are factors of, in their order."""
    return (1, *astuple(work))


def _cost(microseconds: Sequence[float]) -> StepCost:
    """Return coefficients as integers; a step takes at least a nanosecond."""
    nanoseconds = [each * _NANOSECONDS_PER_MICROSECOND for each in microseconds]
    *linear, pair = nanoseconds
    values = [round(each) for each in linear] + [round(pair * FEMTOSECONDS_PER_NANOSECOND)]
    names = [each.name for each in fields(StepCost)]
    return StepCost(**{**dict(zip(names, values, strict=True)), "fixed": max(1, values[0])})


def range_of(steps: Sequence[MeasuredStep]) -> WorkRange:
    """Return the most of each that was measured."""
    return WorkRange(**{each.name: max(getattr(step.work, each.name) for step in steps) for each in fields(WorkRange)})


def residual(model: CostModel, step: MeasuredStep) -> int:
    """Return how far the step lies above the prediction, in thousandths of it."""
    predicted = model.cost.duration(step.work)
    return round((step.microseconds - predicted) * PERMILLE / predicted)


def checked(model: CostModel, steps: Sequence[MeasuredStep]) -> Checked:
    """Return how `steps` lie around what `model` predicts of them. Raises UserError where there are none."""
    if not steps:
        raise UserError("no step was held out: measure some that the fit does not see")
    residuals = sorted(residual(model, step) for step in steps)
    distances = sorted(abs(each) for each in residuals)
    return Checked(
        steps=len(steps),
        inside=sum(each <= model.band for each in distances),
        median=residuals[len(residuals) // 2],
        typical=distances[len(distances) // 2],
        largest=distances[-1],
    )
