"""The scorecard: text, JSON and pandas say the same, at every size, with and without likelihood."""

import importlib
import json
from dataclasses import replace

import numpy as np
import pytest
from doubles import Bent
from test_etest import WideToy

import keepscore as ks
from keepscore.errors import MissingError, UnknownNameError
from keepscore.evaluation.scorecard import SIZES, Size
from keepscore.figures import scorecard as scorecard_plot

# Modules whose names are those of functions too.
CARD, ETEST = (importlib.import_module(f"keepscore.evaluation.{n}") for n in ("scorecard", "etest"))


@pytest.fixture(scope="module")
def card():
    toy = WideToy()
    return ks.scorecard(Bent(toy, tilt=0.2), toy, seed=1)


def test_every_metric_is_in_every_form(card):
    metrics = [row.metric for row in card.rows()]
    assert metrics == [
        "bce",
        "bce_excess",
        "score_mse[mean]",
        "score_mse[sd]",
        "rmse_near",
        "rmse_far",
        "lrt_mse",
        "coverage",
        "volume",
        "mle_mse[mean]",
        "mle_mse[sd]",
    ]
    frame = card.to_frame()
    assert list(frame["metric"]) == metrics
    plain = card.to_dict()
    json.dumps(plain, allow_nan=False)
    both = {**plain["ltest"]["metrics"], **plain["etest"]["metrics"]}
    for row in frame.itertuples():
        assert both[row.metric] == {"value": row.value, "se": row.se}


def test_the_table_reads(card):
    text = str(card)
    assert "score error², sd" in text
    assert "  0.04  " in text  # tilt 0.2, squared
    assert "E-test: 16 theta, 10 groups of 10 at each" in text
    assert max(len(line) for line in text.splitlines()) <= 100


def test_a_budget_counts_both_sides(monkeypatch):
    """A tenth of a second per group of the surrogate, a hundredth of the exact likelihood: 160
    groups of the second alone fit into six seconds, both do not."""

    def each(model, size, seed, surrogate=None):
        return 0.01 if surrogate is None else 0.1

    monkeypatch.setattr(CARD, "seconds_per_pair", lambda model, seed: (0.0, 0.0))
    monkeypatch.setattr(CARD, "seconds_per_group", each)
    toy = WideToy()
    assert CARD.size_within(toy, "small", 0, 0.1) == "small"
    with pytest.warns(ks.KeepscoreWarning, match="'quick'.* instead of 'small'"):
        assert CARD.size_within(toy, "small", 0, 0.1, Bent(toy, tilt=0.2)) == "quick"


def test_a_surrogate_is_timed_on_several_groups_at_once(monkeypatch):
    asked = []
    monkeypatch.setattr(ETEST, "seconds_of", lambda work: asked.append(work()) or 4.0)
    toy = WideToy()
    assert ETEST.seconds_per_group(toy, surrogate=Bent(toy, tilt=0.2)) == 0.5
    assert asked[0].statistic.shape == (8, 1)


def test_refined_stands_between_surrogate_and_exact(monkeypatch):
    monkeypatch.setitem(SIZES, "small", Size(60, 20, 4, 2, 2))
    toy = WideToy()
    card = ks.scorecard(Bent(toy, tilt=0.2), toy, seed=1, refine=12)
    rows = {row.metric: row for row in card.rows()}
    assert rows["bce"].refined is None  # of the E-test alone
    assert rows["lrt_mse"].refined.value < 1e-3 * rows["lrt_mse"].found.value
    text = str(card)
    assert "+ 12 exact" in text.splitlines()[1]
    assert "refined: median error" in text
    assert max(len(line) for line in text.splitlines()) <= 170
    assert list(card.etests("Bent")) == ["Bent", "Bent + 12 exact evaluations"]
    assert card.to_dict()["etest"]["refined"]["exact_evaluations"] == 12
    frame = card.to_frame().set_index("metric")
    assert frame.loc["lrt_mse", "refined"] == rows["lrt_mse"].refined.value


def test_ideal_values(card):
    ideal = {row.metric: row.ideal.value for row in card.rows()}
    assert ideal["bce"] == card.ltest.bce.value - card.ltest.bce_excess.value
    assert ideal["coverage"] == card.etest.coverage_exact.value
    assert ideal["rmse_far"] == 0


def test_a_perfect_surrogate_meets_every_ideal():
    toy = WideToy()
    perfect = ks.scorecard(Bent(toy), toy)
    for row in perfect.rows():
        if row.metric != "bce":  # there the ideal is on fewer pairs; the excess is paired
            assert row.found.value == pytest.approx(row.ideal.value, abs=1e-9)


def test_without_a_likelihood_there_is_no_etest():
    class Unknown(WideToy):
        def log_prob_and_score(self, theta, x):
            raise MissingError("no likelihood")

    found = ks.scorecard(Bent(WideToy(), tilt=0.2), Unknown())
    assert found.etest is None
    assert found.to_dict()["etest"] is None
    assert "not possible" in str(found)
    with pytest.raises(MissingError, match="no E-test to draw"):
        scorecard_plot(found)


def test_sizes_grow_and_unknown_ones_are_named():
    for key in ("n", "exact", "evidence", "groups"):
        assert np.all(np.diff([getattr(SIZES[s], key) for s in ("small", "medium", "paper")]) > 0)
    with pytest.raises(UnknownNameError, match="Did you mean 'small'"):
        ks.scorecard(Bent(WideToy()), WideToy(), size="smal")


def test_the_picture_shows_every_group(card):
    axes = scorecard_plot(card).axes
    test, shown = card.etest, [ax for ax in axes if ax.axison]
    assert [ax.get_xlabel().partition(" (")[0] for ax in shown] == [
        "likelihood-ratio statistic",
        "exact",
        "mean",
        "log sd",
        "mean, exact",
        "log sd, exact",
    ]
    null, statistics, coverage, _, estimates, _ = shown
    assert [t.get_text() for t in null.get_legend().get_texts()] == ["exact", "surrogate"]
    assert np.sort(null.lines[2].get_xdata()[1:]) == pytest.approx(
        np.sort(test.surrogate.statistic, axis=None)
    )
    groups = statistics.lines[1].get_xydata()
    assert groups[:, 0] == pytest.approx(test.exact.statistic.ravel())
    assert groups[:, 1] == pytest.approx(test.surrogate.statistic.ravel())
    assert estimates.lines[1].get_ydata() == pytest.approx(test.surrogate.estimate[..., 0].ravel())
    # The exact line first, then the surrogate's.
    drawn = [container.lines[0].get_ydata() for container in coverage.containers]
    for line, exact in zip(drawn, (True, False), strict=True):
        assert line == pytest.approx([e.value for _, e in test.coverage_along("mean", exact)])


def test_few_groups_far_off_are_counted_not_shown(card):
    statistic = card.etest.surrogate.statistic.copy()
    statistic[0, 0] = 1e4
    inferences = replace(card.etest.surrogate, statistic=statistic)
    ax = scorecard_plot(replace(card, etest=replace(card.etest, surrogate=inferences))).axes[1]
    hidden = int(ax.get_xlabel().removeprefix("exact (").split()[0])
    assert 1 <= hidden <= 0.02 * statistic.size + 1
    assert ax.get_xlim()[1] < 100


@pytest.mark.parametrize("wrong", [None, 3, [], dict, np.zeros(3)])
def test_what_is_no_surrogate_or_model_is_said(wrong):
    model = WideToy()
    for pair in ((wrong, model), (model, wrong)):
        with pytest.raises(ks.errors.DtypeError):
            ks.scorecard(*pair)
