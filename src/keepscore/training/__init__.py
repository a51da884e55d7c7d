"""Algorithm 1: the step, the loop, its checkpoints and settings."""

from keepscore.training.config import TrainConfig
from keepscore.training.interruption import EXIT_CODE, Interrupted
from keepscore.training.loop import Diverged
from keepscore.training.train import train

__all__ = ["EXIT_CODE", "Diverged", "Interrupted", "TrainConfig", "train"]
