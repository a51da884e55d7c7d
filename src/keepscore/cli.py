"""The command line; `keepscore --help` lists the commands."""

from __future__ import annotations

import typer

app = typer.Typer(no_args_is_help=True, add_completion=False)


@app.callback()
def _root() -> None:
    """Fast neural surrogates of expensive likelihoods, and statistics with them."""


def main() -> None:
    app()
