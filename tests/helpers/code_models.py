"""Functions whose code is fingerprinted, importable in other processes."""

from __future__ import annotations

import functools

import numpy as np

import keepscore as ks

SPACE = ks.Space([ks.Parameter("a", -1.0, 1.0, "identity")])
TABLE = np.arange(5.0)
NAMES = {"rate", "size", "shift"}
SETTINGS = {"scale": 2.0, "names": ["a", "b"]}
calls = []
memory = {}


def helper(x):
    return x * SETTINGS["scale"]


def simulate(theta, rng, shift=0.0):
    """What a user writes: constants, a helper, a counter and a memory of its own."""
    calls.append(len(theta))
    memory[len(theta)] = theta
    known = "rate" in {"rate", "size", "other"} and "size" in NAMES
    return helper(rng.standard_normal((len(theta), 3)) + theta + TABLE.sum() * shift) * known


def made(scale):
    count = 0

    def inner(theta, rng):
        nonlocal count
        count += 1
        return scale * rng.standard_normal((len(theta), 3))

    return inner


class Machine:
    """A callable with settings, and a state that its calls change."""

    def __init__(self, scale):
        self.scale, self.calls, self.seen = scale, 0, {}

    @functools.cached_property
    def doubled(self):
        return 2 * self.scale

    def __call__(self, theta, rng):
        self.calls += 1
        self.seen[self.calls] = len(theta)
        return self.doubled * rng.standard_normal((len(theta), 3))


def model(function=simulate, **settings):
    return ks.models.from_functions(SPACE, (3,), simulate=function, **settings)


if __name__ == "__main__":
    import json

    import code_models

    from keepscore.models.identity import fingerprint

    functions = (code_models.simulate, code_models.made(2.0), code_models.Machine(3.0))
    print(json.dumps([fingerprint(f) for f in functions]))
