"""The targets by name. Each is imported only when it is used."""

import importlib
import inspect
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path

from attrs import evolve

from kvescrow.checks.targets.subject import Subject
from kvescrow.spec.vocabulary import UserError

TARGETS: Mapping[str, str] = {
    "ledger-memory": "kvescrow.checks.targets.ledgers:memory_subject",
    "ledger-sqlite": "kvescrow.checks.targets.ledgers:sqlite_subject",
    "ledger-postgres": "kvescrow.checks.targets.ledgers:postgres_subject",
    "ledger-valkey": "kvescrow.checks.targets.ledgers:valkey_subject",
    "pages": "kvescrow.checks.targets.pools:pool_subject",
    "composed": "kvescrow.checks.targets.composed:composed_subject",
    "release": "kvescrow.checks.targets.release:release_subject",
    "transformers": "kvescrow.checks.targets.transformers_manager:transformers_subject",
    "sglang": "kvescrow.checks.targets.sglang_manager:sglang_subject",
    "vllm": "kvescrow.checks.targets.vllm_manager:vllm_subject",
    "vllm-scheduler": "kvescrow.checks.targets.vllm_scheduler:vllm_scheduler_subject",
    "vllm-scheduler-at-return": "kvescrow.checks.targets.vllm_scheduler:vllm_scheduler_at_return_subject",
    "limits": "kvescrow.checks.targets.limits_ledger:limits_fixed_subject",
    "limits-moving": "kvescrow.checks.targets.limits_ledger:limits_moving_subject",
    "limits-sliding": "kvescrow.checks.targets.limits_ledger:limits_sliding_subject",
    "token-throttle": "kvescrow.checks.targets.token_throttle_ledger:token_throttle_subject",
    "token-throttle-bounded": "kvescrow.checks.targets.token_throttle_ledger:token_throttle_bounded_subject",
    "vllm-at-return": "kvescrow.checks.targets.vllm_manager:vllm_at_return_subject",
}
"""Name -> `module:factory`, where the factory takes nothing and returns a `Subject`."""


def subject_called(name: str) -> Subject:
    """Return the subject for a name in `TARGETS`, or for `package.module:factory`, also in the working directory.

    Raises `UserError` where there is no such target, its module cannot be imported, or its factory returns
    something else.
    """
    place = TARGETS.get(name, name)
    module_name, colon, factory_name = place.partition(":")
    if not colon:
        raise UserError(f"target {name!r}: choose one of {', '.join(TARGETS)}, or give package.module:factory")
    if str(Path.cwd()) not in sys.path:
        # As `python -m` does, so that a target beside the user is found wherever the command is installed.
        sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except (ImportError, ValueError, TypeError) as error:
        raise UserError(
            f"target {name!r}: cannot import {module_name} ({error}): install it or correct the name"
        ) from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise UserError(f"target {name!r}: {module_name} cannot be imported ({raised(error)}): correct it") from error
    factory = getattr(module, factory_name, None)
    if not callable(factory):
        raise UserError(
            f"target {name!r}: {module_name} has no function {factory_name}: correct the name after the colon"
        )
    try:
        inspect.signature(factory).bind()
    except (TypeError, ValueError) as error:
        raise UserError(
            f"target {name!r}: {factory_name} cannot be called ({error}): name a function without arguments"
        ) from error
    try:
        subject = factory()
    except (KeyboardInterrupt, UserError):
        raise
    except BaseException as error:
        raise UserError(f"target {name!r}: {factory_name} made no subject ({raised(error)}): correct it") from error
    if not isinstance(subject, Subject):
        raise UserError(f"target {name!r}: {place} returned {type(subject).__name__}: let it return a Subject")
    return subject


def told_opening(name: str, subject: Subject) -> Subject:
    """Return `subject`, opened so that what goes wrong in that is a `UserError`: there is nothing to compare yet."""

    def opened(setup: object) -> object:
        try:
            target = subject.open(setup)
        except (KeyboardInterrupt, UserError):
            raise
        except BaseException as error:
            raise UserError(f"target {name!r}: cannot be opened ({raised(error)}): correct its adapter") from error
        if target is None:
            raise UserError(f"target {name!r}: its opening returned None: let it return the target")
        return target

    return evolve(subject, open=opened)


def raised(error: BaseException) -> str:
    """Return what someone's own code raised, with the line where it did."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    # A syntax error says itself where it is.
    place = "" if isinstance(error, SyntaxError) else f", {last.filename}:{last.lineno}"
    return f"{type(error).__name__}: {error}{place}"
