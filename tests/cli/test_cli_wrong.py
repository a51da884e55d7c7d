"""Every command with wrong words or wrong files: one clear sentence, a code, nothing left behind.

In one process, through the same `main` that the console script calls.
"""

import json
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from shell_calls import call

from keepscore.errors import KeepscoreWarning
from keepscore.files import read_sealed, write_sealed
from keepscore.surrogate import FORMAT, VERSION

app = sys.modules["keepscore.cli.app"]  # the module; the package's own `app` is the commands
HELPERS = str(Path(__file__).parents[1] / "helpers")
SHAPE = (13, 8)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a small dataset and surrogate of SIS, one of a model of one's own, and a lot of
    files nobody should feed to a command."""
    folder = tmp_path_factory.mktemp("wrong")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert call(patch, "simulate", "sis", "-o", "data", "-n", 80, "--jobs", 1) == 0
        words = ("train", "data", "-o", "asa", "--network", "mlp-1k", "--max-epochs", 1)
        assert call(patch, *words) == 0
        _write_arrays(folder)
    _write_texts(folder)
    shutil.copytree(folder / "asa", folder / "own")
    record = read_sealed(folder / "own/surrogate.json", FORMAT, VERSION)
    record["provenance"]["data"]["model"]["name"] = "mine"
    write_sealed(folder / "own/surrogate.json", FORMAT, VERSION, record)
    yield folder
    for name in ("mine", "boom", "syntax"):
        sys.modules.pop(name, None)


def _write_arrays(folder):
    good = np.random.default_rng(0).integers(0, 2, (10, *SHAPE))
    np.save("xs.npy", good)
    np.save("negative.npy", -good)
    np.save("half.npy", 0.5 * good)
    np.save("nan.npy", np.full((10, *SHAPE), np.nan))
    np.save("wrong.npy", np.zeros((10, 13, 7)))
    np.save("groups.npy", good[None])
    np.save("none.npy", np.zeros((0, *SHAPE)))
    np.save("complex.npy", good * 1j)
    np.save("objects.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    np.savetxt("narrow.csv", np.zeros((3, 100)), delimiter=",")
    (folder / "text.npy").write_text("not an array")
    (folder / "empty.npy").write_text("")
    (folder / "empty.csv").write_text("")
    (folder / "words.csv").write_text("1,2,three\n4,5,6\n")
    (folder / "ragged.csv").write_text("1,2,3\n4,5\n")
    (folder / "binary.csv").write_bytes(bytes(range(256)))


def _write_texts(folder):
    (folder / "file").write_text("in the way")
    (folder / "empty").mkdir()
    (folder / "torn").mkdir()
    (folder / "torn/surrogate.json").write_text("{")
    (folder / "key.toml").write_text("[simulate]\nsede = 1\n")
    (folder / "table.toml").write_text("[simulat]\nseed = 1\n")
    (folder / "value.toml").write_text("[simulate]\nn = 'many'\n")
    (folder / "flat.toml").write_text("simulate = 3\n")
    (folder / "bytes.toml").write_bytes(b"\xff\xfe")
    (folder / "boom.py").write_text("\nraise RuntimeError('no licence')\n")
    (folder / "syntax.py").write_text("def (\n")
    (folder / "mine.py").write_text(
        f"import sys\nsys.path.insert(0, {HELPERS!r})\nfrom toys import GaussianToy as Toy\n"
        "toy = Toy()\ndef broken():\n    raise ValueError('no data here')\n"
    )


OUT = ("-o", "o")
SIMULATE, TRAIN, INFER = ("simulate", "sis", *OUT), ("train", "data", *OUT), ("infer", "asa")
WRONG = {
    "no such command": (("simulat",), "simulat"),
    "no such flag": ((*SIMULATE, "--sead", 1), "No such option"),
    # models
    "unknown model": (("check-model", "sus"), "Did you mean 'sis'"),
    "no such module": (("check-model", "nowhere:toy"), "Cannot import 'nowhere'"),
    "no module named": (("check-model", ":toy"), "written module:object or file.py:object"),
    "a module that fails": (("check-model", "boom:toy"), "no licence (boom.py, line 2)"),
    "a module that is no Python": (("check-model", "syntax:toy"), "(syntax.py, line 1)"),
    "no such object": (("check-model", "mine:tou"), "no object 'tou'"),
    "not a model": (("check-model", "mine:sys"), "not a model"),
    "a maker that fails": (("check-model", "mine:broken"), "ValueError: no data here"),
    "setting not taken": (("check-model", "sis", "--set", "nodes=3"), "does not take"),
    "setting not key=value": (("check-model", "sis", "--set", "nodes"), "key=value"),
    "setting out of range": (("check-model", "gaussian", "--set", "shape=[0,5]"), "at least 1"),
    "no draws": (("check-model", "sis", "--draws", "-4"), "at least 50"),
    # simulate
    "no folder named": (("simulate", "sis"), "Missing option '--out'"),
    "a file where the folder goes": (("simulate", "sis", "-o", "file"), "Cannot create"),
    "a negative number": ((*SIMULATE, "-n", -5), "'--n'"),
    "a number in words": ((*SIMULATE, "-n", "many"), "'--n'"),
    "a negative seed": ((*SIMULATE, "--seed", -1), "'--seed'"),
    "no processes": ((*SIMULATE, "--jobs", 0), "'--jobs'"),
    "unknown purpose": ((*SIMULATE, "--purpose", "trian"), "train"),
    "bad share": ((*SIMULATE, "--shard", "3"), "i/k"),
    "share out of range": ((*SIMULATE, "--shard", "4/3"), "1/3, ..., 3/3"),
    "unknown policy": ((*SIMULATE, "--on-invalid", "keep"), "drop, raise"),
    "a folder of another dataset": (("simulate", "sis", "-o", "data", "-n", 90), "differs in n"),
    # settings from a file
    "unknown key in TOML": ((*SIMULATE, "--config", "key.toml"), "Did you mean 'seed'"),
    "unknown table in TOML": ((*SIMULATE, "--config", "table.toml"), "Did you mean 'simulate'"),
    "wrong value in TOML": ((*SIMULATE, "--config", "value.toml"), "'--n'"),
    "no table in TOML": ((*SIMULATE, "--config", "flat.toml"), "must be a table"),
    "not TOML": ((*SIMULATE, "--config", "mine.py"), "not valid TOML"),
    "not text": ((*SIMULATE, "--config", "bytes.toml"), "not valid TOML"),
    "no such TOML": ((*SIMULATE, "--config", "absent.toml"), "No such file: absent.toml"),
    "a folder for TOML": ((*SIMULATE, "--config", "empty"), "not a regular file"),
    # train
    "no such dataset": (("train", "absent", *OUT), "absent"),
    "a surrogate for a dataset": (("train", "asa", *OUT), "not a data set"),
    "no such validation set": ((*TRAIN, "--validation", "absent"), "absent"),
    "training into a file": (("train", "data", "-o", "file"), "Cannot create"),
    "unknown loss": ((*TRAIN, "--loss", "ase"), "Did you mean 'asa'"),
    "unknown network": ((*TRAIN, "--network", "30m"), "30m"),
    "unknown preset": ((*TRAIN, "--preset", "gausian"), "Did you mean 'gaussian'"),
    "a negative rate": ((*TRAIN, "--learning-rate", -1), "positive"),
    "no epochs": ((*TRAIN, "--max-epochs", 0), "--max-epochs"),
    "no members": ((*TRAIN, "--members", 0), "members"),
    # infer
    "no observations named": (("infer", "asa"), "Missing argument"),
    "no such run": (("infer", "absent", "xs.npy"), "absent"),
    "no surrogate there": (("infer", "empty", "xs.npy"), "holds no surrogate"),
    "a torn surrogate": (("infer", "torn", "xs.npy"), "not valid JSON"),
    "no such observations": ((*INFER, "absent.npy"), "absent.npy"),
    "observations of the wrong shape": ((*INFER, "wrong.npy"), "(n, 13, 8)"),
    "several groups": ((*INFER, "groups.npy"), "one group at a time"),
    "no rows": ((*INFER, "none.npy"), "at least one observation"),
    "observations with NaN": ((*INFER, "nan.npy"), "finite"),
    "negative states": ((*INFER, "negative.npy"), "0 (susceptible) and 1"),
    "half states": ((*INFER, "half.npy"), "0 (susceptible) and 1"),
    "complex numbers": ((*INFER, "complex.npy"), "real numbers"),
    "objects": ((*INFER, "objects.npy"), "real numbers"),
    "observations that are no array": ((*INFER, "text.npy"), "read as an array"),
    "an empty array file": ((*INFER, "empty.npy"), "read as an array"),
    "observations of unknown kind": ((*INFER, "key.toml"), "must be .npy or .csv; got key.toml."),
    "words in a table": ((*INFER, "words.csv"), "'three'"),
    "rows of two lengths": ((*INFER, "ragged.csv"), "from 3 to 2 at row 2."),
    "an empty table": ((*INFER, "empty.csv"), "no numbers"),
    "a picture for a table": ((*INFER, "binary.csv"), "readable array"),
    "a table too narrow": ((*INFER, "narrow.csv"), "got (3, 100)"),
    "level of 95": ((*INFER, "xs.npy", "--level", 95), "between 0 and 1"),
    "test without value": ((*INFER, "xs.npy", "--test", "mu"), "name=value"),
    "test of an unknown name": ((*INFER, "xs.npy", "--test", "nu=1"), "Known: lambda, mu"),
    "test of an impossible value": ((*INFER, "xs.npy", "--test", "mu=-1"), "greater than 0"),
    "test far outside": ((*INFER, "xs.npy", "--test", "mu=1000"), "base box"),
    "inferring into a file": ((*INFER, "xs.npy", "-o", "file"), "Cannot create"),
    # evaluate, calibrate, report
    "evaluating nothing": (("evaluate", "absent"), "absent"),
    "unknown size": (("evaluate", "asa", "--size", "smal"), "Did you mean 'small'"),
    "model not known by name": (("evaluate", "own"), "--model"),
    "settings without a model": (("evaluate", "asa", "--set", "a=1"), "--model"),
    "another model": (("evaluate", "asa", "--model", "gaussian"), "trained on parameters lambda"),
    "calibrating nothing": (("calibrate", "absent"), "absent"),
    "empty groups": (("calibrate", "asa", "--group-size", 0), "'--group-size'"),
    "few groups": (("calibrate", "asa", "-n", 5), "'--n'"),
    "calibrating at 200%": (("calibrate", "asa", "--level", 2, "-n", 100), "between 0 and 1"),
    "another simulator": (("calibrate", "asa", "--model", "gaussian"), "trained on parameters"),
    "report of nothing": (("report", "absent", "-o", "page.html"), "absent"),
    "report into a folder": (("report", "asa", "-o", "empty"), "name the page"),
    "report under a file": (("report", "asa", "-o", "file/page.html"), "Cannot create"),
    "report of another model": (("report", "asa", "--model", "mine:toy"), "trained on parameters"),
    # worth, demo, verify
    "no budget": (("worth", "sis", "--minutes", 0), "budget"),
    "a pilot of nothing": (("worth", "sis", "-n", -3), "at least 400"),
    "a pilot of an unknown network": (("worth", "sis", "--network", "30m", *OUT), "30m"),
    "a pilot into a file": (("worth", "sis", "-o", "file"), "Cannot create"),
    "demo into a file": (("demo", "-o", "file"), "Cannot create"),
    "demo on nothing": (("demo", "-n", 10, *OUT), "at least 1000"),
    "demo of an unknown network": (("demo", "--network", "30m", *OUT), "3k"),
    "demo of an unknown size": (("demo", "--size", "smal", *OUT), "Did you mean 'small'"),
    "verifying nothing": (("verify", "absent"), "absent"),
    "verifying a surrogate": (("verify", "asa"), "not a data set"),
    "repairing nothing": (("repair", "absent"), "absent"),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of others, which users do not see
@pytest.mark.parametrize("what", WRONG)
def test_wrong_turns_end_in_one_sentence(place, what, monkeypatch, capsys):
    monkeypatch.chdir(place)
    words, hint = WRONG[what]
    before = sorted(place.rglob("*.json"))
    code = call(monkeypatch, *words)
    said = capsys.readouterr().err
    assert code in (2, 3), said
    assert hint in said
    assert re.fullmatch(r"keepscore: [^\n]*[^.][.`)]\n", said), said  # one line, ends in one stop
    assert sorted(place.rglob("*.json")) == before  # nothing was begun


def test_a_line_of_names_may_come_first(place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    xs = np.load("xs.npy").reshape(10, -1)
    names = ",".join(f"x{k}" for k in range(xs.shape[1]))
    np.savetxt("named.csv", xs, delimiter=",", header=names, comments="")
    results = []
    for observations in ("xs.npy", "named.csv"):
        assert call(monkeypatch, "infer", "asa", observations, "--json") == 0
        results.append(json.loads(capsys.readouterr().out))
    assert results[0] == results[1]
    assert results[0]["observations"] == 10


def test_keys_of_a_file_are_the_flags(place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    (place / "set.toml").write_text('[check-model]\nset = ["shape=[3,4]"]\ndraws = 50\n')
    assert call(monkeypatch, "check-model", "gaussian", "--config", "set.toml") in (0, 1)
    assert "gaussian-field" in capsys.readouterr().out


def test_warnings_are_one_line_without_our_code(capsys):
    """Anything a library warns about keeps its place; what keepscore says does not need one."""
    app._show_warning(KeepscoreWarning("a\n b"), KeepscoreWarning, "inside.py", 3)
    app._show_warning(UserWarning("other"), UserWarning, "inside.py", 3)
    ours, other = capsys.readouterr().err.splitlines()[:2]
    assert ours == "keepscore: warning: a b"
    assert "inside.py:3" in other


def test_an_unreadable_disk_is_one_sentence(monkeypatch, capsys):
    def broken(*arguments, **options):
        raise PermissionError(13, "Permission denied", "/locked/plan.json")

    monkeypatch.setattr(app, "app", broken)
    assert call(monkeypatch, "simulate") == 3
    assert capsys.readouterr().err == "keepscore: /locked/plan.json: Permission denied.\n"
