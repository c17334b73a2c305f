"""`kvescrow sheet`."""

from pathlib import Path

import click
from attrs import asdict

from kvescrow.checks.cli.output import conclude, json_option, write_atomically
from kvescrow.spec.vocabulary import UserError


@click.command(epilog="Example: kvescrow sheet docs/examples/worker.toml --output sheet.md")
@click.argument("worker", metavar="WORKER.toml", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="Write the Markdown to this file.")
@json_option
def command(worker: Path, output: Path | None, json_file: str | None) -> int:
    """Compute the design sheet of one worker: memory, pages, admission, chunks, cancellation, release, assumptions.

    WORKER.toml says the model's shape, the device's memory, objectives and classes; docs/examples/worker.toml is one.
    """
    from kvescrow.checks.sheet import read_worker, sheet_of, sheet_page

    if output is not None and output.resolve() == worker.resolve():
        raise UserError(f"{output}: is the worker itself; name another file for --output")
    specification = read_worker(worker)
    sheet = sheet_of(specification)
    page = sheet_page(specification)
    if output is not None:
        write_atomically(output, page)
    figures = {
        "memory": asdict(sheet.memory),
        "usable_pages": sheet.usable,
        "classes": {each.name: asdict(each) for each in sheet.needs},
        "chunks": {
            name: [
                {"decodes": line.decodes, "chunk": line.reply.tokens, "reason": line.reply.reason.value}
                for line in lines
            ]
            for name, lines in sheet.chunks.items()
        },
        "infeasible_from": {
            name: None if found is None else {"decodes": found[0], "reason": found[1].value}
            for name, found in sheet.infeasible_from.items()
        },
        "requests_to_pass": sheet.requests_to_pass,
        "costs": specification.coefficients.origin.value,
    }
    summary = page if output is None else f"wrote {output}"
    return conclude({"verdict": "passed", "worker": specification.name, **figures}, summary, json_file)
