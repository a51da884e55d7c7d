"""The scorecard: text, JSON and pandas say the same, at every size, with and without likelihood."""

import json

import numpy as np
import pytest
from doubles import Bent
from test_etest import WideToy

import keepscore as ks
from keepscore.errors import MissingError, UnknownNameError
from keepscore.evaluation.scorecard import SIZES


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


def test_sizes_grow_and_unknown_ones_are_named():
    for key in ("n", "exact", "evidence", "groups"):
        assert np.all(np.diff([getattr(SIZES[s], key) for s in ("small", "medium", "paper")]) > 0)
    with pytest.raises(UnknownNameError, match="Did you mean 'small'"):
        ks.scorecard(Bent(WideToy()), WideToy(), size="smal")
