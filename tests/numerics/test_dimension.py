"""Points on curves and surfaces are told from clouds, whatever the scale and the shape of these."""

import numpy as np
import pytest

from keepscore.numerics.dimension import dimension, is_thin


def clouds(n, p):
    rng = np.random.default_rng(1)
    z = rng.standard_normal((n, p))
    return [
        z,
        z @ rng.standard_normal((p, p)),
        np.exp(z),
        rng.standard_t(2, (n, p)),
        rng.random((n, p)),
    ]


@pytest.mark.parametrize("n", [300, 5000])
@pytest.mark.parametrize("p", [2, 3, 5])
def test_clouds_are_not_thin(n, p):
    assert [is_thin(one) for one in clouds(n, p)] == [False] * 5


@pytest.mark.parametrize("n", [300, 5000])
@pytest.mark.parametrize("width", [1e-2, 1e-4])
def test_a_narrow_cloud_is_a_cloud(n, width):
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((2, n))
    assert not is_thin(np.c_[a, a + width * b])


@pytest.mark.parametrize("p", [2, 3, 5, 8])
def test_correlated_numbers_are_a_cloud_and_correlated_surfaces_are_none(p):
    """Random mixtures. Of 60 clouds per p and n none were taken for surfaces (as they were, of
    eight numbers, half were); of surfaces in up to five dimensions with 5,000 points all are."""
    for seed in range(10):
        rng = np.random.default_rng([7, seed])
        mixed = rng.standard_normal((p, p))
        assert not is_thin(rng.standard_normal((1000, p)) @ mixed)
        free = rng.standard_normal((5000, p - 1))
        surface = np.c_[free, (free**2).sum(axis=1)] @ mixed
        assert p > 5 or is_thin(surface)


def test_a_plane_with_the_rounding_of_float32_is_no_cloud():
    a, b = np.random.default_rng(8).standard_normal((2, 2000))
    plane = np.c_[a, b, 0.3 * a + b].astype(np.float32).astype(np.float64)
    assert is_thin(plane)


@pytest.mark.parametrize("n", [300, 5000])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_curves_and_surfaces_are(n, scale):
    rng = np.random.default_rng(4)
    z = rng.standard_normal((n, 5))
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
    rng = np.random.default_rng(5)
    assert dimension(rng.standard_normal((4000, p))) == pytest.approx(p, rel=0.08)


def test_few_points_equal_points_and_holes():
    rng = np.random.default_rng(6)
    a = rng.standard_normal((400, 1))
    line = np.c_[a, a**2]
    assert is_thin(np.repeat(line, 10, axis=0))
    assert is_thin(np.concatenate([line, np.full((300, 2), np.nan)]))
    assert not is_thin(line[:100])
    assert not is_thin(a)
    assert not is_thin(np.full((500, 2), np.nan))
