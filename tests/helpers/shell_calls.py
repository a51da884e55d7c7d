"""A command as the shell would run it, in this process: no start-up is paid for each."""

import contextlib
import io
import sys
import warnings
from types import SimpleNamespace

import pytest

from keepscore.cli.app import main
from keepscore.errors import KeepscoreWarning


def call(patch, *words):
    """The exit code of `keepscore` with these words, through the `main` of the console script."""
    patch.setattr(sys, "argv", ["keepscore", *map(str, words)])
    patch.setattr(warnings, "showwarning", warnings.showwarning)  # main sets its own
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code


def run(*words, cwd, code=0):
    """What `keepscore` prints in this folder, where it ends with that code; warnings do not end
    it, as in a shell."""
    out, err = io.StringIO(), io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        warnings.catch_warnings(),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        warnings.simplefilter("default", KeepscoreWarning)
        patch.chdir(cwd)
        ended = call(patch, *words)
    done = SimpleNamespace(stdout=out.getvalue(), stderr=err.getvalue())
    assert ended == code, f"{words}\n{done.stdout}\n{done.stderr}"
    return done
