"""The commands put together; errors become one sentence and an exit code, warnings one line."""

from __future__ import annotations

import sys
import warnings
from typing import TextIO

import typer

import keepscore
from keepscore.cli import (
    calibrate,
    check,
    demo,
    evaluate,
    fit,
    infer,
    new_model,
    pilot,
    report,
    simulate,
    train,
)
from keepscore.cli.settings import Voice, with_common_options
from keepscore.cli.shell_words import shell_words
from keepscore.errors import FormatError, KeepscoreError, KeepscoreWarning, StorageError

# What typer raises for wrong words on the command line; of this family it exports only the child.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]

app = typer.Typer(
    no_args_is_help=True,
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
        False, "--version", "-V", help="Print the version.", is_eager=True, callback=_version
    ),
    quiet: bool = typer.Option(False, "--quiet", "-q", help="Say nothing on the way."),
) -> None:
    """Fast neural surrogates of expensive likelihoods, and statistics with them.

    All at once: new-model, fit, infer. Step by step: check-model, simulate, train, evaluate,
    calibrate, infer, report.
    A model is named by its name (sis, gaussian, student-t) or is your own: my_model.py:model.
    """
    Voice.quiet = quiet


app.command("new-model")(new_model.new_model)
app.command("check-model")(with_common_options(check.check_model))
app.command("fit")(with_common_options(fit.fit))
app.command("simulate")(with_common_options(simulate.simulate))
app.command("train")(with_common_options(train.train))
app.command("evaluate")(with_common_options(evaluate.evaluate))
app.command("calibrate")(with_common_options(calibrate.calibrate))
app.command("infer")(with_common_options(infer.infer))
app.command("report")(with_common_options(report.report))
app.command("demo")(demo.demo)
app.command("worth")(with_common_options(pilot.worth))
app.command("verify")(with_common_options(simulate.verify, config=False))
app.command("repair")(with_common_options(simulate.repair, config=False))


def main() -> None:
    warnings.showwarning = _show_warning
    try:
        code = app(sys.argv[1:] or ["--help"], prog_name="keepscore", standalone_mode=False)
    except UsageError as error:
        _fail(_usage(error), 2)
    except (FormatError, StorageError) as error:
        _fail(str(error), 3)
    except KeepscoreError as error:
        _fail(str(error), 2)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _fail(f"{where}{error.strerror or error}.", 3)
    else:
        raise SystemExit(code if isinstance(code, int) else 0)


def _usage(error: Exception) -> str:
    """What is wrong, and where to read how it is right."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "keepscore"
    text = getattr(error, "format_message", error.__str__)().rstrip(".")
    return f"{text}. See `{command} --help`."


def _fail(text: str, code: int) -> None:
    print(f"keepscore: {shell_words(' '.join(text.split()))}", file=sys.stderr)
    raise SystemExit(code)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Ours in one line without the place in our code, which tells a user nothing."""
    if issubclass(category, KeepscoreWarning):
        text = f"keepscore: warning: {shell_words(' '.join(str(message).split()))}\n"
    else:
        text = warnings.formatwarning(message, category, filename, lineno, line)
    print(text, end="", file=file or sys.stderr)
