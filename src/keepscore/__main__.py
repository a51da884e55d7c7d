"""`python -m keepscore` is the command line."""

from keepscore.cli import main

main()
