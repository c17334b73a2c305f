"""Kernels are built for a device that is not here; what cannot be built fails, and without triton it is not_run."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HAS_TRITON = importlib.util.find_spec("triton") is not None
needs_triton = pytest.mark.skipif(not HAS_TRITON, reason="not_run: triton is not installed (make kernels)")


def run(*arguments: str, code: str = "") -> subprocess.CompletedProcess[str]:
    """The module's command, in a process of its own where nothing is interpreted."""
    program = (
        f"{code}\nimport sys\nfrom kvescrow.gpu_harness.kernels.__main__ import main\nsys.exit(main(sys.argv[1:]))"
    )
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    return subprocess.run(
        [sys.executable, "-c", program, *arguments], env=environment, capture_output=True, text=True, check=False
    )


def test_without_triton_nothing_was_built_and_nothing_passed() -> None:
    hidden = (
        "import importlib.util as u; f = u.find_spec; u.find_spec = lambda n, *r: None if n == 'triton' else f(n, *r)"
    )
    done = run(code=hidden)
    assert done.returncode == 3, done.stderr
    assert done.stdout.strip() == "kernels: not_run: triton is not installed (make kernels)"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(("--shapes", "huge"), "no model shape is called 'huge'"), (("--dtypes", "float8"), "'float8' is not known")],
)
def test_a_user_s_mistake_is_one_line_and_status_2(arguments: tuple[str, ...], message: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


@needs_triton
def test_every_kernel_of_a_shape_is_built_to_machine_code(tmp_path: Path) -> None:
    result = tmp_path / "kernels.json"
    done = run("--shapes", "multi-query", "--dtypes", "bfloat16", "--json", str(result))
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(result.read_text("utf-8"))
    assert (found["verdict"], found["capability"]) == ("passed", 90)
    names = {each["name"].split()[0] for each in found["kernels"]}
    assert names == {
        "attend_contiguous",
        "attend_splits",
        "gate_rows",
        "join_splits",
        "look_at_pages",
        "multiply_tiles",
        "normalise_rows",
        "turn_rows",
        "wait_for_host",
        "write_rows",
    }
    assert all(each["registers"] > 0 and not each["spilled"] and not each["error"] for each in found["kernels"])
    on_tensor_cores = {each["name"].split()[0] for each in found["kernels"] if each["tensor_cores"]}
    assert on_tensor_cores == {"attend_contiguous", "attend_splits", "multiply_tiles"}


@needs_triton
def test_a_gate_reads_the_host_s_flag_and_the_clock_in_every_turn_of_its_loop() -> None:
    code = """
import torch, triton
from kvescrow.gpu_harness.kernels.compilation import GPUTarget, Specialisation, wait_for_host
source = Specialisation(wait_for_host, torch.int32, {}, warps=1).source()
print(triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 1}).asm["ptx"])
raise SystemExit
"""
    done = run(code=code)
    assert done.returncode == 0, done.stderr
    (loop,) = re.findall(r"^(\$\S+):.*\n((?:.*\n)*?)\s*@%p\d+ bra \t?\1;", done.stdout, re.MULTILINE)
    assert "ld.volatile.global" in loop[1] and "%globaltimer" in loop[1]


@needs_triton
def test_a_kernel_that_cannot_be_built_fails_by_name() -> None:
    broken = """
import kvescrow.gpu_harness.kernels.compilation as c
whole = c.specialisations
from attrs import evolve
c.specialisations = lambda *a: [evolve(whole(*a)[0], constants={**whole(*a)[0].constants, "ROWS": 24})]
"""
    done = run("--shapes", "tiny", "--dtypes", "bfloat16", code=broken)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "NOT BUILT: CompilationError" in done.stdout
    assert "kernels: failed: 0 of 1 built for sm_90" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "mistake"),
    [
        (["--capability", "3"], "capability: 3 is not known; choose from 80, 86, 89, 90"),
        (["--capability", "-90"], "capability: -90 is not known"),
        (["--json", "absent/kernels.json"], "absent/kernels.json: cannot be written"),
        (["--json", "."], ".: is a directory"),
        (["--dtypes", ""], "dtypes: '' is not known"),
    ],
)
def test_a_mistake_is_told_before_anything_is_built(
    arguments: list[str], mistake: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from kvescrow.gpu_harness.kernels.__main__ import main

    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith(f"kernels: {mistake}")
