"""Raw fields to a model's units and back."""

import numpy as np
import pytest

import keepscore as ks
from keepscore.errors import DomainError, DtypeError, NonFiniteError, ShapeError, UnknownNameError

P = ks.Parameter
SPACE = ks.Space([P("l_x", -1, 1), P("l_y", -1, 1), P("eps", -3, 0), P("sigma2", -2, 2)])


def raw_fields(n=3, seed=0):
    rng = np.random.default_rng(seed)
    rows, columns = np.indices((7, 6))
    slopes = rng.normal(0, 5, (n, 2, 1, 1))
    return 300 + slopes[:, 0] * rows + slopes[:, 1] * columns + rng.normal(0, 55, (n, 7, 6))


@pytest.mark.parametrize("trend", ["linear", "constant", None, np.arange(42.0).reshape(7, 6) ** 2])
@pytest.mark.parametrize("scale", ["all", "each", 10.0])
def test_there_and_back(trend, scale):
    raw = raw_fields()
    found = ks.standardise(raw, trend, scale=scale)
    np.testing.assert_allclose(found.restore(), raw, rtol=1e-12)
    np.testing.assert_allclose(found.restore(0 * found.x), found.removed)
    if scale == "each":
        np.testing.assert_allclose((found.x**2).mean(axis=(1, 2)), 1)
    if scale == "all":
        assert (found.x**2).mean() == pytest.approx(1)
        assert len(set(found.scale)) == 1
    if trend is not None:
        np.testing.assert_allclose(found.x.mean(axis=(1, 2)), 0, atol=1e-12)
        model = ks.models.GaussianField(shape=(7, 6), trend=found.trend, space=SPACE)
        np.testing.assert_allclose(model.trend.take_off(raw) / found.scale[:, None, None], found.x)


def test_parameters_in_raw_units_have_the_raw_likelihood():
    """The likelihood of raw fields at raw parameters, from a model whose grid is in metres, is
    that of standardised ones at standardised parameters, up to the scale's Jacobian."""
    raw = raw_fields()
    found = ks.standardise(raw, scale="each", spacing=(30.0, 20.0))
    model = ks.models.GaussianField(shape=(7, 6), trend="linear", space=SPACE)
    theta = SPACE.uniform(3, np.random.default_rng(1))
    values = found.raw_parameters(model, theta)
    wide = ks.Space([P("l_x", -9, 9), P("l_y", -9, 9), P("eps", -9, 9), P("sigma2", -9, 19)])
    metres = ks.models.GaussianField(
        shape=(7, 6), extent=(6 * 30 / 2, 5 * 20 / 2), trend="linear", space=wide
    )
    there = wide.to_working(np.stack([values[name] for name in wide.names], axis=1))
    contrasts = 42 - 3
    np.testing.assert_allclose(
        metres.log_prob(there, raw),
        model.log_prob(theta, found.x) - contrasts * np.log(found.scale),
        rtol=1e-9,
    )
    one = found.raw_parameters(model, theta[0])
    assert one["l_x"][2] == values["l_x"][0]
    student = ks.models.StudentTField(shape=(7, 6))
    told = found.raw_parameters(student, student.space.uniform(3, np.random.default_rng(2)))
    np.testing.assert_allclose(told["sigma2"], found.scale**2)


def test_holes_stay_holes():
    raw = raw_fields()
    raw[0, :3, :3] = np.nan
    raw[1, 2] = np.nan
    found = ks.standardise(raw)
    np.testing.assert_array_equal(np.isnan(found.x), np.isnan(raw))
    np.testing.assert_allclose(found.restore(), raw, rtol=1e-12)
    assert np.isfinite(found.removed).all()  # the plane is known under the hole too
    model = ks.models.with_missing(ks.models.GaussianField(shape=(7, 6), trend="linear"), 0.2)
    np.testing.assert_allclose(model.trend.take_off(found.x), found.x, atol=1e-12)


def test_other_number_types_give_the_same():
    raw = raw_fields(1)[0].round()
    wanted = ks.standardise(raw).x
    for other in (raw.astype(np.int16), raw.astype(np.float32), raw.tolist()):
        np.testing.assert_allclose(ks.standardise(other).x, wanted, rtol=1e-12)


def test_nonsense_is_refused():
    raw = raw_fields()
    with pytest.raises(ShapeError, match=r"\(H, W\) or \(n, H, W\)"):
        ks.standardise(raw[0, 0])
    with pytest.raises(ShapeError):
        ks.standardise(np.empty((0, 4, 4)))
    with pytest.raises(DomainError, match="Field 1 is nothing but its linear trend"):
        ks.standardise(np.stack([raw[0], np.full((7, 6), 4.0)]))
    plane = np.add.outer(np.arange(7.0), 3 * np.arange(6.0)) / 7
    with pytest.raises(DomainError, match="linear trend"):
        ks.standardise(plane + 1000)
    with pytest.raises(DomainError, match="all zero"):
        ks.standardise(np.zeros((4, 4)), trend=None)
    with pytest.raises(DomainError, match="Field 0 has no observed pixel"):
        ks.standardise(np.full((4, 4), np.nan))
    with pytest.raises(NonFiniteError):
        ks.standardise(np.where(raw > 300, np.inf, raw))
    with pytest.raises(UnknownNameError, match="each"):
        ks.standardise(raw, scale="eahc")
    with pytest.raises(DomainError, match="positive"):
        ks.standardise(raw, scale=-1.0)
    with pytest.raises(DtypeError):
        ks.standardise([["a", "b"]])
    for wrong in (0.0, (1.0, np.nan)):
        with pytest.raises(DomainError, match="spacing"):
            ks.standardise(raw, spacing=wrong)
    with pytest.raises(ShapeError, match="spacing"):
        ks.standardise(raw, spacing=(1.0, 2.0, 3.0))
    found = ks.standardise(raw)
    model = ks.models.GaussianField(shape=(5, 5))
    with pytest.raises(ShapeError, match="these are"):
        found.raw_parameters(model, np.zeros(3))
    with pytest.raises(ShapeError, match="theta"):
        found.raw_parameters(ks.models.GaussianField(shape=(7, 6)), np.zeros((2, 3)))
    with pytest.raises(ShapeError):
        found.restore(np.zeros((1, 7, 6)))
