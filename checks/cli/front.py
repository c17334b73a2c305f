"""The `kvescrow` command: its verbs, and how mistakes are told."""

import errno
import io
import os
import sys
from contextlib import suppress
from typing import Any

import click

from kvescrow.checks.cli.output import EXIT_NOT_PASSED, EXIT_USER_ERROR
from kvescrow.spec.vocabulary import UserError

_VERBS = {
    "verify": ("kvescrow.checks.cli.verify", "Run the whole of it on small sizes; one verdict table."),
    "prove": ("kvescrow.checks.cli.prove", "Prove every row against every invariant with Z3."),
    "explore": ("kvescrow.checks.cli.explore", "Visit every reachable state of small instances."),
    "agree": ("kvescrow.checks.cli.agree", "Ask TLC, SPIN and rumur about the same instances."),
    "fuzz": ("kvescrow.checks.cli.fuzz", "Drive an implementation beside the tables, step by step."),
    "targets": ("kvescrow.checks.cli.targets", "Fuzz other people's engines, installed on demand."),
    "new-target": ("kvescrow.checks.cli.new_target", "Write an adapter to start your own target from."),
    "torture": ("kvescrow.checks.cli.torture", "Let stores suffer crashes, lost replies and full disks."),
    "replay": ("kvescrow.checks.cli.replay", "Run a workload trace on virtual time."),
    "conform": ("kvescrow.checks.cli.conform", "Drive a real paged-KV decoder and watch its memory."),
    "calibrate": ("kvescrow.checks.cli.calibrate", "Fit the cost model to a real decoder; the chunk rule at work."),
    "grade": ("kvescrow.checks.cli.grade", "Grade a candidate against its baseline: may it be shipped?"),
    "diagnose": ("kvescrow.checks.cli.diagnose", "Say where a run lost time, and what may have caused it."),
    "check-journal": ("kvescrow.checks.cli.check_journal", "Check a recorded journal against the tables."),
    "render": ("kvescrow.checks.cli.render", "Write or check the generated documents."),
    "mutate": ("kvescrow.checks.cli.mutate", "Change every row in every small way; see which check notices."),
    "trace": ("kvescrow.checks.cli.trace", "Lead from each requirement to what keeps it."),
    "coverage": ("kvescrow.checks.cli.coverage", "Ask each check which rows and false guards it sees."),
    "experiment": ("kvescrow.checks.cli.experiment", "Ask one question, with constraints to move."),
    "sheet": ("kvescrow.checks.cli.sheet", "Compute the design sheet of one worker."),
    "report": ("kvescrow.checks.cli.report", "Write a static site for reviewers, from files alone."),
    "bench": ("kvescrow.checks.cli.bench", "Measure against a peer in one run."),
}
"""Verb -> (module, one line). The module is imported only when its verb is used."""


class _Verbs(click.Group):
    """Loads a verb's module when the verb is used, so that the front door opens at once."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the verbs in the order in which a newcomer meets them."""
        return list(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of `cmd_name` and return its command; None where there is no such verb."""
        if cmd_name not in _VERBS:
            return None
        module = __import__(_VERBS[cmd_name][0], fromlist=["command"])
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the verbs without importing them."""
        with formatter.section("Verbs"):
            formatter.write_dl([(verb, line) for verb, (_, line) in _VERBS.items()])


@click.command(
    cls=_Verbs,
    epilog="Example: kvescrow verify --json result.json     Help of a verb: kvescrow fuzz --help",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="kvescrow", message="kvescrow %(version)s")
def kvescrow() -> None:
    """Hold LLM-serving capacity in escrow: specified as tables, proved, fuzzed, and watched in memory."""


_REFUSED = frozenset({errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.ENAMETOOLONG})
"""What the system says of a file that it refuses, wherever a verb writes one."""


def _drop_output() -> None:
    """Let what was not written of the output go nowhere, so that Python does not try again at its exit."""
    with suppress(OSError, ValueError):  # An output that is not the process's own has no descriptor.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with its status. A user's mistake is one message, never a traceback."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A name from a file may have characters that the terminal's encoding lacks; they are told escaped.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        status: Any = kvescrow.main(args=arguments, prog_name="kvescrow", standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()
    except UserError as error:
        click.echo(f"kvescrow: {error}", err=True)
        sys.exit(EXIT_USER_ERROR)
    except click.ClickException as error:
        error.show()
        sys.exit(EXIT_USER_ERROR)
    except (click.Abort, KeyboardInterrupt):
        click.echo("kvescrow: interrupted", err=True)
        sys.exit(130)
    except SystemExit as left:
        # No verb leaves so: code that a verb was driving did, and what it did not finish is no pass.
        click.echo(f"kvescrow: what was driven left Python ({left!r}); the check did not end", err=True)
        sys.exit(EXIT_NOT_PASSED)
    except BrokenPipeError:
        # The reader of our output left; there is no one to tell.
        _drop_output()
        sys.exit(141)
    except OSError as error:
        if error.errno not in _REFUSED:
            raise
        _drop_output()
        place = "a file of this verb, or its output" if error.filename is None else error.filename
        click.echo(f"kvescrow: {place}: cannot be written ({error.strerror}); make room, or name another", err=True)
        sys.exit(EXIT_USER_ERROR)
    sys.exit(status if isinstance(status, int) else 0)
