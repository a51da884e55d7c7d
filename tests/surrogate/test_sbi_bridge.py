"""The bridge to sbi, against the real sbi; skipped where torch and sbi are not installed.

Run by `make test-bridge` in the benchmark environment. Oracles: the likelihood itself, finite
differences, and the posterior of the Gaussian toy integrated on a grid.
"""

from __future__ import annotations

import sys

import numpy as np
import pytest
from toys import GaussianToy

from keepscore.bridges.sbi import box_prior, to_sbi_potential
from keepscore.errors import MismatchError, MissingError, ShapeError


class Surrogate:
    """What the bridge asks of a surrogate, counting how often features would be computed."""

    def __init__(self) -> None:
        self.toy = GaussianToy(m=4)
        self.space, self.x_shape, self.count = self.toy.space, self.toy.x_shape, 0

    def given(self, xs):
        self.count += 1
        return self.toy.given(xs)


@pytest.fixture
def toy():
    return GaussianToy(m=4)


@pytest.fixture
def xs(toy):
    return toy.simulate(np.tile([0.3, -0.2], (10, 1)), np.random.default_rng(1))


def test_missing_packages_are_named(toy, xs, monkeypatch):
    monkeypatch.delitem(sys.modules, "keepscore.bridges.sbi_potential", raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingError, match=r"needs torch.*pip install 'keepscore\[sbi\]'"):
        to_sbi_potential(toy, xs)


class TestPotential:
    @pytest.fixture(autouse=True)
    def _peers(self):
        self.torch = pytest.importorskip("torch")
        pytest.importorskip("sbi")

    def test_value_is_log_likelihood_plus_log_prior(self, toy, xs):
        potential = to_sbi_potential(toy, xs)
        theta = toy.space.uniform(50, np.random.default_rng(2))
        got = potential(self.torch.tensor(theta, dtype=self.torch.float32)).numpy()
        log_prior = -np.log(np.prod(toy.space.upper - toy.space.lower))
        np.testing.assert_allclose(got, toy.given(xs)(theta) + log_prior, rtol=2e-6, atol=2e-4)

    def test_a_surrogate_goes_over_with_value_and_gradient(self, toy, xs):
        import jax

        from keepscore import networks
        from keepscore.surrogate import Surrogate

        network = networks.resolve("1k", toy.x_shape, 2, None, jax.random.key(0))
        surrogate = Surrogate(network, toy.space, toy.x_shape)
        theta = self.torch.tensor(
            toy.space.uniform(9, np.random.default_rng(5)), requires_grad=True
        )
        values = surrogate.to_sbi(xs)(theta)
        like = surrogate.given(xs)
        shifted = values.detach().numpy() - like(theta.detach().numpy())
        np.testing.assert_allclose(shifted, shifted[0], atol=1e-4)
        values.sum().backward()
        np.testing.assert_allclose(
            theta.grad.numpy(), like.gradient(theta.detach().numpy()), rtol=1e-5, atol=1e-5
        )

    def test_gradient_is_the_derivative_and_scales_with_the_cotangent(self, toy, xs):
        potential = to_sbi_potential(toy, xs)
        theta = self.torch.tensor(
            toy.space.uniform(7, np.random.default_rng(3)), requires_grad=True
        )
        weight = self.torch.arange(1.0, 8.0, dtype=self.torch.float64)
        (potential(theta) * weight).sum().backward()
        h, at = 1e-6, theta.detach().numpy()
        like = toy.given(xs)
        steps = [(like(at + h * e) - like(at - h * e)) / (2 * h) for e in np.eye(2)]
        expected = weight.numpy()[:, None] * np.stack(steps, axis=1)
        np.testing.assert_allclose(theta.grad.numpy(), expected, rtol=1e-6, atol=1e-6)

    def test_gradients_are_not_computed_unless_tracked(self, toy, xs):
        theta = self.torch.zeros(3, 2, requires_grad=True)
        assert not to_sbi_potential(toy, xs)(theta, track_gradients=False).requires_grad

    def test_outside_the_prior_is_minus_infinity_and_disturbs_no_other_row(self, toy, xs):
        potential = to_sbi_potential(toy, xs)
        theta = self.torch.tensor([[0.1, 0.1], [9.0, 0.0], [float("nan"), 0.0], [-0.2, 0.3]])
        theta.requires_grad_(True)
        value = potential(theta)
        assert value[1] == value[2] == -self.torch.inf
        alone = potential(theta.detach()[[0, 3]])
        np.testing.assert_array_equal(value.detach()[[0, 3]], alone)
        value[[0, 3]].sum().backward()
        np.testing.assert_array_equal(theta.grad[[1, 2]], 0.0)
        assert (theta.grad[[0, 3]] != 0).all()

    def test_features_are_computed_once_for_the_same_observations(self, xs):
        source = Surrogate()
        potential = to_sbi_potential(source, xs)
        for _ in range(3):
            potential.set_x(potential.x_o)
            potential(self.torch.zeros(1, 2))
        assert source.count == 1
        potential.set_x(xs[:5])
        assert source.count == 2
        assert potential.x_o.shape == (5, 4)

    def test_one_observation_may_come_without_its_group_axis(self, toy, xs):
        theta = self.torch.zeros(1, 2)
        one, group = to_sbi_potential(toy, xs[0]), to_sbi_potential(toy, xs[:1])
        assert one(theta) == group(theta)

    def test_batched_observations_pair_with_rows_of_theta(self, toy, xs):
        potential = to_sbi_potential(toy)
        potential.set_x(self.torch.tensor(xs), x_is_iid=False)
        theta = self.torch.tensor(toy.space.uniform(10, np.random.default_rng(4)))
        log_prior = -np.log(np.prod(toy.space.upper - toy.space.lower))
        expected = toy.log_prob(theta.numpy(), xs) + log_prior
        np.testing.assert_allclose(potential(theta).numpy(), expected, rtol=1e-9, atol=1e-6)
        with pytest.raises(ShapeError, match="10 rows"):
            potential(theta[:3])

    def test_a_likelihood_keeps_its_observations(self, toy, xs):
        potential = to_sbi_potential(toy.given(xs), xs)
        theta = self.torch.zeros(2, 2)
        np.testing.assert_array_equal(potential(theta), to_sbi_potential(toy, xs)(theta))
        potential.set_x(xs)
        with pytest.raises(MismatchError, match="fixed"):
            potential.set_x(xs + 1)
        assert potential.x_o.shape == xs.shape

    def test_a_likelihood_of_many_groups_or_without_observations_is_refused(self, toy, xs):
        with pytest.raises(ShapeError, match="2 groups"):
            to_sbi_potential(toy.given(xs.reshape(2, 5, 4)), xs)
        with pytest.raises(MissingError, match="observations"):
            to_sbi_potential(toy.given(xs))

    def test_the_prior_is_the_box(self, toy):
        prior = box_prior(toy.space, "train")
        low, high = toy.space.box("train")
        np.testing.assert_allclose(prior.low, low, rtol=1e-6)
        np.testing.assert_allclose(prior.high, high, rtol=1e-6)


