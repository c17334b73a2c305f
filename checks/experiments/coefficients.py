"""The step costs that experiments and sheets predict with: the synthetic default, or a reader's own file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import field, fields, frozen

from kvescrow.checks.experiments.result import Input, Origin
from kvescrow.reference.replay import CostConfig, read_config
from kvescrow.reference.scheduler import StepCost
from kvescrow.spec.vocabulary import UserError


@frozen
class Coefficients:
    """A cost model and where it comes from."""

    cost: StepCost = field(factory=StepCost)
    origin: Origin = Origin.SYNTHETIC

    def inputs(self) -> tuple[Input, ...]:
        """Return the coefficients as inputs of an experiment."""
        cost = self.cost
        return (
            Input("fixed cost of a step", cost.fixed, "ns", self.origin),
            Input("cost of a prompt token", cost.per_prefill_token, "ns", self.origin),
            Input("cost of a decoding sequence", cost.per_decode_sequence, "ns", self.origin),
            Input("cost of a context token read", cost.per_context_token, "ns", self.origin),
            Input("cost of an attended pair", cost.per_attended_pair, "fs", self.origin),
        )


def read_coefficients(path: Path | None) -> Coefficients:
    """Return the coefficients in the `[cost]` table of a replay's TOML file, taken as measured; None: the default.

    Raises `UserError` where the file is none.
    """
    return Coefficients() if path is None else Coefficients(read_config(path).cost.model, Origin.MEASURED)


def coefficients_of(table: Mapping[str, Any]) -> Coefficients:
    """Return the coefficients in a `[cost]` table whose key `measured` says where they come from.

    Raises `UserError` naming the key that is unknown or outside its domain.
    """
    given = {name: value for name, value in table.items() if name != "measured"}
    known = [each.name for each in fields(CostConfig)]
    for name in given:
        if name not in known:
            raise UserError(f"cost.{name}: unknown; there are measured, {', '.join(known)}")
    try:
        cost = CostConfig(**given).model
    except UserError as error:
        raise UserError(f"cost.{error}") from None
    return Coefficients(cost, Origin.MEASURED if table.get("measured") is True else Origin.SYNTHETIC)
