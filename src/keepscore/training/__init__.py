"""Algorithm 1: the step, the loop, its checkpoints and settings."""