def grid_posterior(toy, xs):
    """Mean and standard deviation of theta under a uniform prior, by summation on a grid."""
    theta = toy.space.grid(201)
    value = toy.given(xs)(theta)
    weight = np.exp(value - value.max())
    weight /= weight.sum()
    mean = weight @ theta
    return mean, np.sqrt(weight @ (theta - mean) ** 2)


class TestWithSbi:
    """sbi's own samplers, optimiser and calibration run on the bridge.

    A draw of n = 2,000 with at least 400 effective samples: the mean is off by 5 standard errors
    (a quarter of a standard deviation) with probability below 1e-6; a posterior forgetting one of
    ten observations, the negative control, is off by more.
    """

    @pytest.fixture(autouse=True)
    def _peers(self):
        self.torch = pytest.importorskip("torch")
        self.sbi = pytest.importorskip("sbi.inference")
        self.transform = pytest.importorskip("sbi.utils").mcmc_transform
        self.torch.manual_seed(0)
        np.random.seed(0)  # noqa: NPY002  sbi's slice sampler draws from the global generator

    def posterior(self, potential, **settings):
        return self.sbi.MCMCPosterior(
            potential,
            proposal=potential.prior,
            theta_transform=self.transform(potential.prior),
            **settings,
        )

    def draws(self, potential, n, **settings):
        posterior = self.posterior(potential, warmup_steps=50, **settings)
        return posterior.sample((n,), show_progress_bars=False).numpy()

    def agrees(self, draws, toy, xs):
        mean, sd = grid_posterior(toy, xs)
        return (abs(draws.mean(0) - mean) < 0.25 * sd).all() and (
            abs(draws.std(0) / sd - 1) < 0.25
        ).all()

    def test_slice_sampling_gives_the_posterior(self, toy, xs):
        draws = self.draws(to_sbi_potential(toy, xs), 2000, num_chains=20, thin=2)
        assert self.agrees(draws, toy, xs)
        outlier = np.concatenate([xs[:9], xs[9:] + 1.5])
        assert not self.agrees(draws, toy, outlier)

    def test_nuts_follows_the_gradient_to_the_posterior(self, toy, xs):
        pytest.importorskip("pyro")
        draws = self.draws(
            to_sbi_potential(toy, xs), 1000, method="nuts_pyro", num_chains=1, thin=1
        )
        assert self.agrees(draws, toy, xs)

    def test_map_is_the_maximum_likelihood_estimate(self, toy, xs):
        posterior = self.posterior(to_sbi_potential(toy, xs))
        found = posterior.map(
            num_iter=300, num_to_optimize=5, init_method="proposal", num_init_samples=50
        )
        closed_form = [xs.mean(), 0.5 * np.log(((xs - xs.mean()) ** 2).mean())]
        np.testing.assert_allclose(found.numpy()[0], closed_form, atol=2e-3)

    @pytest.mark.parametrize("batched", [True, pytest.param(False, marks=pytest.mark.slow)])
    @pytest.mark.filterwarnings("ignore::UserWarning")
    def test_calibration_gives_each_observation_its_own_posterior(self, batched):
        # 100 coordinates: posteriors a tenth as wide as the prior. A draw from each observation's
        # posterior correlates with its theta at 0.98; with rows mixed up, at 0 +- 0.23.
        run_sbc = pytest.importorskip("sbi.diagnostics").run_sbc
        toy = GaussianToy(m=100)
        rng = np.random.default_rng(5)
        theta = toy.space.uniform(20, rng)
        x = toy.simulate(theta, rng)
        potential = to_sbi_potential(toy, x[0])
        posterior = self.posterior(
            potential,
            num_chains=2,
            warmup_steps=5,
            thin=1,
            init_strategy_parameters={"num_candidate_samples": 50},
        )
        ranks, draws = run_sbc(
            self.torch.tensor(theta, dtype=self.torch.float32),
            self.torch.tensor(x, dtype=self.torch.float32),
            posterior,
            num_posterior_samples=10,
            show_progress_bar=False,
            use_batched_sampling=batched,
        )
        assert ranks.shape == (20, 2)
        for k in range(2):
            assert np.corrcoef(draws[:, k].numpy(), theta[:, k])[0, 1] > 0.9
