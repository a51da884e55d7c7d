"""The information ratio: 1 for the true likelihood, known for wrong ones, told when it is large."""

import json
import warnings
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import keepscore as ks
from keepscore.errors import FormatError, KeepscoreWarning
from keepscore.quality import UNKNOWN, Quality
from keepscore.training.guard import TOO_SURE, warn_of_false_sureness
from keepscore.training.information import information_ratio

RNG = np.random.default_rng(7)


def space(d):
    return ks.Space([ks.Parameter(f"t{k}", -1.0, 1.0, "identity", 0.0) for k in range(d)])


def normal(d, n=2000, sd=0.3):
    """theta and x = theta + noise; a surrogate that takes the noise for `claimed` is right where
    that is `sd`."""
    rng = np.random.default_rng(2)
    theta = rng.uniform(-1, 1, (n, d))
    return theta, theta + sd * rng.standard_normal((n, d))


def claiming(d, sd):
    def relative(theta, x):
        return -0.5 * (((np.asarray(x) - theta) / sd) ** 2).sum(axis=1)

    return SimpleNamespace(space=space(d), relative=relative)


@pytest.mark.parametrize("d", [1, 2, 6])
def test_the_true_likelihood_has_a_ratio_of_one(d):
    """2,000 rows; a parameter is off by three standard errors once in 370."""
    ratio, error = information_ratio(claiming(d, 0.3), *normal(d))
    assert np.all(np.abs(np.array(ratio) - 1) < 3.5 * np.array(error))
    assert max(error) < 0.08


@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize(("claimed", "known"), [(0.15, 4.0), (0.2, 2.25), (0.3, 1.0), (0.6, 0.25)])
def test_a_wrong_spread_has_the_ratio_that_it_must_have(claimed, known, kind):
    """(sd / claimed)^2, but for the size of the step; the likelihood ratio statistic is larger by
    that factor."""
    theta, x = normal(2)
    ratio, _ = information_ratio(claiming(2, claimed), theta.astype(kind), x.astype(kind))
    np.testing.assert_allclose(ratio, known, rtol=0.2)


def test_of_several_parameters_the_wrong_one_is_told():
    theta, x = normal(3)

    def relative(t, values):
        return -0.5 * (((np.asarray(values) - t) / [0.3, 0.12, 0.3]) ** 2).sum(axis=1)

    ratio, error = information_ratio(SimpleNamespace(space=space(3), relative=relative), theta, x)
    quality = Quality(0.3, 100, None, None, "BCE", True, information=ratio, information_error=error)
    assert quality.too_sure() == [1]


def test_the_law_needs_no_gaussian():
    """Counts, and a posterior that is far from one."""
    rng = np.random.default_rng(7)
    theta = rng.uniform(-1, 1, (2000, 1))
    x = rng.poisson(np.exp(2 + theta))

    def poisson(t, values):
        return (values * (2 + t) - np.exp(2 + t)).sum(axis=1)

    ratio, error = information_ratio(SimpleNamespace(space=space(1), relative=poisson), theta, x)
    assert abs(ratio[0] - 1) < 3.5 * error[0]


def test_what_claims_nothing_and_what_cannot_be_told():
    theta, x = normal(1)
    flat = SimpleNamespace(space=space(1), relative=lambda t, values: np.zeros(len(t)))
    assert information_ratio(flat, theta, x) == ((1.0,), (0.0,))
    straight = SimpleNamespace(space=space(1), relative=lambda t, values: t[:, 0] * 3.0)
    assert information_ratio(straight, theta, x) == ((UNKNOWN,), (UNKNOWN,))
    assert information_ratio(claiming(1, 0.3), theta[:40], x[:40]) is None
    low, high = space(1).box("train")
    edges = np.where(theta > 0, high, low)  # from which a step one way leaves the box
    assert information_ratio(claiming(1, 0.3), edges, x) is None


def with_noise():
    rng = np.random.default_rng(9)
    theta, x = normal(1, 400)
    noise = rng.standard_normal((400, 3))
    return ks.dataset(theta, np.c_[x, noise], space=space(1))


def test_trained_surrogates_carry_it_and_files_keep_it(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KeepscoreWarning)
        config = ks.TrainConfig(min_epochs=3, max_epochs=3)
        surrogate = ks.train(with_noise(), config=config, network="mlp-3k", progress=False,
                             validation=with_noise())  # fmt: skip
    quality = surrogate.quality
    assert len(quality.information) == len(quality.information_error) == 1
    assert "no scores held out; information ratio (1 is right): t0 " in str(surrogate)
    surrogate.save(tmp_path / "s")
    assert ks.load(tmp_path / "s").quality == quality


GOOD = Quality(
    0.3, 100, (0.9, 0.8), "exact", "ASA", True,
    information=(1.1, 2.5), information_error=(0.1, 0.2),
)  # fmt: skip


def test_it_is_said_where_a_surrogate_is_too_sure():
    assert GOOD.too_sure() == [1]
    assert "information ratio (1 is right): b 2.50 ± 0.20" in GOOD.line(["a", "b"])
    with pytest.warns(KeepscoreWarning, match=r"surer than it may be.*b 2\.50 ± 0\.20.*to 1\.6,"):
        warn_of_false_sureness(GOOD, ["a", "b"], 1)
    for calm in (
        replace(GOOD, information_error=(0.1, 0.6)),
        replace(GOOD, information=None, information_error=None),
        replace(GOOD, information=(1.1, 0.2)),
        replace(GOOD, information=(1.1, UNKNOWN), information_error=(0.1, UNKNOWN)),
        replace(GOOD, whole=False),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("error", KeepscoreWarning)
            warn_of_false_sureness(calm, ["a", "b"], 1)


def test_words_follow_what_there_is():
    unknown = replace(GOOD, information_error=(0.1, UNKNOWN), score_r2=None, score_kind=None)
    assert "a 1.10 ± 0.10, b unknown (100 held-out" in unknown.line(["a", "b"])
    assert unknown.too_sure() == []
    for kind, advised in (("exact", False), ("joint", True)):
        with pytest.warns(KeepscoreWarning, match=TOO_SURE) as told:
            warn_of_false_sureness(replace(GOOD, score_kind=kind), ["a", "b"], 1)
        assert ("exact scores along" in str(told[0].message)) == advised


def test_files_of_earlier_versions_have_none_and_wrong_ones_are_refused():
    content = json.loads(json.dumps(GOOD.to_dict()))
    assert Quality.from_dict(content, 2) == GOOD
    earlier = {k: v for k, v in content.items() if not k.startswith("information")}
    assert Quality.from_dict(earlier, 2).information is None
    for wrong in ([1.0], [1.0, -0.1], [1.0, float("nan")], "12", [1.0, None], [True, 1.0]):
        for name in ("information", "information_error"):
            with pytest.raises(FormatError):
                Quality.from_dict({**content, name: wrong}, 2)
    with pytest.raises(FormatError):
        Quality.from_dict({**content, "information": None}, 2)
