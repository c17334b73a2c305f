"""`kvescrow new-target`."""

from pathlib import Path

import click

from kvescrow.checks.new_target import write_target


@click.command(epilog="Example: kvescrow new-target mine && cd mine && kvescrow fuzz --target kvescrow_target:subject")
@click.argument("folder", type=click.Path(path_type=Path))
def command(folder: Path) -> int:
    """Write a working adapter of a toy engine, with its test, to start your own from."""
    for path in write_target(folder):
        click.echo(path)
    click.echo(f"next: cd {folder} && kvescrow fuzz --target kvescrow_target:subject")
    return 0
