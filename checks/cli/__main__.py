"""`python -m kvescrow.checks.cli` is the `kvescrow` command."""

from kvescrow.checks.cli.front import main

main()
