"""`kvescrow new-target`."""

import shlex
from pathlib import Path

import click

from kvescrow.checks.new_target import write_target


@click.command(epilog="Example: kvescrow new-target mine && cd mine && kvescrow fuzz --target kvescrow_target:subject")
@click.option("--ledger", is_flag=True, help="A ledger of capacity, such as a rate limiter, instead of an engine.")
@click.argument("folder", type=click.Path(path_type=Path))
def command(ledger: bool, folder: Path) -> int:
    """Write a working adapter of a toy engine, with its test, to start your own from."""
    for path in write_target(folder, ledger=ledger):
        click.echo(path)
    click.echo(f"next: cd {shlex.quote(str(folder))} && kvescrow fuzz --target kvescrow_target:subject")
    return 0
