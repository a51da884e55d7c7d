"""Small data sets and networks for the tests of training; nothing here takes long to compile."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from toys import GaussianToy

from keepscore.data.dataset import Dataset
from keepscore.data.design import thetas
from keepscore.space import Parameter, Space
from keepscore.training import TrainConfig

SHORT = TrainConfig(batch_size=32, min_epochs=2, max_epochs=2, patience=1)


def toy_data(n: int = 400, seed: int = 0, m: int = 4) -> Dataset:
    model, rng = GaussianToy(m), np.random.default_rng(seed)
    theta = thetas(model.space, n, seed, "train", 0, range(n))
    x, score = model.simulate_with_score(theta, rng)
    return Dataset(theta, x, score, model.space, "exact", provenance={"model": {"name": "toy"}})


def noise_data(n: int, x_shape: tuple[int, ...], d: int, structure: str | None = None) -> Dataset:
    """Values without a process behind them: enough to ask about shapes and orders."""
    rng = np.random.default_rng(1)
    space = Space([Parameter(f"p{k}", -1, 1, "identity") for k in range(d)])
    theta, score = rng.uniform(-1, 1, (n, d)), rng.standard_normal((n, d))
    x = rng.standard_normal((n, *x_shape))
    return Dataset(theta, x, score, space, "exact", structure)


class Tiny(eqx.Module):
    """A user's own network: two matrices and a constant that is not trained."""

    w: jax.Array
    v: jax.Array
    shift: np.ndarray

    def __init__(self, key, size=4, d=2, width=8):
        k1, k2 = jax.random.split(key)
        self.w = 0.3 * jax.random.normal(k1, (size, width))
        self.v = 0.3 * jax.random.normal(k2, (d, width))
        self.shift = np.float32(0.5) * np.ones(width, np.float32)

    def features(self, x):
        return x.reshape(len(x), -1) @ self.w + self.shift

    def head(self, features, theta):
        return jnp.sum(jnp.tanh(features + theta @ self.v), axis=1)


def weights_equal(a, b) -> bool:
    mine, other = (jax.tree.leaves(eqx.filter(s.network, eqx.is_array)) for s in (a, b))
    return len(mine) == len(other) and all(
        np.array_equal(np.asarray(p), np.asarray(q)) for p, q in zip(mine, other, strict=True)
    )
