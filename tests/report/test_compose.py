"""ks.report: one composition, whoever asks; the exact side once; it says what results say."""

from dataclasses import replace

import numpy as np
import pytest
from likelihoods import FastToy
from training_helpers import SHORT, Tiny

import keepscore as ks
from keepscore.errors import (
    DomainError,
    MismatchError,
    MissingError,
    ShapeError,
    UnknownNameError,
)
from keepscore.evaluation.scorecard import SIZES, Size
from keepscore.reports import EXACT


def train(model, d=2, size=4):
    data = ks.simulate(model, 300, seed=0, jobs=1)
    return ks.train(data, None, lambda key: Tiny(key, size, d), ks.BCE(), SHORT, progress=False)


@pytest.fixture(scope="module", autouse=True)
def _small():
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SIZES, "small", Size(60, 20, 4, 2, 2))
        yield


@pytest.fixture(scope="module")
def surrogate():
    return train(FastToy())


@pytest.fixture(scope="module")
def xs():
    return FastToy().simulate(np.tile([0.2, 0.1], (7, 1)), np.random.default_rng(3))


def test_one_call_writes_the_page(surrogate, xs, tmp_path):
    model = FastToy()
    told = []
    page = tmp_path / "deep" / "report.html"
    made = ks.report(
        {"one": surrogate, "other": surrogate}, model, page, xs=xs, truth=[0.2, 0.1],
        progress=told.append,
    )  # fmt: skip
    assert made.path == page
    assert page.read_text().startswith("<!DOCTYPE html>")
    content = made.content
    assert content.methods == ("one", "other", EXACT)
    assert [g.name for g in content.surfaces.groups] == [
        "observed data", *(f"test group {k}" for k in range(1, 5)),
    ]  # fmt: skip
    assert content.surfaces.groups[0].truth == (0.2, 0.1)
    for method, like in {"one": surrogate.given(xs), EXACT: model.given(xs)}.items():
        found, chosen = ks.mle(like), ks.confidence_set(like).intervals
        rows = [row for row in content.intervals if row.method == method]
        assert [row.parameter for row in rows] == ["mean", "sd"]
        for k, row in enumerate(rows):
            assert row.estimate == pytest.approx(found.raw[k])
            assert (row.lower, row.upper) == pytest.approx(tuple(chosen.raw[k]))
            assert row.truth == pytest.approx(model.space.to_raw(np.array([0.2, 0.1]))[k])
    assert "measuring other" in told
    said = str(made)
    assert "Cross-entropy" in said
    assert f"Report: {page}" in said
    assert "Wilks' 95% sets held the truth in" in said


def test_a_refined_surrogate_has_a_column_of_its_own(surrogate, xs, tmp_path):
    made = ks.report(
        {"one": surrogate}, FastToy(), tmp_path / "page.html", xs=xs, refine={"one": 14}
    )
    name, content = "one + 14 exact evaluations", made.content
    assert content.methods == ("one", name, EXACT)
    assert list(content.coverage[0].values) == ["one", name, EXACT]
    estimates = {(r.method, r.parameter): r.estimate for r in content.intervals}
    for parameter in ("mean", "sd"):
        ours, theirs = estimates[name, parameter], estimates[EXACT, parameter]
        assert ours == pytest.approx(theirs, abs=5e-3)
    assert all(
        [s.method for s in g.surfaces] == ["one", name, EXACT] for g in content.surfaces.groups
    )
    assert "refined: error" in str(made)
    assert "one + 14 exact" in str(made).splitlines()[0]
    with pytest.raises(UnknownNameError, match="other"):
        ks.report({"one": surrogate}, FastToy(), None, refine={"other": 14})


def test_scorecards_are_those_of_each_alone(surrogate):
    model = FastToy()
    made = ks.report({"one": surrogate}, model, path=None)
    assert made.path is None
    assert made.scorecards["one"].to_dict() == ks.scorecard(surrogate, model).to_dict()


def test_the_exact_side_is_computed_once(surrogate):
    """Exact likelihoods of the test pairs and groups: as often for three surrogates as for one."""
    counted = []

    class Counting(FastToy):
        def log_prob(self, theta, x):
            counted.append("log_prob")
            return super().log_prob(theta, x)

        def given(self, xs):
            counted.append(np.shape(xs))
            return super().given(xs)

    ks.report({"one": surrogate}, Counting(), path=None)
    alone = len(counted)
    counted.clear()
    ks.report({"one": surrogate, "two": surrogate, "three": surrogate}, Counting(), path=None)
    assert len(counted) == alone > 0


def test_one_surrogate_needs_no_name(surrogate):
    assert ks.report(surrogate, FastToy(), path=None).content.methods == ("surrogate", EXACT)


