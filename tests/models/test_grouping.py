"""What `given` was told is what it says: one theta for all observations, one per group, or each."""

import jax
import numpy as np
import pytest
from toys import GaussianToy
from training_helpers import Tiny

import keepscore as ks
from keepscore.errors import DtypeError, ShapeError
from keepscore.surrogate import Surrogate


def function_model():
    toy = GaussianToy()
    return ks.models.from_functions(
        toy.space, (4,), simulate=toy.simulate, log_prob=toy.log_prob, score=toy.score
    )


def untrained():
    toy = GaussianToy()
    return Surrogate(Tiny(jax.random.key(1)), toy.space, (4,))


SOURCES = {
    "functions": function_model,
    "surrogate": untrained,
    "sis": lambda: ks.models.SIS(weights=[[0, 1], [1, 0]], times=[0, 1, 2]),
    "gaussian": lambda: ks.models.GaussianField(3),
    "student-t": lambda: ks.models.StudentTField(3),
}


def observations(source, n, seed=0):
    rng = np.random.default_rng(seed)
    if isinstance(source, Surrogate):
        return rng.standard_normal((n, 4))
    return source.simulate(source.space.uniform(n, rng, "test"), rng)


@pytest.mark.parametrize("name", SOURCES)
def test_each_is_one_group_per_observation(name):
    source = SOURCES[name]()
    x = observations(source, 5)
    each, by_hand, together = source.given(x, each=True), source.given(x[:, None]), source.given(x)
    theta = source.space.uniform(3, np.random.default_rng(1), "test")
    assert (each.group_count, each.group_size, each.single) == (5, 1, False)
    np.testing.assert_array_equal(each(theta), by_hand(theta))
    np.testing.assert_allclose(each(theta).sum(axis=0), together(theta), rtol=1e-5, atol=1e-5)
    one = source.given(x[:1], each=True)
    assert one(theta).shape == (1, 3)  # still an axis of groups
    assert source.given(x, each=False).single


@pytest.mark.parametrize("name", SOURCES)
def test_groups_are_not_split_behind_ones_back(name):
    source = SOURCES[name]()
    x = observations(source, 6)
    with pytest.raises(ShapeError, match=r"each=True .* are in groups already"):
        source.given(x.reshape(3, 2, *x.shape[1:]), each=True)
    with pytest.raises(DtypeError, match="each must be True or False; got 3"):
        source.given(x, each=3)


@pytest.mark.filterwarnings("ignore::keepscore.errors.KeepscoreWarning")
def test_results_say_what_was_fitted():
    model = GaussianToy()
    x = model.simulate(np.zeros((48, 2)), np.random.default_rng(0))
    model = function_model()
    all_ = "one theta for all 48 observations (given(X, each=True): one per observation)"
    each = "48 groups of 1 observation each, one theta per group"
    cases = [
        (model.given(x), all_),
        (model.given(x, each=True), each),
        (model.given(x.reshape(4, 12, 4)), "4 groups of 12 observations each, one theta per group"),
        (model.given(x[:1]), "one observation"),
        (model.given(x[None]), "1 group of 48 observations"),
    ]
    for like, words in cases:
        assert words in str(like)
        assert words in repr(like)
        assert "mean, sd" in str(like)
        answer = ks.confidence_set(like)
        theta0 = [0.0, 0.0]
        for result in (ks.mle(like), ks.lrt(like, theta0), answer, answer.intervals):
            assert words in str(result), type(result)
    assert "one theta for all 48" not in str(ks.mle(model.given(x, each=True)[3]))
    assert "surrogate" in str(untrained().given(x))
