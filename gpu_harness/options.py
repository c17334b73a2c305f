"""What can be asked of a conformance run, in one list for `kvescrow conform` and for the script of a bare checkout.

No torch here: a command line that only shows its help does not wait for it. Fields that a user can set and that are in
neither list would be options that nobody can give, so a test compares them.
"""

from pathlib import Path

from attrs import frozen

MOST_SEED = 2**62
"""Seeds are counted up from the first one, and must fit into 64 bits with a sign."""


@frozen
class Option:
    """One field of `front.Asked`: its type, what it means, its default, and the least and the most that is taken."""

    name: str
    kind: type
    """str, int, float, Path, or bool for one that is given or not."""
    help: str
    default: str | int | None = None
    least: int | None = None
    most: int | None = None

    @property
    def flag(self) -> str:
        """How it is given."""
        return f"--{self.name.replace('_', '-')}"


OPTIONS = (
    Option("device", str, "auto (cuda where there is one), cpu, cuda or cuda:N.", "auto"),
    Option(
        "sabotage",
        str,
        "Make one known mistake and pass only where the evidence that must show it does. `all` makes every one, and "
        "the printed matrix names them.",
    ),
    Option("requests", int, "Requests of the trace; 100 where left out."),
    Option("seed", int, "Seed of weights, tokens and cancels.", 1, least=0, most=MOST_SEED),
    Option("seeds", int, "Run sabotages under so many seeds.", 1),
    Option("dtype", str, "float32 or bfloat16.", "float32"),
    Option("shape", str, "Shape of the model: tiny, small, llama-1b, ...", "tiny"),
    Option("trace", str, "A packaged trace, or a file in a known format; mooncake where left out."),
    Option("journal", Path, "Write the journal of every decision to this new file, for `kvescrow check-journal`."),
    Option("records", Path, "Write a record of each request to this new file, for `kvescrow grade`."),
    Option("weights", str, "seeded, or smollm2: a real model, prompts of text.", "seeded"),
    Option("mode", str, "exact (compared bit for bit), or fast.", "exact"),
    Option("calm", bool, "No growth, no change of weights, no killed worker."),
    Option(
        "own_process",
        bool,
        "Run the worker's device in a process of its own; killing the worker is then SIGKILL of that process.",
    ),
    Option(
        "fixed_order",
        bool,
        "Take in what the device has done at turns that the seed fixes, and not as it ends: the same seed then gives "
        "the same journal, byte for byte, so that a run that fails can be repeated.",
    ),
    Option("minutes", float, "Run after run for so long, each with another seed.", least=0),
)
