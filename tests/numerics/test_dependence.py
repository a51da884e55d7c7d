"""Which entries of x tell of theta: false alarms, what is found, and what cannot be."""

import numpy as np
import pytest

from keepscore.numerics.dependence import statistics, telling

N = 800


def data(seed):
    rng = np.random.default_rng(seed)
    return rng, rng.uniform(-1, 1, (N, 2))


def test_noise_is_hardly_ever_chosen():
    """The level is .01 per data set: of 60 data sets, four or more alarms have a probability below
    .004. The noise is normal, Cauchy, of few values, and constant."""
    alarms = 0
    for seed in range(60):
        rng, theta = data(seed)
        parts = [
            rng.standard_normal((N, 10)),
            rng.standard_cauchy((N, 10)),
            rng.integers(0, 3, (N, 10)).astype(float),
            np.ones((N, 2)),
        ]
        score = np.exp(theta) * rng.standard_normal(theta.shape)
        alarms += telling(np.concatenate(parts, axis=1), theta, score).any()
    assert alarms < 4


def test_statistics_have_variance_one_under_independence():
    """4,000 statistics: their mean square is 1 with a standard error of .022."""
    rng, theta = data(1)
    z = statistics(rng.standard_normal((N, 500)), theta)
    assert z.shape == (500, 8)
    assert abs((z**2).mean() - 1) < 0.1


EFFECTS = {
    "moves": lambda t, e: t[:, 0] + e,
    "stretches": lambda t, e: np.exp(t[:, 1]) * e,
    "sign does not matter": lambda t, e: 2 * t[:, 0] ** 2 + e,
    "sign stretches": lambda t, e: np.abs(t[:, 1]) * e,
    "heavy tails": lambda t, e: t[:, 0] + 0.3 * e / np.abs(np.roll(e, 1)),
}


@pytest.mark.parametrize("effect", EFFECTS)
def test_entries_that_depend_on_theta_are_found(effect):
    """Effects of ten standard errors and more, beside 40 entries of noise."""
    rng, theta = data(2)
    x = rng.standard_normal((N, 41))
    x[:, 17] = EFFECTS[effect](theta, x[:, 17])
    assert np.flatnonzero(telling(x, theta)).tolist() == [17]


def test_a_covariate_is_found_by_its_score_and_not_without():
    """x_2 = theta x_1 + noise: x_1 is independent of theta."""
    rng, theta = data(3)
    x = rng.standard_normal((N, 30))
    x[:, 1] = theta[:, 0] * x[:, 0] + 0.5 * x[:, 1]
    score = ((x[:, 1] - theta[:, 0] * x[:, 0]) * x[:, 0] / 0.25)[:, None]
    assert np.flatnonzero(telling(x, theta[:, :1], score)).tolist() == [0, 1]
    assert np.flatnonzero(telling(x, theta[:, :1])).tolist() == [1]
