"""One round of training steps in a plain PyTorch loop; see training.py for what is compared.

    lampe            NRELoss on a network that embeds x before theta is broadcast, so once a batch;
                     a plain loop over data in memory.
    double-backward  BCE + score loss as MadMiner computes it: all labelled pairs of a batch
                     through the whole network, autograd.grad(..., create_graph=True) for all of
                     them, masked to Y = 1, and a second backward pass through that.

`tuned` is the best we could do for a peer without leaving its method: Adam fused into one kernel,
images in channels-last layout and, for double-backward, x embedded once and scores for Y = 1 only.
torch.compile is not used: see README.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from lampe.inference import NRELoss
from torch import Tensor
from torch.nn import functional as F

from benchmarks.peers.cases import BATCH, LEARNING_RATE, WEIGHT_DECAY, synthetic
from benchmarks.peers.networks import RatioNetwork, network
from benchmarks.peers.processes import Round, threads

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]
ALPHA = 0.01  # the weight of the score loss; a step costs the same whatever it is


def start(settings: dict[str, Any]) -> Round:
    """Settings: contender, tuned, family, size, steps. A round answers {"ms": per step}."""
    torch.set_num_threads(threads())
    torch.manual_seed(0)
    family, steps, tuned = settings["family"], settings["steps"], settings["tuned"]
    net = prepared(family, settings["size"], tuned)
    if settings["contender"] == "lampe":
        nre = NRELoss(net)
        return loop_rounds(net, lambda theta, x, _: nre(theta, x), family, steps, tuned)
    loss = score_loss_lean if tuned else score_loss
    return loop_rounds(net, lambda *batch: loss(net, *batch), family, steps, tuned)


def prepared(family: str, size: str, tuned: bool) -> RatioNetwork:
    """The network, its images in channels-last layout if tuned."""
    net = network(family, size)
    return net.to(memory_format=torch.channels_last) if tuned and family == "field" else net


def loop_rounds(net: RatioNetwork, loss: Loss, family: str, steps: int, tuned: bool) -> Round:
    """A plain training loop over tensors in memory, shuffled every epoch."""
    theta, x, score = (torch.from_numpy(a) for a in synthetic(family, steps * BATCH))
    adam = torch.optim.Adam(
        net.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY, fused=tuned
    )

    def play() -> dict[str, Any]:
        begin = time.perf_counter()
        for batch in torch.randperm(len(x)).split(BATCH):
            adam.zero_grad()
            loss(theta[batch], x[batch], score[batch]).backward()
            adam.step()
        return {"ms": 1e3 * (time.perf_counter() - begin) / steps}

    play()
    return play


def score_loss(net: RatioNetwork, theta: Tensor, x: Tensor, score: Tensor) -> Tensor:
    """BCE and score loss over the 2b labelled pairs of a batch."""
    both = torch.cat([theta, theta[torch.randperm(len(theta))]]).requires_grad_(True)
    label = torch.cat([torch.ones(len(theta)), torch.zeros(len(theta))])
    logit = net(both, torch.cat([x, x]))
    (network_score,) = torch.autograd.grad(logit, both, torch.ones_like(logit), create_graph=True)
    target = torch.cat([score, torch.zeros_like(score)])
    miss = label[:, None] * (network_score - target)
    return F.binary_cross_entropy_with_logits(logit, label) + ALPHA * (miss**2).mean()


def score_loss_lean(net: RatioNetwork, theta: Tensor, x: Tensor, score: Tensor) -> Tensor:
    """The same losses with x embedded once and the score taken on Y = 1 only."""
    theta = theta.requires_grad_(True)
    features = net.features(x)
    joint = net.at(theta, features)
    marginal = net.at(theta.detach()[torch.randperm(len(theta))], features)
    (network_score,) = torch.autograd.grad(joint, theta, torch.ones_like(joint), create_graph=True)
    bce = -(F.logsigmoid(joint).mean() + F.logsigmoid(-marginal).mean()) / 2
    return bce + ALPHA * ((network_score - score) ** 2).mean() / 2
