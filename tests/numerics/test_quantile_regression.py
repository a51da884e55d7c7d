"""Quantile regression by its dual, beside the programme itself."""

import numpy as np
import pytest
from scipy.optimize import linprog

from keepscore.errors import ConvergenceError
from keepscore.numerics.quantile_regression import quantile_regression


def pinball(r, tau):
    return float(np.maximum(tau * r, (tau - 1) * r).sum())


def by_the_primal(z, y, tau):
    """min tau 1'u + (1 - tau) 1'v with z b + u - v = y, u, v >= 0 and b free."""
    n, p = z.shape
    costs = np.concatenate([np.zeros(p), np.full(n, tau), np.full(n, 1 - tau)])
    limits = [(None, None)] * p + [(0, None)] * (2 * n)
    equations = np.hstack([z, np.eye(n), -np.eye(n)])
    return linprog(costs, A_eq=equations, b_eq=y, bounds=limits, method="highs").x[:p]


@pytest.mark.parametrize("tau", [0.02, 0.25, 0.5, 0.9, 0.98])
@pytest.mark.parametrize(("n", "p"), [(40, 1), (200, 3), (400, 10)])
def test_it_solves_the_programme(n, p, tau):
    rng = np.random.default_rng([n, p])
    z = np.hstack([np.ones((n, 1)), rng.uniform(-1, 1, (n, p - 1))])
    y = z @ rng.normal(size=p) + np.log(rng.chisquare(2, n))
    b, other = quantile_regression(z, y, tau), by_the_primal(z, y, tau)
    # The minimum is one, where it is attained need not be (a median between two values).
    assert pinball(y - z @ b, tau) == pytest.approx(pinball(y - z @ other, tau), rel=1e-9)
    # Koenker's law: with p terms at most tau n rows lie below and at most (1 - tau) n above.
    assert (y - z @ b < -1e-9).sum() <= tau * n + 1e-9
    assert (y - z @ b > 1e-9).sum() <= (1 - tau) * n + 1e-9
    moved = pinball(y - z @ (b + rng.normal(size=p)), tau)
    assert moved > pinball(y - z @ b, tau)


def test_a_constant_is_the_plain_quantile():
    y = np.arange(101.0)
    assert quantile_regression(np.ones((101, 1)), y, 0.9) == pytest.approx([np.quantile(y, 0.9)])


def test_what_has_no_solution_is_an_error():
    with pytest.raises(ConvergenceError, match=r"1\.5 quantile of 3 values over 1 terms"):
        quantile_regression(np.ones((3, 1)), np.arange(3.0), 1.5)
