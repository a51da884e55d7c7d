"""The commands put together, and errors turned into one sentence and an exit code."""

from __future__ import annotations

import sys

import typer

import keepscore
from keepscore.cli import (
    bench,
    calibrate,
    check,
    demo,
    evaluate,
    infer,
    report,
    reproduce,
    simulate,
    train,
    worth,
)
from keepscore.errors import FormatError, KeepscoreError, StorageError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"keepscore {keepscore.__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: bool = typer.Option(
        False, "--version", help="Print the version.", is_eager=True, callback=_version
    ),
) -> None:
    """Fast neural surrogates of expensive likelihoods, and statistics with them.

    The way of a model: check-model, simulate, train, evaluate, calibrate, infer, report.
    """


app.command("check-model")(check.check_model)
app.command("simulate")(simulate.simulate)
app.command("train")(train.train)
app.command("evaluate")(evaluate.evaluate)
app.command("calibrate")(calibrate.calibrate)
app.command("infer")(infer.infer)
app.command("report")(report.report)
app.command("demo")(demo.demo)
app.command("reproduce")(reproduce.reproduce)
app.command("worth")(worth.worth)
app.command("bench")(bench.bench)
app.command("verify")(simulate.verify)
app.command("repair")(simulate.repair)


def main() -> None:
    try:
        app()
    except (FormatError, StorageError) as error:
        _fail(error, 3)
    except KeepscoreError as error:
        _fail(error, 2)


def _fail(error: Exception, code: int) -> None:
    message = " ".join(str(error).split())
    print(f"keepscore: {message}", file=sys.stderr)
    raise SystemExit(code)
