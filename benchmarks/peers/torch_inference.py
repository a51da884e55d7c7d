"""sbi's way to a likelihood surface and an estimate; see inference.py for what is compared.

surface     `RatioBasedPotential` at all points of the grid in one call: x_o is repeated for every
            theta and goes through the whole network each time.
map         sbi's own maximiser, `posterior.map()` with its default settings from draws of the prior
            (the prior is uniform, so the mode is the maximum likelihood estimate); timed once.
mle         L-BFGS-B of SciPy on that potential and its gradient, from the best of a coarse grid:
            what a careful user would write by hand.
by hand     the same network with x embedded once, in PyTorch, outside sbi's interface; it shows
            how much is due to the caching alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from lampe.inference import NRELoss
from sbi.inference import MCMCPosterior, ratio_estimator_based_potential
from sbi.utils import BoxUniform
from scipy.optimize import minimize

from benchmarks.peers.cases import BATCH, LEARNING_RATE, WEIGHT_DECAY, epidemics, grid
from benchmarks.peers.networks import RatioNetwork, network
from benchmarks.peers.processes import Round, threads, timed
from benchmarks.peers.sbi_training import ratio_estimator

STARTS = 3  # as many local maxima of the coarse grid as ks.mle climbs
COARSE = 11


def start(settings: dict[str, Any]) -> Round:
    """Settings: n, epochs, side, map_iterations (None: sbi's default). Answers seconds by name."""
    torch.set_num_threads(threads())
    torch.manual_seed(0)
    data, observed = epidemics(settings["n"])
    net = trained(data, settings["epochs"])
    x_o = torch.from_numpy(observed)
    prior = BoxUniform(-torch.ones(2), torch.ones(2))
    theta = torch.tensor(grid(settings["side"]), dtype=torch.float32)
    estimator = ratio_estimator(net, theta, x_o)
    potential, transform = ratio_estimator_based_potential(estimator, prior, x_o)
    posterior = MCMCPosterior(potential, proposal=prior, theta_transform=transform)
    iterations = settings["map_iterations"]
    map_settings = {} if iterations is None else {"num_iter": iterations}

    def find_map() -> list[float]:
        found = posterior.map(init_method="proposal", force_update=True, **map_settings)
        return found.flatten().tolist()

    def play() -> dict[str, Any]:
        surface_s, surface = timed(lambda: potential(theta, track_gradients=False))
        by_hand_s, by_hand = timed(lambda: surface_by_hand(net, theta, x_o))
        # sbi adds the uniform prior's constant to the sum of log ratios.
        constant = prior.log_prob(theta)
        torch.testing.assert_close(surface, by_hand + constant, rtol=1e-4, atol=1e-3)
        mle_s, mle = timed(lambda: scipy_mle(potential))
        seconds = {"surface": surface_s, "surface by hand": by_hand_s, "mle": mle_s, "map": map_s}
        return {"seconds": seconds, "estimates": {"mle": mle, "map": map_}}

    map_s, map_ = timed(find_map, calls=1, seconds=0)  # once: it takes as long as all the rest
    play()
    return play


def trained(data: Any, epochs: int) -> RatioNetwork:
    """The 30K network, trained a little: enough for the surface to have a maximum."""
    net = network("sis", "30k")
    loss = NRELoss(net)
    adam = torch.optim.Adam(net.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    theta = torch.from_numpy(np.asarray(data.theta, dtype=np.float32))
    x = torch.from_numpy(np.asarray(data.x, dtype=np.float32))
    for _ in range(epochs):
        for batch in torch.randperm(len(x)).split(BATCH)[: len(x) // BATCH]:
            adam.zero_grad()
            loss(theta[batch], x[batch]).backward()
            adam.step()
    return net.eval()


def surface_by_hand(net: RatioNetwork, theta: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Sum over x of log r(x, theta): features once, heads for all pairs."""
    with torch.no_grad():
        return net.at(theta[:, None].expand(-1, len(x), -1), net.features(x)).sum(1)


def scipy_mle(potential: Any) -> list[float]:
    """The best of a few L-BFGS-B climbs."""

    def negative(theta: np.ndarray) -> tuple[float, np.ndarray]:
        at = torch.tensor(theta[None], dtype=torch.float32, requires_grad=True)
        value = potential(at).sum()
        value.backward()
        assert at.grad is not None
        return -value.item(), -at.grad.numpy()[0].astype(np.float64)

    coarse = grid(COARSE)
    value = potential(torch.tensor(coarse, dtype=torch.float32), track_gradients=False)
    begin = coarse[torch.argsort(value, descending=True)[:STARTS].numpy()]
    bounds = [(-0.999, 0.999)] * 2
    climbs = [minimize(negative, at, jac=True, method="L-BFGS-B", bounds=bounds) for at in begin]
    return min(climbs, key=lambda climb: climb.fun).x.tolist()
