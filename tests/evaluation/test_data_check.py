"""`ks.check_data`: its level on the right model, its power against planted misfits.

False alarms: the overall p-value of a right model is at most uniform. Over 60 data sets and a level
of .1, more than 14 alarms have probability .0016 (binomial); seeds are fixed. Power: each of the
planted misfits is so large that one data set suffices.
"""

import numpy as np
import pytest
from toys import GaussianToy

import keepscore as ks
from keepscore.errors import DomainError, MissingError, ShapeError
from keepscore.evaluation.data_check import standardised, two_sided
from keepscore.evaluation.data_summaries import summaries

FIELD = ks.models.GaussianField(shape=(8, 8))
TRUTH = np.array([0.3, 0.3, -1.0])


def fields(n=4, seed=0):
    return FIELD.simulate(np.tile(TRUTH, (n, 1)), np.random.default_rng(seed))


def normal():
    """Four normal draws around a mean, whose standard deviation is 1."""
    space = ks.Space([ks.Parameter("mean", -3, 3, "identity")])
    return ks.models.from_functions(
        space,
        (4,),
        simulate=lambda theta, rng: theta + rng.standard_normal((len(theta), 4)),
        log_prob=lambda theta, x: -0.5 * ((x - theta) ** 2).sum(axis=1),
        score=lambda theta, x: (x - theta).sum(axis=1, keepdims=True),
    )


def test_the_right_model_is_rarely_accused():
    model, rng = normal(), np.random.default_rng(1)
    alarms = 0
    for k in range(60):
        xs = 0.5 + rng.standard_normal((6, 4))
        alarms += ks.check_data(model, xs, draws=60, level=0.1, seed=k).p_value < 0.1
    assert alarms <= 14


@pytest.mark.parametrize(
    ("misfit", "summary"),
    [
        (lambda z, rng: 0.5 + 2 * z, "sd"),
        (lambda z, rng: 0.5 + np.sign(z) * np.abs(z) ** 3, "kurtosis"),
        (lambda z, rng: 0.5 + z + 2 * np.linspace(-1, 1, 4), "trend"),
        (lambda z, rng: 0.5 + z + 3 * rng.standard_normal((len(z), 1)), "observations' means"),
        (lambda z, rng: 0.5 + np.exp(z), "skewness"),
    ],
)
def test_planted_misfits_are_seen_and_named(misfit, summary):
    rng = np.random.default_rng(2)
    xs = misfit(rng.standard_normal((12, 4)), rng)
    found = ks.check_data(normal(), xs, draws=199)
    assert not found.fits
    assert "does not fit" in found.sentence
    accused = [one.name for one in found.summaries if one.p_value < 0.02]
    assert any(summary in name for name in accused), accused


@pytest.mark.slow
def test_fields():
    assert ks.check_data(FIELD, fields(), draws=60, level=0.05).fits
    trend = fields() + 3 * np.linspace(-1, 1, 8)
    found = ks.check_data(FIELD, trend, draws=60, level=0.05)
    assert not found.fits
    assert any("axis 1" in s.name and s.p_value < 0.05 for s in found.summaries)


def test_an_epidemic_whose_rates_change_half_way():
    model = ks.models.SIS()
    space = model.space
    low, high = space.box("base")
    slow, fast = low + 0.2 * (high - low), low + 0.8 * (high - low)
    rng = np.random.default_rng(4)
    right = model.simulate(np.tile(slow, (10, 1)), rng)
    assert ks.check_data(model, right, draws=60, level=0.05).fits
    later = model.simulate(np.tile(fast, (10, 1)), rng)
    changed = right.copy()
    changed[:, 6:] = later[:, 6:]
    found = ks.check_data(model, changed, draws=60, level=0.05)
    assert not found.fits


def test_summaries_are_those_of_the_formulas():
    rng = np.random.default_rng(5)
    x = rng.standard_normal((3, 5, 6))
    found = summaries(x, None)
    np.testing.assert_allclose(found["mean"], x.mean(axis=(1, 2)))
    np.testing.assert_allclose(found["sd"], x.std(axis=(1, 2)))
    np.testing.assert_allclose(found["mean of x[2]"], x[:, :, 2].mean(axis=1))
    c = x[0] - x[0].mean()
    np.testing.assert_allclose(
        found["correlation of neighbours"][0], (c[:, :-1] * c[:, 1:]).sum() / (c**2).sum()
    )
    slope = [np.corrcoef(np.arange(6), row)[0, 1] * row.std() for row in c]
    np.testing.assert_allclose(
        found["trend"][0], np.sqrt(np.mean(np.square(slope))) / c.std(), rtol=1e-10
    )


