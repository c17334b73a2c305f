"""A progress line on standard error where a person watches; nothing where no one does."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Advance(Protocol):
    """Tells how far the work is."""

    def __call__(self, done: int, total: int, what: str) -> None:
        """Show `done` of `total`, and what is being worked on."""
        ...


@contextmanager
def progress(title: str) -> Iterator[Advance]:
    """Show a bar called `title` while the block runs."""
    if not sys.stderr.isatty():
        yield lambda done, total, what: None
        return
    # Late: where nobody watches, nothing is drawn and the library is not loaded.
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        task = bar.add_task(title, total=None)

        def advance(done: int, total: int, what: str) -> None:
            bar.update(task, completed=done, total=total or None, description=f"{title} {what}".rstrip())

        yield advance
