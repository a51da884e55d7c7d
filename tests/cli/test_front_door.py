"""A stranger's first commands: a new model, every command with it, words of the shell."""

import ast
import io
import json
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import keepscore
from keepscore.cli.app import app, main
from keepscore.cli.shell_words import shell_words
from keepscore.errors import DomainError
from keepscore.evaluation.scorecard import SIZES, Size

OWN = "waiting_times.py:model"


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """A folder with a new model, its data and a surrogate, by commands alone."""
    folder = tmp_path_factory.mktemp("stranger")
    path = list(sys.path)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setitem(SIZES, "small", Size(60, 20, 4, 2, 2))
        call("new-model", "waiting_times.py")
        call("simulate", OWN, "-n", 300, "--out", "data", "--jobs", 1)
        words = ("--network", "mlp-1k", "--max-epochs", 2, "--min-epochs", 2)
        call("train", "data", "--out", "run", *words)
        np.savetxt("xs.csv", np.random.default_rng(0).gamma(2.0, 1.0, (4, 30)), delimiter=",")
        yield folder
    sys.path[:] = path
    sys.modules.pop("waiting_times", None)


def call(*words, code=0):
    done = CliRunner().invoke(app, list(map(str, words)), catch_exceptions=False)
    assert done.exit_code == code, done.output
    return done


def test_the_template_is_a_whole_model(here):
    answer = json.loads(call("check-model", OWN, "--draws", 300, "--json").stdout)
    assert answer["passed"] is True
    assert answer["not_checked"] == []
    text = (here / "waiting_times.py").read_text()
    assert "keepscore check-model waiting_times.py:model" in text
    assert "{" not in re.sub(r"f\"[^\"]*\"", "", text)  # every place was filled in


def test_a_file_that_is_there_is_kept(here):
    before = (here / "waiting_times.py").read_bytes()
    with pytest.raises(DomainError, match="there already"):
        call("new-model", "waiting_times.py")
    assert (here / "waiting_times.py").read_bytes() == before
    for wrong in ("my-model.py", "model.txt", "2nd.py"):
        with pytest.raises(DomainError, match=re.escape(repr(wrong))):
            call("new-model", wrong)


# Every command that takes a model or a trained run, with a model of one's own.
COMMANDS = {
    "check-model": ("check-model", OWN, "--draws", 50),
    "simulate": ("simulate", OWN, "-n", 20, "--out", "more", "--jobs", 1),
    "verify": ("verify", "data"),
    "repair": ("repair", "data", "--model", OWN),
    "evaluate": ("evaluate", "run", "--model", OWN),
    "calibrate": ("calibrate", "run", "--model", OWN, "-n", 100, "--group-size", 4),
    "infer": ("infer", "run", "xs.csv", "--test", "rate=1", "--out", "answer"),
    "report": ("report", "run", "--model", OWN, "--observations", "xs.csv", "--out", "page.html"),
}


@pytest.mark.filterwarnings("ignore::keepscore.errors.KeepscoreWarning")  # two epochs are few
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_takes_ones_own_model(command, here):
    done = call(*COMMANDS[command])
    assert done.stdout.strip()
    assert PYTHON.findall(done.output) == []
    made = {
        "evaluate": "run/scorecard.png",
        "infer": "answer/surface.png",
        "report": "page.html",
        "simulate": "more/simulate.command.json",
    }.get(command)
    assert made is None or (here / made).stat().st_size > 100
    if command == "report":
        assert "observed data" in (here / made).read_text()


def test_no_command_is_left_out(here):
    known = {name for name in (c.name for c in app.registered_commands) if name is not None}
    assert known == {*COMMANDS, "train", "new-model", "demo", "worth", "fit"}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::keepscore.errors.KeepscoreWarning")
def test_worth_takes_ones_own_model(here):
    said = call("worth", OWN, "-n", 400, "--seeds", 1, "--network", "mlp-1k").stdout
    assert "keepscore simulate ... -n" in said
    assert "ks." not in said


@pytest.mark.parametrize("where", ["before", "after", "nowhere"])
def test_quiet_says_nothing_on_the_way(here, where, monkeypatch):
    def quick(surrogate, model, exact):
        raise DomainError("far enough")

    monkeypatch.setattr("keepscore.evaluation.scorecard", quick)
    words = ["evaluate", "run", "--model", OWN]
    words = {"before": ["-q", *words], "after": [*words, "--quiet"], "nowhere": words}[where]
    done = CliRunner().invoke(app, words)
    assert isinstance(done.exception, DomainError)
    assert ("measuring the surrogate" in done.stderr) == (where == "nowhere")


