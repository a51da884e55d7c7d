"""Benchmarks are run by hand, and rarely: what they use must still be there."""

import importlib
import pkgutil

import pytest

import benchmarks
from benchmarks import training
from keepscore.losses import ASA

PEERS = ("torch", "sbi", "lampe", "diffrax", "statsmodels")  # in an environment of their own
MODULES = sorted(m.name for m in pkgutil.walk_packages(benchmarks.__path__, "benchmarks."))


@pytest.mark.parametrize("name", [m for m in MODULES if not m.endswith("__main__")])
def test_it_can_be_imported(name):
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in PEERS:
            raise
        pytest.skip(f"{error.name} is not installed")
    assert module.__doc__, "a benchmark says what it measures"


def test_a_round_of_training_steps_is_timed():
    assert training.round_of("sis", "3k", ASA.paper(), 4)() > 0
    assert training.step_flops("sis", "3k", ASA.paper()) > 1e5