def test_a_posterior_is_drawn_where_it_is_asked_for(surrogate, xs, monkeypatch):
    import keepscore.reports.rows as rows

    real = rows.posterior
    monkeypatch.setattr(rows, "posterior", lambda like, seed: real(like, None, seed, 200, 2, 100))
    made = ks.report({"one": surrogate}, FastToy(), path=None, xs=xs, posterior=["one"], level=0.8)
    found = {(row.method, row.parameter): row for row in made.content.posterior}
    assert set(found) == {(m, p) for m in ("one", EXACT) for p in ("mean", "sd")}
    assert all(row.level == 0.8 for row in found.values())
    # The exact one by its grid: normal data, so the mean is near the sample's.
    exact = found[EXACT, "mean"]
    assert exact.mean == pytest.approx(xs.mean(), abs=0.1)
    assert exact.lower < exact.mean < exact.upper


@pytest.mark.parametrize("d", [1, 6])
def test_any_number_of_parameters(d):
    space = ks.Space([ks.Parameter(f"b{k}", -1, 1, "identity") for k in range(d)])

    def simulate(theta, rng):
        return theta + 0.5 * rng.standard_normal(theta.shape)

    def log_prob(theta, x):
        return -2.0 * ((x - theta) ** 2).sum(1)

    def score(theta, x):
        return 4.0 * (x - theta)

    model = ks.models.from_functions(space, (d,), simulate=simulate, log_prob=log_prob, score=score)
    x = simulate(np.full((5, d), 0.1), np.random.default_rng(0))
    made = ks.report({"own": train(model, d, d)}, model, path=None, xs=x)
    assert (made.content.surfaces is None) == (d > 3)
    assert len(made.content.intervals) == 2 * d
    exact = [row for row in made.content.intervals if row.method == EXACT]
    assert [row.estimate for row in exact] == pytest.approx(x.mean(axis=0), abs=1e-3)


def test_a_model_without_a_likelihood_stands_without_an_exact_side(xs):
    space = FastToy().space
    model = ks.models.from_functions(space, (4,), simulate=FastToy().simulate)
    data = ks.simulate(model, 300, seed=0, jobs=1, scores=False)
    own = ks.train(data, None, Tiny, ks.BCE(), SHORT, progress=False)
    made = ks.report({"own": own}, model, path=None, xs=xs)
    assert made.content.methods == ("own",)
    assert {row.method for row in made.content.intervals} == {"own"}
    assert [s.method for s in made.content.surfaces.groups[0].surfaces] == ["own"]
    assert made.content.coverage == ()
    assert "Cross-entropy" in str(made)


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ({"surrogates": {}}, MissingError, "at least one"),
        ({"name": EXACT}, DomainError, "exact likelihood's name"),
        ({"model": FastToy(5)}, MismatchError, "another space or x_shape"),
        ({"path": "."}, DomainError, "folder"),
        ({"truth": [0.1, 0.1]}, MissingError, "pass xs"),
        ({"posterior": ["two"]}, UnknownNameError, "'two'"),
        ({"xs": np.zeros((2, 3, 4))}, ShapeError, "one group"),
        ({"xs": np.zeros((3, 4)), "truth": [1.0]}, ShapeError, r"\(2,\)"),
        ({"size": "smal"}, UnknownNameError, "small"),
        ({"seed": -1}, DomainError, "seed"),
        ({"level": 2}, DomainError, "level"),
    ],
)
def test_wrong_arguments_are_named_before_the_work(change, error, said, surrogate, tmp_path):
    arguments = {"model": FastToy(), "path": tmp_path / "page.html"} | change
    named = arguments.pop("surrogates", {arguments.pop("name", "one"): surrogate})
    with pytest.raises(error, match=said):
        ks.report(named, **arguments)
    assert not (tmp_path / "page.html").exists()


def test_the_first_box_says_how_good_a_surrogate_is(surrogate):
    """A network of two epochs follows no score: a serious notice names the parameters."""
    poor = replace(surrogate.quality, score_r2=(0.99, 0.2), score_kind="exact")
    good = replace(poor, score_r2=(0.99, 0.98))
    for quality, expected in ((poor, 1), (good, 0), (None, 0)):
        made = ks.report(replace(surrogate, quality=quality), FastToy(), path=None)
        told = [n for n in made.content.warnings if "follows the score of sd badly" in n.text]
        assert len(told) == expected
        lines = [line for line in made.content.findings if "validation BCE" in line]
        assert len(lines) == (quality is not None)
        assert all(notice.severity == "serious" for notice in told)


def test_the_first_box_says_that_a_surrogate_is_too_sure(surrogate):
    sure = replace(surrogate.quality, information=(1.1, 3.0), information_error=(0.1, 0.2))
    unknown = replace(sure, information_error=(0.1, 0.9))
    for quality, expected in ((sure, 1), (unknown, 0), (None, 0)):
        made = ks.report(replace(surrogate, quality=quality), FastToy(), path=None)
        told = [n for n in made.content.warnings if "right: sd 3.00 ± 0.20" in n.text]
        assert len(told) == expected
        assert all(notice.severity == "serious" for notice in told)
