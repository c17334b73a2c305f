"""The harness runs from a bare checkout, without an installed kvescrow and without z3 or torch where not needed."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

# An interpreter in which kvescrow is not installed, whatever is.
BARE = """
import importlib.util, runpy, sys
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "kvescrow" else find_spec(name, *rest)
"""


def run(repository: Path, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", BARE + program, *arguments],
        cwd=repository,
        capture_output=True,
        text=True,
        check=False,
    )


def test_measure_runs_from_a_bare_checkout(repository: Path) -> None:
    program = 'sys.argv[0] = "measure"; runpy.run_path("gpu_harness/measure.py", run_name="__main__")\n'
    done = run(repository, program, "--batches", "2", "--steps", "2", "--context", "20")
    assert done.returncode == 0, done.stderr
    assert "cpu tiny float32: exact with" in done.stdout
    assert "decode 2 rows:" in done.stdout
    assert "findings 0" in done.stdout


def test_a_user_s_mistake_is_one_line_and_status_2(repository: Path) -> None:
    program = 'sys.argv[0] = "measure"; runpy.run_path("gpu_harness/measure.py", run_name="__main__")\n'
    done = run(repository, program, "--shape", "huge")
    assert done.returncode == 2
    known = "tiny, multi-query, small, smollm2-135m, llama-1b, llama-8b"
    assert done.stderr.strip() == f"measure: no model shape is called 'huge'; choose one of {known}"


def test_evidence_is_read_without_torch_and_nothing_loads_z3(repository: Path) -> None:
    program = """
enable = runpy.run_path("gpu_harness/checkout.py")["enable"]
enable()
import kvescrow.gpu_harness.evidence
assert "torch" not in sys.modules
import kvescrow.gpu_harness.decoder, kvescrow.gpu_harness.probe
assert "z3" not in sys.modules
print(kvescrow.__path__)
"""
    done = run(repository, program)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str([str(repository)])
