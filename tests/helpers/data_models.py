"""Models that misbehave on purpose, importable in worker processes."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import numpy as np
from toys import GaussianToy


class SlowToy(GaussianToy):
    """Takes `seconds` a shard, so that there is time to kill it. Not a setting: the bytes are the
    same at any speed."""

    name = "slow-toy"

    def __init__(self, seconds: float = 0.02, m: int = 4) -> None:
        super().__init__(m)
        self.seconds = seconds

    def simulate(self, theta, rng):
        time.sleep(self.seconds)
        return super().simulate(theta, rng)


class NoScoreToy(GaussianToy):
    name = "no-score-toy"
    score_kind = None

    def simulate_with_score(self, theta, rng):
        raise AssertionError("a model without scores must not be asked for them")


class JointToy(GaussianToy):
    name = "joint-toy"
    score_kind = "joint"


class BrokenToy(GaussianToy):
    """Wrong in the rows whose mean parameter is above 0.5, in the way asked for."""

    name = "broken-toy"

    def __init__(self, how: str = "nan") -> None:
        super().__init__()
        self.how = how

    def settings(self):
        return {"how": self.how}

    def simulate_with_score(self, theta, rng):
        x, score = super().simulate_with_score(theta, rng)
        bad = theta[:, 0] > 0.5
        if self.how == "nan":
            x[bad, 1] = np.nan
        elif self.how == "inf score":
            score[bad, 0] = np.inf
        elif self.how == "shape":
            x = x[:, :-1]
        elif self.how == "rows":
            x = x[:-1]
        elif self.how == "dtype":
            x = x.astype("U8")
        elif self.how == "raise":
            raise ZeroDivisionError("division by zero in the simulator")
        return x, score


class CountsToy(GaussianToy):
    """Declares bytes but returns floats: fine while they are whole numbers below 256."""

    name = "counts-toy"
    x_dtype = np.dtype(np.uint8)

    def __init__(self, top: float = 200.0) -> None:
        super().__init__()
        self.top = top

    def settings(self):
        return {"top": self.top}

    def simulate_with_score(self, theta, rng):
        x = np.floor(rng.random((len(theta), self.m)) * self.top)
        return x, np.zeros((len(theta), 2))


class DeadlyToy(GaussianToy):
    """Kills its own process in the shard that holds `theta0`, the first `times` times."""

    name = "deadly-toy"

    def __init__(self, folder: str, theta0: float, times: int) -> None:
        super().__init__()
        self.folder, self.theta0, self.times = folder, theta0, times

    def settings(self):
        return {"times": self.times}

    def simulate_with_score(self, theta, rng):
        if self.theta0 in theta[:, 0]:
            deaths = len(list(Path(self.folder).glob("death-*")))
            if deaths < self.times:
                (Path(self.folder) / f"death-{deaths}").touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return super().simulate_with_score(theta, rng)
