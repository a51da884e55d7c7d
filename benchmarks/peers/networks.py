"""The paper's networks in PyTorch (appendix D), so that every peer trains the same one.

Sequence network (SIS), x (b, 13, 8): each state through an MLP, three convolutions of width 5
along time (13 -> 9 -> 5 -> 1), then a head on (theta, features); SiLU everywhere.
Image network (fields), x (b, 25, 25): three 3 x 3 convolutions, ReLU, each followed by 2 x 2
average pooling (25 -> 11 -> 4 -> 1), then a head with SiLU.

Both are split as ours are: `features(x)` (b, f) and `head(cat(theta, features))` (b, 1). The order
in the concatenation is sbi's and LAMPE's; it does not change the work.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

# name -> (embedder, convolutions, head)
SEQUENCE = {
    "3k": ([16, 8], [8, 12, 16], [30, 12]),
    "10k": ([32, 16], [16, 24, 24], [52, 32]),
    "30k": ([64, 32], [32, 32, 48], [64, 64, 32]),
    "100k": ([64, 64], [64, 64, 96], [128, 64, 32]),
}
# name -> (convolutions, head)
IMAGE = {
    "30k": ([40, 40, 32], [48, 32]),
    "100k": ([80, 80, 44], [64, 64, 32]),
    "300k": ([128, 128, 108], [128, 80, 64]),
    "1m": ([256, 256, 136], [256, 176, 96]),
}


class SequenceFeatures(nn.Module):
    """x (b, T, K) -> (b, f)."""

    def __init__(self, k: int, embedder: list[int], convolutions: list[int]) -> None:
        super().__init__()
        self.embed = nn.Sequential(*_dense([k, *embedder]))
        channels = pairwise([embedder[-1], *convolutions])
        self.convolve = nn.Sequential(
            *(layer for a, b in channels for layer in (nn.Conv1d(a, b, 5), nn.SiLU()))
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.convolve(self.embed(x).transpose(1, 2)).flatten(1)


class ImageFeatures(nn.Module):
    """x (b, 25, 25) -> (b, f)."""

    def __init__(self, convolutions: list[int]) -> None:
        super().__init__()
        channels = pairwise([1, *convolutions])
        self.convolve = nn.Sequential(
            *(
                layer
                for a, b in channels
                for layer in (nn.Conv2d(a, b, 3), nn.ReLU(), nn.AvgPool2d(2))
            )
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.convolve(x[:, None]).flatten(1)


class RatioNetwork(nn.Module):
    """log r(x, theta) = head(theta, features(x)); theta may have a leading axis x has not."""

    def __init__(self, features: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.features, self.head = features, head

    def at(self, theta: Tensor, features: Tensor) -> Tensor:
        features = features.expand(*theta.shape[:-1], features.shape[-1])
        return self.head(torch.cat([theta, features], dim=-1)).squeeze(-1)

    def forward(self, theta: Tensor, x: Tensor) -> Tensor:
        return self.at(theta, self.features(x))


def network(family: str, size: str) -> RatioNetwork:
    """The paper's network for "sis" (d = 2) or "field" (d = 3), with PyTorch's initialisation."""
    if family == "sis":
        embedder, convolutions, hidden = SEQUENCE[size]
        features: nn.Module = SequenceFeatures(8, embedder, convolutions)
    else:
        convolutions, hidden = IMAGE[size]
        features = ImageFeatures(convolutions)
    d = 2 if family == "sis" else 3
    layers = [*_dense([convolutions[-1] + d, *hidden]), nn.Linear(hidden[-1], 1)]
    return RatioNetwork(features, nn.Sequential(*layers))


def parameter_count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def _dense(widths: list[int]) -> list[nn.Module]:
    return [layer for a, b in pairwise(widths) for layer in (nn.Linear(a, b), nn.SiLU())]
