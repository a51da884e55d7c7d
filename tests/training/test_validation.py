"""What makes an epoch the best: the loss that is trained."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import keepscore as ks
from keepscore import networks
from keepscore.training.batches import open_rows
from keepscore.training.validation import ScoreTerm, validator

RNG = np.random.default_rng


def data_of(n, d, seed=0, sd=0.3):
    """x = theta + noise."""
    rng = RNG(seed)
    space = ks.Space([ks.Parameter(f"t{k}", -1.0, 1.0, transform="identity") for k in range(d)])
    theta = space.uniform(n, rng)
    noise = sd * rng.standard_normal(theta.shape)
    return ks.dataset(theta, theta + noise, space=space, score=noise / sd**2)


@pytest.mark.parametrize("name", ["mixture-3k", "independent-30k", "regression-10k"])
@pytest.mark.parametrize("d", [1, 2, 6])
def test_a_density_without_scores_is_judged_by_its_likelihood(name, d):
    data = data_of(300, d)
    rows = open_rows(data, None, False, 1 << 30)
    net = networks.resolve(name, (d,), d, None, jax.random.key(0))
    weights, rest = networks.split(net)
    found = validator(rest, rows, seed=0, members=1)(weights)
    x, theta = (jnp.asarray(a, jnp.float32) for a in (data.x, data.theta))
    wanted = -np.asarray(net.log_density(net.features(x), theta), float).mean()
    assert found.criterion[0] == pytest.approx(wanted, rel=1e-5)
    assert found.criterion[0] != found.bce[0]


def test_other_networks_are_judged_by_their_pairs_and_scores_count():
    data = data_of(300, 2)
    net = networks.resolve("residual-25k", (2,), 2, None, jax.random.key(0))
    weights, rest = networks.split(net)
    found = validator(rest, open_rows(data, None, False, 1 << 30), 0, 1)(weights)
    assert found.criterion[0] == found.bce[0]
    term = ScoreTerm("squared", None)
    for name in ("residual-25k", "mixture-3k"):
        net = networks.resolve(name, (2,), 2, None, jax.random.key(0))
        weights, rest = networks.split(net)
        rows = open_rows(data, None, True, 1 << 30)
        found = validator(rest, rows, 0, 1, term=term)(weights)
        shares = found.score[0] / np.mean(np.asarray(data.score) ** 2, axis=0)
        assert found.criterion[0] == pytest.approx(found.bce[0] / np.log(2) + shares.mean())


def test_a_density_that_learns_by_heart_is_stopped():
    """300 rows and six parameters are few for a mixture density: the likelihood of held-out rows is
    best early, their pairs, the control, much later."""
    bare = data_of(300, 6, sd=0.1)
    bare = ks.dataset(bare.theta, bare.x, space=bare.space)
    config = ks.TrainConfig(min_epochs=120, max_epochs=120, schedule="constant")
    trained = ks.train(bare, network="mixture-10k", loss=ks.BCE(), config=config, progress=False)
    epochs = [r for r in trained.history if r["event"] == "epoch"]
    likelihood = [r["criterion"] for r in epochs]
    pairs = [r["validation_bce"] for r in epochs]
    kept = max(r["best_epoch"] for r in epochs)
    assert kept == int(np.argmin(likelihood)) + 1
    assert np.argmin(pairs) > 1.5 * kept
    assert likelihood[int(np.argmin(pairs))] > min(likelihood) + 0.5  # nats per row
