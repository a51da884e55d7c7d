"""Correlation functions against the general Matern formula, slopes against differences."""

import numpy as np
import pytest
from scipy.special import gamma, kv

from keepscore.errors import UnknownNameError
from keepscore.numerics.kernels import KERNELS, correlation_and_slopes, require_kernel

SMOOTHNESS = {"exponential": 0.5, "matern32": 1.5, "matern52": 2.5}
LAG_1 = np.linspace(0.0, 3.0, 7)[:, None]
LAG_2 = np.linspace(0.0, 2.0, 5)[None, :]


def matern(nu, r):
    """The Matern correlation of any smoothness, by the modified Bessel function."""
    a = np.sqrt(2 * nu) * np.where(r > 0, r, 1.0)
    return np.where(r > 0, 2 ** (1 - nu) / gamma(nu) * a**nu * kv(nu, a), 1.0)


@pytest.mark.parametrize("kernel", KERNELS)
def test_correlation_is_the_matern_of_the_scaled_distance(kernel):
    r = np.sqrt((LAG_1 / 0.7) ** 2 + (LAG_2 / 1.9) ** 2)
    expected = matern(SMOOTHNESS[kernel], r)
    rho, _, _ = correlation_and_slopes(kernel, LAG_1, LAG_2, 0.7, 1.9)
    np.testing.assert_allclose(rho, expected, rtol=1e-12)


@pytest.mark.parametrize("kernel", KERNELS)
def test_slopes_are_derivatives_in_the_log_scales(kernel):
    l_1, l_2, h = 0.7, 1.9, 1e-5

    def rho(a, b):
        return correlation_and_slopes(kernel, LAG_1, LAG_2, l_1 * np.exp(a), l_2 * np.exp(b))[0]

    _, slope_1, slope_2 = correlation_and_slopes(kernel, LAG_1, LAG_2, l_1, l_2)
    np.testing.assert_allclose(slope_1, (rho(h, 0) - rho(-h, 0)) / (2 * h), atol=1e-9)
    np.testing.assert_allclose(slope_2, (rho(0, h) - rho(0, -h)) / (2 * h), atol=1e-9)
    # Along the first axis alone the second scale does not matter, and nothing moves at lag zero.
    assert np.all(slope_2[:, 0] == 0.0)
    assert np.all(slope_1[0, :] == 0.0)
    assert np.all(slope_1[1:, 0] > 0.0)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1e-6, 1e6, 1e300])
def test_extreme_scales_stay_finite(kernel, scale):
    rho, *both = correlation_and_slopes(kernel, LAG_1, LAG_2, scale, 1.0)
    assert rho[0, 0] == 1.0
    assert np.all((rho >= 0) & (rho <= 1))
    for slope in both:
        assert np.all(np.isfinite(slope))


def test_unknown_kernel_names_the_nearest():
    with pytest.raises(UnknownNameError, match="matern32"):
        require_kernel("matern23")