def shell(*words, **more):
    return subprocess.run(
        [sys.executable, "-m", "keepscore", *words],
        capture_output=True, text=True, timeout=120, env={**os.environ, **more},
    )  # fmt: skip


def test_version():
    for flag in ("-V", "--version"):
        assert shell(flag).stdout == f"keepscore {keepscore.__version__}\n"


def test_the_list_of_commands_cuts_no_sentence():
    listed = shell("--help", COLUMNS="80").stdout.partition("Commands:")[2].splitlines()[1:]
    assert len(listed) == len(app.registered_commands)
    assert [line for line in listed if line[-1] not in ".?" or line.endswith("...")] == []


def test_the_shell_completes_commands_and_models():
    def completed(line):
        asked = {"_KEEPSCORE_COMPLETE": "complete_bash", "COMP_WORDS": line}
        return shell(**asked, COMP_CWORD=str(len(line.split()) - 1)).stdout.split()

    assert completed("keepscore sim") == ["simulate"]
    assert "student-t" in completed("keepscore check-model stu")
    assert "--install-completion" in shell("--help").stdout


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("stream", "no_color", "coloured"),
    [(Terminal, "", True), (Terminal, "1", False), (io.StringIO, "", False)],
)
def test_errors_and_warnings_have_a_colour_on_a_terminal(stream, no_color, coloured, monkeypatch):
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setattr(sys, "argv", ["keepscore", "nonsense"])
    monkeypatch.setattr(sys, "stderr", stream())
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # put back afterwards
    with pytest.raises(SystemExit):
        main()
    warnings.showwarning(keepscore.KeepscoreWarning("hear"), keepscore.KeepscoreWarning, "", 1)
    said = sys.stderr.getvalue()
    assert ("\x1b[" in said) == coloured
    plain = re.sub(r"\x1b\[\d*m", "", said)
    assert plain.startswith("keepscore: No such command 'nonsense'.")
    assert plain.endswith("keepscore: warning: hear\n")


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ("Simulate with scores=True from a model that has a score, or train with loss=ks.BCE().",
         "Simulate with scores from a model that has a score, or train with --loss bce."),
        ("another path, or resume=False to start it anew.",
         "another path, or --fresh to start it anew."),
        ("With jobs=1 no workers are needed.", "With --jobs 1 no workers are needed."),
        ("train an ensemble with TrainConfig(members=5).", "train an ensemble with --members 5."),
        ("(ks.simulate(model, 30000, scores=False)) and network='auto'",
         "(keepscore simulate ... -n 30000 --no-scores) and --network auto"),
        ("rate = np.float64(2.0), np.int64(3)", "rate = 2.0, 3"),
        ("min_epochs above max_epochs", "--min-epochs above --max-epochs"),
        ("profile intervals: one theta for all 5 observations (given(X, each=True): one per "
         "observation)", "profile intervals: one theta for all 5 observations"),
        ("Use ks.calibrate and ks.local_coverage, which need only the simulator.",
         "Use `keepscore calibrate`, which needs only the simulator."),
        ("nothing to change here: x = (3, 4)", "nothing to change here: x = (3, 4)"),
    ],
)  # fmt: skip
def test_messages_speak_shell(said, wanted):
    assert shell_words(said) == wanted


PYTHON = re.compile(r"\bks\.[a-z]\w*\(|\b(?:scores|resume|jobs|each)=\w+|np\.float64\(")
# Rooms whose errors a command passes on.
ROOMS = ("data", "training", "evaluation", "losses")


def test_no_message_of_those_rooms_keeps_its_python():
    root = Path(keepscore.__file__).parent
    kept, seen = [], 0
    for room in ROOMS:
        for path in sorted((root / room).glob("*.py")):
            for text in raised(ast.parse(path.read_text())):
                seen += bool(PYTHON.search(text))
                if PYTHON.search(shell_words(text)):
                    kept.append((path.name, text))
    assert seen >= 3  # there is something to translate
    assert kept == []


def raised(tree):
    """The constant words of every raise, strings joined as they stand."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise):
            parts = [n.value for n in ast.walk(node) if isinstance(n, ast.Constant)]
            yield "".join(p for p in parts if isinstance(p, str))
