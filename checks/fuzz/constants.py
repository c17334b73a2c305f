"""Keeps Hypothesis from drawing constants of the modules that are loaded.

Hypothesis draws one integer in twenty from constants: some of its own, and those that stand in loaded modules which are
not installed as packages. What a seed draws would so depend on whether kvescrow is installed or run from a checkout, on
the module of the target, and on what pytest has loaded beside it; the line that repeats a failure would not repeat it
elsewhere. There is no setting for it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

_FOUND = "_get_local_constants"
"""Where Hypothesis asks for them; not part of its interface, so a version that has it not is left as it is."""


@contextmanager
def none_of_loaded_modules() -> Iterator[None]:
    """While this is open, only Hypothesis' own constants are drawn."""
    places: Any = providers
    if not hasattr(places, _FOUND):
        yield
        return
    found = getattr(places, _FOUND)
    places.CONSTANTS_CACHE.cache.clear()
    setattr(places, _FOUND, Constants)
    try:
        yield
    finally:
        setattr(places, _FOUND, found)
        places.CONSTANTS_CACHE.cache.clear()
