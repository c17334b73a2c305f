"""`kvescrow conform`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from kvescrow.checks.cli.output import FiniteRange, conclude, json_option
from kvescrow.checks.cli.progress import progress
from kvescrow.gpu_harness.options import OPTIONS, Option


def _given(option: Option) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The decorator for an option that the script of a bare checkout has as well."""
    if option.kind is bool:
        return click.option(option.flag, is_flag=True, help=option.help)
    kinds: dict[type, Any] = {
        int: click.INT if option.least is None else click.IntRange(option.least, option.most),
        float: FiniteRange(option.least),
        Path: click.Path(dir_okay=False, path_type=Path),
    }
    default = option.default
    return click.option(
        option.flag, type=kinds.get(option.kind), default=default, show_default=default is not None, help=option.help
    )


def _all_given(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(OPTIONS):
        function = _given(option)(function)
    return function


@click.command(epilog="Example: kvescrow conform --device cpu --sabotage all")
@_all_given
@json_option
def command(json_file: str | None, **asked: Any) -> int:
    """Run a recorded workload on a real paged-KV decoder under the reference, and watch its memory.

    Every step checks the pages that it reads and writes against their stamps, on the device. Reclaimed pages are
    poisoned, shared ones fingerprinted, and what is sampled and written must equal an independent dense decode. Cancels
    come while steps are in flight, outputs grow beyond what was reserved, the weights change, and the worker is killed
    and replaced; one that takes a dead one's place has a journal of its own, FILE.2 and so on. A device that is not in
    this machine is not_run, never passed.

    A device ends its steps when it does, so each run takes a course of its own. With --fixed-order the seed decides
    when the worker hears of them, and a run that fails can be repeated.
    """
    # torch takes seconds to load.
    from kvescrow.gpu_harness.front import Asked, run

    with progress("conform") as advance:
        report = run(Asked(**asked), lambda done, total: advance(done, total, ""))
    return conclude(report.json, report.summary, json_file)
