"""The same output in every process: documents, results and what seeds draw, under two hash seeds, byte for byte."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).parent / "everything_printed.py"


def printed(repository: Path, folder: Path, seed: str) -> dict[str, str]:
    file = folder / f"{seed}.json"
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(repository), str(file)],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, str] = json.loads(file.read_text())
    return found


def test_documents_results_and_seeds_are_the_same_under_two_hash_seeds(repository: Path, tmp_path: Path) -> None:
    one, other = (printed(repository, tmp_path, seed) for seed in ("0", "4242"))
    assert len(one) == 15
    assert [name for name in one if one[name] != other[name]] == []