def test_exchangeable_rows_have_no_order():
    x = np.random.default_rng(6).standard_normal((2, 3, 10, 2))
    names = summaries(x, "iid")
    assert "trend along axis 0" not in names
    assert "trend along axis 0" in summaries(x, None)


def test_rates_of_chains():
    x = np.zeros((1, 1, 5, 2))
    x[0, 0, :, 0] = [0, 1, 1, 0, 0]  # of 4 steps, 2 begin at 0 and 2 at 1
    found = summaries(x, "markov")
    assert found["rate of 0 to 1"][0] == pytest.approx(1 / 6)
    assert found["rate of 1 to 0"][0] == pytest.approx(1 / 2)


def test_two_sided_p_values():
    table = np.arange(10.0)[None]
    np.testing.assert_allclose(two_sided(table)[0], [0.2, 0.4, 0.6, 0.8, 1, 1, 0.8, 0.6, 0.4, 0.2])
    assert (two_sided(np.ones((1, 10))) == 1).all()


def test_z_leaves_the_column_itself_out():
    table = np.random.default_rng(0).standard_normal((2, 12))
    found = standardised(table)
    for b in range(12):
        rest = np.delete(table, b, axis=1)
        expected = (table[:, b] - rest.mean(axis=1)) / rest.std(axis=1)
        np.testing.assert_allclose(found[:, b], expected, rtol=1e-9)


def test_own_summaries_and_their_shape():
    model = normal()
    xs = 0.5 + np.random.default_rng(7).standard_normal((6, 4))
    found = ks.check_data(
        model, xs, draws=40, level=0.05, extra=lambda g: {"range": np.ptp(g, axis=(1, 2))}
    )
    assert "range" in [one.name for one in found.summaries]
    with pytest.raises(ShapeError, match="extra summary 'bad'"):
        ks.check_data(model, xs, draws=40, level=0.05, extra=lambda g: {"bad": np.zeros(3)})


def test_groups_are_refused():
    with pytest.raises(ShapeError, match="one group"):
        ks.check_data(normal(), np.zeros((2, 6, 4)))


@pytest.fixture(scope="module")
def surrogate():
    data = ks.simulate(normal(), 1_000, jobs=1)
    config = ks.TrainConfig(max_epochs=20, guard=False)
    return ks.train(data, None, "mlp-1k", ks.BCE(), config)


def test_a_surrogate_needs_its_model(surrogate):
    with pytest.raises(MissingError, match="pass it too"):
        ks.check_data(surrogate, np.zeros((6, 4)))


def test_a_surrogate_knows_what_it_was_trained_on(surrogate):
    model, rng = normal(), np.random.default_rng(8)
    right = ks.check_data(surrogate, 0.5 + rng.standard_normal((6, 4)), model, draws=40, level=0.05)
    assert right.novelty is not None
    assert right.novelty > 0.01
    far = ks.check_data(surrogate, 50 * rng.standard_normal((6, 4)), model, draws=40, level=0.05)
    assert not far.fits
    assert "unlike anything the surrogate was trained on" in far.sentence


def test_features_of_many_observations_are_those_of_each(surrogate):
    x = np.random.default_rng(9).standard_normal((5, 4))
    each = np.concatenate([surrogate.features(row[None]) for row in x])
    np.testing.assert_allclose(surrogate.features(x), each, rtol=1e-5, atol=1e-6)


def test_integers_and_lists_are_taken_as_numbers():
    model = normal()
    whole = np.arange(24).reshape(6, 4) % 3
    a = ks.check_data(model, whole.tolist(), draws=40, level=0.05)
    b = ks.check_data(model, whole.astype(np.float32), draws=40, level=0.05)
    assert a.to_dict() == b.to_dict()


def test_the_picture_has_a_strip_per_summary():
    found = ks.check_data(
        normal(), np.random.default_rng(3).standard_normal((6, 4)), draws=40, level=0.05
    )
    figure = ks.figures.data_check(found)
    assert len(figure.axes[0].get_yticklabels()) == len(found.summaries)


def test_toy_of_the_package_fits_itself():
    model = GaussianToy(4)
    theta = np.full((8, model.space.d), np.mean(model.space.box("base"), axis=0))
    xs = model.simulate(theta, np.random.default_rng(10))
    assert ks.check_data(model, xs, draws=60, level=0.05).fits


def test_a_level_that_no_p_value_can_reach_is_refused():
    with pytest.raises(DomainError, match="Take 99 draws or more"):
        ks.check_data(normal(), np.zeros((6, 4)), draws=60)
