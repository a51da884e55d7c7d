"""The pilot that tells whether scores pay: its arithmetic by hand, and a small one end to end."""

import dataclasses
import json

import numpy as np
import pytest
from toys import GaussianToy
from training_helpers import Tiny

import keepscore as ks
from keepscore.errors import DomainError, MissingError
from keepscore.evaluation.pilot import Costs, _affordable
from keepscore.figures import pilot as draw
from keepscore.training import TrainConfig

FAST = TrainConfig(batch_size=32, min_epochs=4, max_epochs=4)


def seconds(costs, loss, n, config):
    """The formula of the file's head, written again."""
    each = costs.simulation + (costs.score if loss == "ASA" else 0)
    step = costs.step_asa if loss == "ASA" else costs.step_bce
    return n * each + config.epochs_at_least(n) * 0.9 * n / config.batch_size * step


@pytest.mark.parametrize("budget", [10.0, 600.0, 3_600.0])
@pytest.mark.parametrize("loss", ["BCE", "ASA"])
def test_a_budget_is_used_up_and_not_exceeded(budget, loss):
    costs, config = Costs(1e-3, 3e-3, 1e-3, 1.2e-3), TrainConfig()
    plan = _affordable(loss, costs, budget, config, factor=5.0)
    assert seconds(costs, loss, plan.n, config) <= budget
    assert plan.seconds == pytest.approx(seconds(costs, loss, plan.n, config))
    # Rounded down to two digits: a tenth more is too much.
    assert seconds(costs, loss, int(1.11 * plan.n), config) > budget
    assert plan.worth == plan.n * (5.0 if loss == "ASA" else 1.0)


@pytest.fixture(scope="module")
def pilot():
    said = []
    found = ks.worth(
        GaussianToy(4), n=800, budget=60, network=Tiny, seeds=2, config=FAST, progress=said.append
    )
    return found, said


def test_pilot_measures_what_it_says(pilot):
    found, said = pilot
    assert found.metric == "rmse_far"
    assert {loss: sorted(of) for loss, of in found.curve.items()} == {
        "BCE": [200, 400, 800],
        "ASA": [200],
    }
    assert all(len(v) == 2 for of in found.curve.values() for v in of.values())
    assert min(dataclasses.astuple(found.costs)[i] for i in (0, 2, 3)) > 0
    again = ks.equivalence(found.curve["BCE"], 200, found.curve["ASA"][200])
    assert found.found == again
    assert len([s for s in said if "seed" in s]) == 8
    assert json.loads(json.dumps(found.to_dict()))["recommendation"] == found.recommendation
    assert found.recommendation in str(found)


def test_the_advice_follows_the_numbers(pilot):
    found, _ = pilot
    bce, asa = found.plans
    for factor, loss in ((0.5 * bce.n / asa.n, "BCE"), (2 * bce.n / asa.n, "ASA")):
        plans = (bce, dataclasses.replace(asa, worth=asa.n * factor))
        advice = dataclasses.replace(found, plans=plans)
        assert advice.recommended.loss == loss
        assert advice.recommendation.startswith(f"Use {loss}")
        assert ("scores=False" in advice.recommendation) == (loss == "BCE")


def test_the_picture_shows_every_run(pilot):
    found, _ = pilot
    (ax,) = draw(found).axes
    drawn = np.concatenate([np.asarray(line.get_ydata(), float) for line in ax.lines])
    for of in found.curve.values():
        for values in of.values():
            assert np.isin(values, drawn).all()


def test_bad_requests_are_refused():
    with pytest.raises(DomainError, match="budget"):
        ks.worth(GaussianToy(4), budget=0)
    with pytest.raises(DomainError, match="n must be"):
        ks.worth(GaussianToy(4), n=100)
    space = GaussianToy(4).space
    blind = ks.models.from_functions(
        space, (4,), simulate=lambda theta, rng: rng.standard_normal((len(theta), 4))
    )
    with pytest.raises(MissingError, match="no score"):
        ks.worth(blind)
