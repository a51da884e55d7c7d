"""Points on curves and surfaces are told from clouds, whatever the scale and the shape of these."""

import numpy as np
import pytest

from keepscore.numerics.dimension import dimension, is_thin

RNG = np.random.default_rng(1)


def clouds(n, p):
    z = RNG.standard_normal((n, p))
    return [
        z,
        z @ RNG.standard_normal((p, p)),
        np.exp(z),
        RNG.standard_t(2, (n, p)),
        RNG.random((n, p)),
    ]


@pytest.mark.parametrize("n", [300, 5000])
@pytest.mark.parametrize("p", [2, 3, 5])
def test_clouds_are_not_thin(n, p):
    assert [is_thin(one) for one in clouds(n, p)] == [False] * 5


def test_a_narrow_cloud_is_a_cloud():
    a, b = RNG.standard_normal((2, 5000))
    assert not is_thin(np.c_[a, a + 1e-2 * b])


@pytest.mark.parametrize("n", [300, 5000])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_curves_and_surfaces_are(n, scale):
    z = RNG.standard_normal((n, 5))
    sphere = z[:, :3] / np.linalg.norm(z[:, :3], axis=1, keepdims=True)
    angle = 3 * z[:, 0]
    for x in (
        np.c_[np.cos(angle), np.sin(angle)],
        sphere,
        np.c_[z[:, :2], z[:, 0] * z[:, 1]],
        np.c_[z[:, 0], np.exp(z[:, 0])],
    ):
        assert is_thin(scale * x)
    if n == 5000:  # four numbers want more points
        assert is_thin(scale * np.c_[z[:, :3], (z[:, :3] ** 2).sum(axis=1)])


@pytest.mark.parametrize("p", [1, 2, 3, 6])
def test_the_dimension_of_a_cloud_is_that_of_its_space(p):
    assert dimension(RNG.standard_normal((4000, p))) == pytest.approx(p, rel=0.08)


def test_few_points_equal_points_and_holes():
    a = RNG.standard_normal((400, 1))
    line = np.c_[a, a**2]
    assert is_thin(np.repeat(line, 10, axis=0))
    assert is_thin(np.concatenate([line, np.full((300, 2), np.nan)]))
    assert not is_thin(line[:100])
    assert not is_thin(a)
    assert not is_thin(np.full((500, 2), np.nan))
