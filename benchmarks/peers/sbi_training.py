"""One round of training steps by sbi: NRE_A through its own API, loader, loop and loss.

x is repeated and embedded for both classes of a batch (`RatioEstimatorTrainer._classifier_logits`).
`tuned` keeps images in channels-last layout; sbi builds its optimizer itself.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from sbi.inference import NRE_A
from sbi.neural_nets.ratio_estimators import RatioEstimator
from torch import Tensor

from benchmarks.peers.cases import BATCH, LEARNING_RATE, synthetic
from benchmarks.peers.networks import RatioNetwork
from benchmarks.peers.processes import Round, threads
from benchmarks.peers.torch_training import prepared


def start(settings: dict[str, Any]) -> Round:
    """Settings: tuned, family, size, steps. A round answers {"ms": per step}."""
    torch.set_num_threads(threads())
    torch.manual_seed(0)
    net = prepared(settings["family"], settings["size"], settings["tuned"])
    return sbi_rounds(net, settings["family"], settings["steps"])


def ratio_estimator(net: RatioNetwork, theta: Tensor, x: Tensor) -> RatioEstimator:
    """Our network as sbi's: its head on (theta, embedded x)."""
    return RatioEstimator(net.head, theta[0].shape, x[0].shape, embedding_net_x=net.features)


class Silent:
    """sbi's tracker, keeping nothing."""

    log_dir = None

    def log_metric(self, *arguments: Any, **named: Any) -> None: ...
    def log_metrics(self, *arguments: Any, **named: Any) -> None: ...
    def log_params(self, *arguments: Any, **named: Any) -> None: ...
    def add_figure(self, *arguments: Any, **named: Any) -> None: ...
    def flush(self) -> None: ...


def sbi_rounds(net: RatioNetwork, family: str, steps: int) -> Round:
    """sbi's own loop, one epoch at a time by its `resume_training`; sbi itself times the epoch.

    Gradient clipping, progress bars and logging are off. sbi cannot do without validation: it gets
    one batch of it an epoch, the least it takes.
    """
    held_out = BATCH + 1
    n = steps * BATCH + held_out
    theta, x, _ = (torch.from_numpy(a) for a in synthetic(family, n))
    trainer = NRE_A(
        classifier=lambda theta, x: ratio_estimator(net, theta, x),
        show_progress_bars=False,
        tracker=Silent(),
    ).append_simulations(theta, x)

    def play() -> dict[str, Any]:
        seconds = trainer.summary["epoch_durations_sec"]  # grows by one an epoch
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "maximum number of epochs reached": it was meant
            trainer.train(
                training_batch_size=BATCH,
                learning_rate=LEARNING_RATE,
                validation_fraction=(held_out - 0.5) / n,
                stop_after_epochs=2**31,
                max_num_epochs=max(1, len(seconds)),  # sbi does one more than this in all
                clip_max_norm=None,
                resume_training=len(seconds) > 0,
            )
        done = len(trainer.train_indices) // BATCH
        return {"ms": 1e3 * seconds[-1] / done}

    play()
    return play
