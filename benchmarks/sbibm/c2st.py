"""The classifier two-sample test, as sbibm computes it: 0.5 is perfect, 1 is useless.

Draws X (the reference) and Y (ours) are standardised by X's mean and standard deviation. A network
with two layers of 10 d units is trained on four fifths of them to tell which is which, and judged
on the last fifth; the accuracy is the mean over the five ways to do that.
"""

from __future__ import annotations

import numpy as np

from keepscore.checks import Floats


def c2st(reference: Floats, ours: Floats, seed: int = 1, folds: int = 5) -> float:
    """Mean accuracy of the classifier over the folds."""
    from sklearn.model_selection import KFold, cross_val_score
    from sklearn.neural_network import MLPClassifier

    mean, sd = reference.mean(axis=0), reference.std(axis=0, ddof=1)
    width = 10 * reference.shape[1]
    classifier = MLPClassifier(
        activation="relu",
        hidden_layer_sizes=(width, width),
        max_iter=10_000,
        solver="adam",
        random_state=seed,
    )
    draws = np.concatenate([(reference - mean) / sd, (ours - mean) / sd]).astype(np.float32)
    label = np.repeat([0.0, 1.0], [len(reference), len(ours)])
    split = KFold(n_splits=folds, shuffle=True, random_state=seed)
    return float(np.mean(cross_val_score(classifier, draws, label, cv=split, scoring="accuracy")))
