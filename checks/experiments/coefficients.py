"""The step costs that experiments and sheets predict with: the synthetic default, or what a reader measured."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import field, fields, frozen

from kvescrow.checks.experiments.result import Input, Origin
from kvescrow.reference.replay import CostConfig, read_config
from kvescrow.reference.scheduler.cost import CostModel, StepCost, WorkRange
from kvescrow.spec.vocabulary import UserError


@frozen
class Coefficients:
    """A cost model and where it comes from."""

    model: CostModel = field(factory=CostModel)
    origin: Origin = Origin.SYNTHETIC

    @property
    def cost(self) -> StepCost:
        """The coefficients alone."""
        return self.model.cost

    def inputs(self) -> tuple[Input, ...]:
        """Return the coefficients as inputs of an experiment."""
        cost = self.cost
        return (
            Input("fixed cost of a step", cost.fixed, "ns", self.origin),
            Input("cost of a prompt token", cost.per_prefill_token, "ns", self.origin),
            Input("cost of a decoding sequence", cost.per_decode_sequence, "ns", self.origin),
            Input("cost of a context token read", cost.per_context_token, "ns", self.origin),
            Input("cost of an attended pair", cost.per_attended_pair, "fs", self.origin),
            Input("band around a prediction", self.model.band, "thousandths", self.origin),
        )


def read_coefficients(path: Path | None) -> Coefficients:
    """Return measured coefficients; None: the synthetic default.

    A `.json` file is the result of `kvescrow calibrate`, with its range and band; another one is a replay's TOML file,
    of which the `[cost]` table is taken. Raises `UserError` where the file is neither, or the calibration failed.
    """
    if path is None:
        return Coefficients()
    if path.suffix == ".json":
        return Coefficients(_calibrated(path), Origin.MEASURED)
    return Coefficients(CostModel(read_config(path).cost.model), Origin.MEASURED)


def coefficients_of(table: Mapping[str, Any], folder: Path) -> Coefficients:
    """Return the coefficients in a `[cost]` table: its own, which `measured` marks, or those of a `calibration` file.

    The file's name is relative to `folder`. Raises `UserError` naming the key that is unknown or outside its domain.
    """
    if "calibration" in table:
        others = [name for name in table if name != "calibration"]
        if others:
            raise UserError(f"cost.{others[0]}: the calibration has all coefficients; leave one of the two out")
        return Coefficients(_calibrated(folder / str(table["calibration"])), Origin.MEASURED)
    given = {name: value for name, value in table.items() if name != "measured"}
    known = [each.name for each in fields(CostConfig)]
    for name in given:
        if name not in known:
            raise UserError(f"cost.{name}: unknown; there are measured, calibration, {', '.join(known)}")
    try:
        cost = CostConfig(**given).model
    except UserError as error:
        raise UserError(f"cost.{error}") from None
    return Coefficients(CostModel(cost), Origin.MEASURED if table.get("measured") is True else Origin.SYNTHETIC)


def _calibrated(path: Path) -> CostModel:
    """Return the model that `kvescrow calibrate` fitted."""
    try:
        found = json.loads(path.read_text("utf-8"))
        measured = found["range"]
        model = CostModel(
            StepCost(**found["coefficients"]), WorkRange(**measured) if measured else None, found["band_permille"]
        )
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(f"{path}: no calibration ({error}); write it with `kvescrow calibrate --json`") from error
    if found.get("verdict") != "passed":
        raise UserError(f"{path}: this calibration did not pass, so its model is not trusted; calibrate again")
    return model
