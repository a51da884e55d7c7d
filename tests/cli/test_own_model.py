"""A model of one's own from the shell, with worker processes; what a worker cannot import."""

import importlib
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import keepscore as ks
from keepscore.cli.own_model import load_object
from keepscore.data import workers
from keepscore.errors import DomainError, SimulationError, StorageError

HELPERS = Path(__file__).parents[1] / "helpers"
MODEL = """
from helping import Helped  # a file beside this one

model = Helped(4)
"""
HELPING = f"""
import sys

sys.path.append({str(HELPERS)!r})
from toys import GaussianToy


class Helped(GaussianToy):
    name = "helped"
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "my_own_model.py").write_text(MODEL)
    (tmp_path / "home" / "helping.py").write_text(HELPING)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "place"), [("my_own_model:model", "home"), ("home/my_own_model.py:model", ".")]
)
def test_simulates_with_worker_processes(name, place, folder):
    """As the installed command runs: Python does not put the current folder on the path (-P)."""
    words = ["simulate", name, "-n", "300", "--out", "data", "--jobs", "2"]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "keepscore", *words],
        cwd=folder / place, capture_output=True, text=True, timeout=240, env=os.environ,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    data = ks.open_dataset(folder / place / "data")
    assert len(data) == 300
    assert data.provenance["model"]["name"] == "helped"


@pytest.fixture
def own_path(monkeypatch):
    """sys.path and the modules of this test are put back."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    for name in {"my_own_model", "helping", "gone", "failing", "json_", "stops"} - before:
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("own_path")
def test_a_file_and_a_module_name_the_same_object(folder, monkeypatch):
    by_file = load_object(f"{folder}/home/my_own_model.py:model")
    monkeypatch.chdir(folder / "home")
    assert load_object("my_own_model:model") is by_file
    assert load_object("my_own_model.py:model") is by_file


@pytest.mark.usefixtures("own_path")
@pytest.mark.parametrize(
    ("name", "error", "told"),
    [
        ("absent.py:model", StorageError, "no such file"),
        ("absent:model", DomainError, "No module named 'absent'"),
        ("json.py:model", DomainError, "hidden by another module.*Rename"),
        ("my.own.py:model", DomainError, "dot.*Rename"),
        ("failing.py:model", DomainError, r"ZeroDivisionError.*failing.py, line 2"),
        ("stops.py:model", DomainError, "SystemExit"),
        ("my_own_model.py:nothing", DomainError, "no object 'nothing'"),
        (":model", DomainError, "module:object or file.py:object"),
        ("my_own_model.py:", DomainError, "module:object or file.py:object"),
    ],
)
def test_names_that_lead_nowhere(name, error, told, folder, monkeypatch):
    monkeypatch.chdir(folder / "home")
    for file, text in {
        "json.py": "model = 1",
        "my.own.py": "model = 1",
        "failing.py": "\nmodel = 1 / 0",
        "stops.py": "import sys\nsys.exit(0)",
    }.items():
        Path(file).write_text(text)
    with pytest.raises(error, match=told):
        load_object(name)


@pytest.mark.usefixtures("own_path")
def test_a_worker_says_what_it_cannot_import(tmp_path):
    (tmp_path / "gone.py").write_text("def task(index):\n    return index\n")
    sys.path.insert(0, str(tmp_path))
    task = importlib.import_module("gone").task
    sys.path.remove(str(tmp_path))
    with pytest.raises(SimulationError, match=r"cannot import.*'gone'.*PYTHONPATH") as caught:
        list(workers.in_processes(task, [0, 1], 2))
    assert "out of memory" not in str(caught.value)


def test_a_model_that_cannot_travel_is_refused_before_any_worker_starts():
    class Holds:
        def __init__(self):
            self.lock = threading.Lock()

        def __call__(self, index):
            return index

    with pytest.raises(SimulationError, match=r"cannot be sent.*lock.*jobs=1"):
        list(workers.in_processes(Holds(), [0], 1))


def test_a_death_by_exit_is_not_called_out_of_memory():
    died = "The exit codes of the workers are {EXIT(1)}"
    assert "ended by itself" in str(workers._lost({3: died}))
    killed = "The exit codes of the workers are {SIGKILL(-9)}"
    assert "out of memory" in str(workers._lost({3: killed}))
