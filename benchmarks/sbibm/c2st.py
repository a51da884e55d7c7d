"""The classifier two-sample test, as sbibm computes it: 0.5 is perfect, 1 is useless.

Draws X (the reference) and Y (ours) are standardised by X's mean and standard deviation. A network
with two layers of 10 d units is trained on four fifths of them to tell which is which, and judged
on the last fifth; the accuracy is the mean over the five ways to do that.

sbibm trains with scikit-learn's `MLPClassifier` (`by_sklearn`, minutes per posterior at d = 10).
`c2st` is the same classifier with an epoch in one compiled loop: the same first weights and the
same order of rows (drawn from the same `RandomState`), batches of 200, Adam at 1e-3 with
scikit-learn's constants, its L2 term, its rule for stopping (eleven epochs without a gain of 1e-4
in the training loss). Only rounding differs, which later updates amplify; the tests hold the two
side by side.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from keepscore.checks import Floats
from keepscore.networks.compilation import compiler_options

BATCH, RATE, L2 = 200, 1e-3, 1e-4
BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8
TOLERANCE, PATIENCE, MOST_EPOCHS = 1e-4, 10, 10_000

Layers = list[tuple[jax.Array, jax.Array]]


def c2st(reference: Floats, ours: Floats, seed: int = 1, folds: int = 5) -> float:
    """Mean accuracy of the classifier over the folds."""
    x, label = _labelled(reference, ours)
    width = 10 * reference.shape[1]
    scores = []
    for train, test in _folds(len(x), folds, seed):
        layers, _ = fit(x[train], label[train], (width, width), seed)
        wrong = (np.asarray(_logit(layers, jnp.asarray(x[test]))) > 0) != (label[test] > 0.5)
        scores.append(1 - wrong.mean())
    return float(np.mean(scores))


def by_sklearn(reference: Floats, ours: Floats, seed: int = 1, folds: int = 5) -> float:
    """The same by scikit-learn, as sbibm calls it."""
    from sklearn.model_selection import KFold, cross_val_score
    from sklearn.neural_network import MLPClassifier

    x, label = _labelled(reference, ours)
    width = 10 * reference.shape[1]
    classifier = MLPClassifier(
        activation="relu",
        hidden_layer_sizes=(width, width),
        max_iter=MOST_EPOCHS,
        solver="adam",
        random_state=seed,
    )
    split = KFold(n_splits=folds, shuffle=True, random_state=seed)
    return float(np.mean(cross_val_score(classifier, x, label, cv=split, scoring="accuracy")))


def _labelled(reference: Floats, ours: Floats) -> tuple[np.ndarray, np.ndarray]:
    mean, sd = reference.mean(axis=0), reference.std(axis=0, ddof=1)
    x = np.concatenate([(reference - mean) / sd, (ours - mean) / sd]).astype(np.float32)
    return x, np.repeat([0.0, 1.0], [len(reference), len(ours)]).astype(np.float32)


def _folds(n: int, folds: int, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Rows to train on and to test on, as `KFold(folds, shuffle=True)` takes them."""
    from sklearn.model_selection import KFold

    yield from KFold(n_splits=folds, shuffle=True, random_state=seed).split(np.arange(n))


def fit(
    x: np.ndarray, label: np.ndarray, hidden: tuple[int, ...], seed: int
) -> tuple[Layers, list[float]]:
    """Trained layers, and the training loss after each epoch."""
    rng = np.random.RandomState(seed)
    layers = _first_weights(x.shape[1], hidden, rng)
    state: Any = (
        layers,
        jax.tree.map(jnp.zeros_like, layers),
        jax.tree.map(jnp.zeros_like, layers),
    )
    rows, labels = jnp.asarray(x), jnp.asarray(label)
    order = np.arange(len(x))
    whole = len(x) // BATCH * BATCH
    losses: list[float] = []
    best, idle, steps = math.inf, 0, 0
    for _ in range(MOST_EPOCHS):
        order = order[_shuffled(len(x), rng)]
        batches = jnp.asarray(order[:whole].reshape(-1, BATCH))
        state, loss = _epoch()(state, rows, labels, batches, steps)
        total, steps = float(loss) * BATCH, steps + len(batches)
        if whole < len(x):
            state, loss = _epoch()(state, rows, labels, jnp.asarray(order[None, whole:]), steps)
            total, steps = total + float(loss) * (len(x) - whole), steps + 1
        losses.append(total / len(x))
        idle = idle + 1 if losses[-1] > best - TOLERANCE else 0
        best = min(best, losses[-1])
        if idle > PATIENCE:
            break
    return state[0], losses


def _shuffled(n: int, rng: np.random.RandomState) -> np.ndarray:
    """What `sklearn.utils.shuffle` does to n rows."""
    indices = np.arange(n)
    rng.shuffle(indices)
    return indices


def _first_weights(width: int, hidden: tuple[int, ...], rng: np.random.RandomState) -> Layers:
    """Glorot's uniform weights and biases, drawn in scikit-learn's order."""
    sizes = [width, *hidden, 1]
    layers: Layers = []
    for a, b in itertools.pairwise(sizes):
        bound = math.sqrt(6.0 / (a + b))
        weight, bias = rng.uniform(-bound, bound, (a, b)), rng.uniform(-bound, bound, b)
        layers.append((jnp.asarray(weight, jnp.float32), jnp.asarray(bias, jnp.float32)))
    return layers


def _logit(layers: Layers, x: jax.Array) -> jax.Array:
    for weight, bias in layers[:-1]:
        x = jax.nn.relu(x @ weight + bias)
    weight, bias = layers[-1]
    return (x @ weight + bias)[:, 0]


def _loss(layers: Layers, x: jax.Array, label: jax.Array) -> jax.Array:
    logit = _logit(layers, x)
    entropy = jnp.mean(jax.nn.softplus(logit) - label * logit)
    return entropy + 0.5 * L2 / len(x) * sum(jnp.sum(w * w) for w, _ in layers)


@cache
def _epoch() -> Any:
    """state, x, label, batches, steps -> one pass over the batches, and the sum of their losses."""
    return jax.jit(_pass, donate_argnums=0, compiler_options=compiler_options())


def _pass(
    state: Any, x: jax.Array, label: jax.Array, batches: jax.Array, steps: jax.Array
) -> tuple[Any, jax.Array]:
    def update(carry: Any, index: jax.Array) -> tuple[Any, jax.Array]:
        (layers, mean, square), t = carry
        loss, gradient = jax.value_and_grad(_loss)(layers, x[index], label[index])
        t = t + 1
        mean = jax.tree.map(lambda m, g: BETA1 * m + (1 - BETA1) * g, mean, gradient)
        square = jax.tree.map(lambda v, g: BETA2 * v + (1 - BETA2) * g * g, square, gradient)
        rate = RATE * jnp.sqrt(1 - BETA2**t) / (1 - BETA1**t)
        layers = jax.tree.map(
            lambda w, m, v: w - rate * m / (jnp.sqrt(v) + EPSILON), layers, mean, square
        )
        return ((layers, mean, square), t), loss

    (state, _), losses = jax.lax.scan(update, (state, jnp.asarray(steps, jnp.float32)), batches)
    return state, losses.sum()
