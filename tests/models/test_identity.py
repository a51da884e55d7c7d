"""A simulator edited under its name is another simulator; the same one is the same anywhere."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import types
from pathlib import Path

import code_models
import numpy as np
import pytest

import keepscore as ks
from keepscore.data import store
from keepscore.errors import MismatchError
from keepscore.models.identity import UNKNOWN, fingerprint

HELPERS = Path(__file__).parents[1] / "helpers"


def compiled(text, **values):
    """The function f of a piece of source, with some globals."""
    space = {"np": np, **values}
    exec(compile(text, "somewhere.py", "exec"), space)
    return space["f"]


SOURCE = "def f(theta, rng, k=2):\n    return SCALE * theta + rng.random(theta.shape) * (k + 1)\n"


@pytest.mark.parametrize(
    ("source", "scale", "same"),
    [
        (SOURCE, 3.0, True),
        ("\n\n\n" + SOURCE, 3.0, True),  # elsewhere in the file
        (SOURCE.replace(":\n", ":\n    'Told.'\n"), 3.0, True),  # a docstring
        (SOURCE.replace(":\n", ":\n    # told\n"), 3.0, True),
        (SOURCE.replace("k + 1", "k + 2"), 3.0, False),
        (SOURCE.replace("+ rng", "- rng"), 3.0, False),
        (SOURCE.replace("rng.random", "rng.normal"), 3.0, False),
        (SOURCE.replace("k=2", "k=3"), 3.0, False),
        (SOURCE.replace("k=2", "k=True"), 3.0, False),
        (SOURCE, 3, False),
        (SOURCE, np.float32(3.0), False),
        (SOURCE, np.array([3.0, 4.0]), False),
    ],
)
def test_edits_that_could_matter_are_noticed(source, scale, same):
    one = fingerprint(compiled(SOURCE, SCALE=3.0))
    other = fingerprint(compiled(source, SCALE=scale))
    assert one != UNKNOWN
    assert (one == other) == same


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TABLE", np.arange(5.0) + 1e-9),
        ("TABLE", np.arange(5)),
        ("NAMES", {"rate", "shift"}),
        ("SETTINGS", {"scale": 2.0000001, "names": ["a", "b"]}),
        ("helper", lambda x: x),
    ],
)
def test_values_that_a_function_uses_count(monkeypatch, name, value):
    before = fingerprint(code_models.simulate)
    monkeypatch.setattr(code_models, name, value)
    after = fingerprint(code_models.simulate)
    changed = {k for k in before if before[k] != after.get(k)}
    assert changed == {"global.helper" if name in ("SETTINGS", "helper") else f"global.{name}"}


def test_closures_partials_methods_and_callables_count():
    sets = [
        (code_models.made(2.0), code_models.made(2.0), code_models.made(2.5)),
        (code_models.Machine(2.0), code_models.Machine(2.0), code_models.Machine(2.5)),
        *[
            tuple(functools.partial(code_models.simulate, shift=s) for s in (1.0, 1.0, 2.0)),
            tuple(ks.models.SIS(times=t).simulate for t in ((0, 1), (0, 1), (0, 2))),
        ],
    ]
    for one, again, other in sets:
        assert fingerprint(one) == fingerprint(again) != UNKNOWN
        assert fingerprint(one) != fingerprint(other)


def test_state_that_the_functions_change_themselves_does_not_count():
    rng, theta = np.random.default_rng(0), np.zeros((4, 1))
    for function in (code_models.simulate, code_models.made(2.0), code_models.Machine(3.0)):
        before = fingerprint(function)
        function(theta, rng)
        function(theta, rng)
        assert fingerprint(function) == before


def test_other_processes_with_other_hash_seeds_find_the_same():
    found = []
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, str(HELPERS / "code_models.py")]
        done = subprocess.run(command, env=environment, capture_output=True, check=True)
        found.append(json.loads(done.stdout))
    functions = (code_models.simulate, code_models.made(2.0), code_models.Machine(3.0))
    assert found[0] == found[1] == [fingerprint(f) for f in functions]


class Trap:
    """Raises at every attribute that is asked for."""

    def __getattribute__(self, name):
        raise RuntimeError(name)


def test_what_cannot_be_looked_into_is_unknown_and_breaks_nothing():
    assert fingerprint(np.exp) == fingerprint(len) == fingerprint(None) == UNKNOWN
    circle = []
    circle.append(circle)
    deep = functools.reduce(lambda inner, _: [inner], range(10_000), 0)
    for value in (Trap(), circle, deep, list(range(30_000)), object(), types, np.random.PCG64()):
        assert fingerprint(lambda theta, rng, value=value: value) is not None
    model = code_models.model(np.random.Generator.standard_normal)
    assert model.settings()["code"]["simulate"] == UNKNOWN


def edited(theta, rng):
    return rng.standard_normal((len(theta), 3)) + 0.5


def test_a_simulator_edited_under_its_name_is_refused_halfway(tmp_path):
    def plain(theta, rng):
        return rng.standard_normal((len(theta), 3))

    edited.__name__, edited.__qualname__ = plain.__name__, plain.__qualname__
    edited.__module__ = plain.__module__
    one, other = code_models.model(plain), code_models.model(edited)
    assert one.settings()["functions"] == other.settings()["functions"]
    folder = tmp_path / "set"
    ks.simulate(one, 200, path=folder, jobs=1)
    for name in ("manifest.json", "shard-00002.json"):
        (folder / name).unlink()
    with pytest.raises(MismatchError, match="code of simulate") as caught:
        ks.simulate(other, 200, path=folder, jobs=1)
    assert "code.simulate.body" in str(caught.value)
    assert not (folder / "shard-00002.json").exists()
    assert len(ks.simulate(code_models.model(plain), 200, path=folder, jobs=1)) == 200


def test_another_python_is_named_instead(tmp_path, monkeypatch):
    ks.simulate(code_models.model(), 100, path=tmp_path, jobs=1)
    monkeypatch.setattr(code_models, "TABLE", np.zeros(5))
    here = {**store.environment(), "python": "3.99.1"}
    monkeypatch.setattr(store, "environment", lambda: here)
    with pytest.raises(MismatchError, match=r"this is 3\.99\.1, whose bytecode differs"):
        ks.simulate(code_models.model(), 100, path=tmp_path, jobs=1)


def test_repair_judges_code_by_the_bytes_it_makes(tmp_path, monkeypatch):
    ks.simulate(code_models.model(), 100, path=tmp_path, jobs=1)
    whole = (tmp_path / "shard-00000.x.npy").read_bytes()
    (tmp_path / "shard-00000.x.npy").write_bytes(b"")
    monkeypatch.setattr(code_models, "SETTINGS", {"scale": 3.0})
    with pytest.raises(MismatchError, match="other bytes"):
        ks.repair(tmp_path, code_models.model())
    monkeypatch.setattr(code_models, "SETTINGS", {"scale": 2.0, "comment": "the same in effect"})
    ks.repair(tmp_path, code_models.model())
    assert (tmp_path / "shard-00000.x.npy").read_bytes() == whole
