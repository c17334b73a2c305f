"""Run from a bare checkout: make `kvescrow` name this repository without installing it.

A script of this folder starts with

    if not __package__:
        runpy.run_path(str(Path(__file__).with_name("checkout.py")))["enable"]()

after which `import kvescrow.gpu_harness.model` and the like work. Nothing is written to disk.
"""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def enable() -> None:
    """Bind `kvescrow` to the repository root, unless an installed `kvescrow` is already importable."""
    if importlib.util.find_spec("kvescrow") is not None:
        return
    package = ModuleType("kvescrow")
    package.__path__ = [str(Path(__file__).resolve().parents[1])]
    sys.modules["kvescrow"] = package
