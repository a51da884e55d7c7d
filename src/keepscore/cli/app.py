"""The commands put together; errors become one sentence and an exit code, warnings one line."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
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


def _add(name: str, line: str, command: Callable[..., None]) -> None:
    """A command; `line` stands in the list of all, whole on a terminal of 80 columns."""
    app.command(name, short_help=line)(command)


_add("new-model", "Write a commented model to make your own of.", new_model.new_model)
_add(
    "check-model",
    "Do simulator, likelihood and score agree?",
    with_common_options(check.check_model),
)
_add("fit", "From a model to a calibrated surrogate, within a time.", with_common_options(fit.fit))
_add("simulate", "Simulate a dataset into a folder.", with_common_options(simulate.simulate))
_add("train", "Train a surrogate on a dataset.", with_common_options(train.train))
_add(
    "evaluate",
    "Compare a surrogate with the exact likelihood.",
    with_common_options(evaluate.evaluate),
)
_add(
    "calibrate",
    "Make a surrogate's tests and sets hold, by simulation.",
    with_common_options(calibrate.calibrate),
)
_add("infer", "Estimates, intervals and tests from your data.", with_common_options(infer.infer))
_add(
    "report", "All about one surrogate or several, on one page.", with_common_options(report.report)
)
_add("demo", "The whole way in five minutes, on an epidemic.", demo.demo)
_add(
    "worth", "Do scores pay on this model? Small runs that tell.", with_common_options(pilot.worth)
)
_add(
    "verify",
    "Compare every byte of a dataset with its checksums.",
    with_common_options(simulate.verify, config=False),
)
_add(
    "repair",
    "Simulate damaged parts of a dataset again.",
    with_common_options(simulate.repair, config=False),
)


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
    mark = _coloured("keepscore:", typer.colors.RED, sys.stderr)
    print(f"{mark} {shell_words(' '.join(text.split()))}", file=sys.stderr)
    raise SystemExit(code)


def _coloured(mark: str, colour: str, stream: TextIO) -> str:
    """In colour on a terminal whose owner has not asked for none (NO_COLOR)."""
    wanted = stream.isatty() and not os.environ.get("NO_COLOR")
    return typer.style(mark, fg=colour, bold=True) if wanted else mark


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
        mark = _coloured("keepscore: warning:", typer.colors.YELLOW, file or sys.stderr)
        text = f"{mark} {shell_words(' '.join(str(message).split()))}\n"
    else:
        text = warnings.formatwarning(message, category, filename, lineno, line)
    print(text, end="", file=file or sys.stderr)
