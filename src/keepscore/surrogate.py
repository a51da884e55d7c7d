"""A trained network, its space and its provenance.

    log_ratio(theta, x)   log p(x | theta) / p(x) as the network has learned it, pairs row by row
    score(theta, x)       its gradient in theta
    given(xs)             the log-likelihood of groups of observations, up to a constant in theta

On disk a surrogate is a folder:

    surrogate.json              format and version, the network in plain words, space, provenance,
                                history, calibration; names the weights and their checksum
    weights-<digest>.safetensors

Nothing in it is code. The JSON is written last and in one step, so a folder holds the old surrogate
or the new one. Loading refuses what it does not know.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

import keepscore
from keepscore import networks
from keepscore.checks import Floats, as_data, as_theta, require_pairs
from keepscore.errors import FormatError, KeepscoreError, MissingError, StorageError
from keepscore.files import make_folder, read_json, sha256, write_json
from keepscore.likelihood import Integers, Likelihood, as_groups
from keepscore.networks import evaluation
from keepscore.networks.tensors import (
    from_tensors,
    read_tensors,
    size_of,
    to_tensors,
    write_tensors,
)
from keepscore.numerics import chebyshev
from keepscore.space import Space

FORMAT, VERSION = "keepscore surrogate", 1
NAME = "surrogate.json"
LARGEST_JSON = 64 << 20
LARGEST_ENSEMBLE = 4096
INTERPOLATION = 1e-3  # of a log-likelihood: half of what it moves a likelihood-ratio statistic


@dataclass(frozen=True, eq=False)
class Surrogate:
    """A trained network (or an ensemble: weights with a leading axis of `members`)."""

    network: Any
    space: Space
    x_shape: tuple[int, ...]
    members: int = 1
    provenance: Mapping[str, Any] = field(default_factory=dict)
    history: tuple[Mapping[str, Any], ...] = ()
    calibration: Mapping[str, Any] | None = None

    def __repr__(self) -> str:
        kind = type(self.network).__name__
        if isinstance(self.network, networks.Scaled):
            kind = type(self.network.network).__name__
        many = f", members={self.members}" if self.members > 1 else ""
        weights = networks.count_weights(self.network)
        return f"Surrogate({kind}, weights={weights}, parameters={self.space.names}{many})"

    def log_ratio(self, theta: ArrayLike, x: ArrayLike) -> Floats:
        """log p(x | theta) / p(x) at pairs, (n,); for an ensemble the mean over its members."""
        return self._members_log_ratio(theta, x).mean(axis=0)

    def spread(self, theta: ArrayLike, x: ArrayLike) -> Floats:
        """Standard deviation of the log-ratio over the members of an ensemble, (n,)."""
        if self.members == 1:
            raise MissingError(
                "A single network has no spread; train an ensemble with TrainConfig(members=5)."
            )
        return self._members_log_ratio(theta, x).std(axis=0, ddof=1)

    def score(self, theta: ArrayLike, x: ArrayLike) -> Floats:
        """Gradient of the log-ratio in theta at pairs, (n, d)."""
        rows, data = self._pairs(theta, x)
        out = np.empty(rows.shape)
        for part, _ in evaluation.pieces(len(rows), evaluation.HEAD_ROWS):
            features = self._evaluator.features(data[part, None])
            index = np.arange(features.shape[1])
            out[part] = self._evaluator.scores(features, rows[part], index)[1][:, 0]
        return out

    def given(self, xs: ArrayLike, *, each: bool = False, interpolate: bool = True) -> Likelihood:
        """Log-likelihood of iid observations (n, *x_shape), one theta for all of them (with
        each=True, one for each), or of g groups (g, n, *x_shape), one theta per group.

        The observations are embedded here, once; every theta after that costs the head only. Logits
        are float32, their sums over a group float64 (where features of a group are summed instead,
        the sum is rounded to float32). A surface of many theta (some hundreds, two
        parameters) is interpolated between Chebyshev points wherever the error is estimated to be
        below 0.001 (numerics/chebyshev.py; an estimate, no bound); interpolate=False sends every
        theta through the head.
        """
        observed, single = as_groups(xs, self.x_shape, each)
        g, n = observed.shape[:2]
        evaluator = self._evaluator
        groups = evaluator.group_features(observed)

        def pairs(theta: Floats, group: Integers) -> Floats:
            found = evaluator.pairs(groups, theta, group)
            return found.sum(axis=2, dtype=np.float64).mean(axis=0)

        def pairs_gradient(theta: Floats, group: Integers) -> tuple[Floats, Floats]:
            value, score = evaluator.scores(groups, theta, group)
            return value.sum(axis=1, dtype=np.float64), score.sum(axis=1, dtype=np.float64)

        def surface(theta: Floats) -> Floats:
            if not interpolate:
                return evaluator.surface(groups, theta)
            return chebyshev.evaluate_all(some_groups, g, theta, INTERPOLATION)

        def some_groups(theta: Floats, rows: Integers) -> Floats:
            if len(rows) == g:
                return evaluator.surface(groups, theta)
            # Padded, so that any number of groups runs in one of few compiled programs.
            chosen = evaluation.pad(rows, evaluation.padded(len(rows), g))
            return evaluator.surface(groups[:, chosen], theta)[: len(rows)]

        return Likelihood(
            self.space, g, n, pairs, pairs_gradient, surface, single,
            kind="surrogate",
            traceable=lambda theta, group: evaluator.log_likelihood(groups, theta, group),
            calibration=self.calibration,
        )  # fmt: skip

    def with_calibration(self, calibration: Mapping[str, Any] | None) -> Surrogate:
        """The same surrogate carrying the plain data of a calibration (`ks.calibrate`)."""
        return replace(self, calibration=None if calibration is None else dict(calibration))

    def to_sbi(self, xs: ArrayLike | None = None, *, prior: Any = None) -> Any:
        """A potential for sbi's MCMC posteriors and diagnostics, with gradient; needs sbi.

        xs: observations of one system, (n, *x_shape), or None to set them later in sbi. prior: a
        torch distribution of the working parameters; uniform on the base box by default.
        """
        from keepscore.bridges.sbi import to_sbi_potential

        return to_sbi_potential(self, xs, prior=prior)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a folder, over a surrogate that may be there."""
        folder = make_folder(path)
        tensors = to_tensors(self.network)
        digest = hashlib.sha256()
        for name in sorted(tensors):
            digest.update(name.encode() + tensors[name].tobytes())
        weights = folder / f"weights-{digest.hexdigest()[:12]}.safetensors"
        write_tensors(weights, tensors)
        content = {
            "format": FORMAT,
            "version": VERSION,
            "keepscore": keepscore.__version__,
            "network": networks.describe(self.network, self.x_shape, self.space.d),
            "members": self.members,
            "weights": {"file": weights.name, "sha256": sha256(weights)},
            "space": self.space.to_dict(),
            "provenance": dict(self.provenance),
            "history": [dict(record) for record in self.history],
            "calibration": self.calibration,
        }
        write_json(folder / NAME, content)
        for old in folder.glob("weights-*.safetensors"):
            if old.name != weights.name:
                old.unlink(missing_ok=True)

    def _pairs(self, theta: ArrayLike, x: ArrayLike) -> tuple[Floats, NDArray[Any]]:
        rows, data = as_theta(theta, self.space.d), as_data(x, self.x_shape)
        require_pairs(rows, data)
        return rows, data

    def _members_log_ratio(self, theta: ArrayLike, x: ArrayLike) -> Floats:
        rows, data = self._pairs(theta, x)
        out = np.empty((self.members, len(rows)))
        for part, _ in evaluation.pieces(len(rows), evaluation.HEAD_ROWS):
            features = self._evaluator.features(data[part, None])
            index = np.arange(features.shape[1])
            out[:, part] = self._evaluator.pairs(features, rows[part], index)[:, :, 0]
        return out

    @cached_property
    def _evaluator(self) -> evaluation.Evaluator:
        return evaluation.Evaluator(self.network, self.members)


def load(path: str | os.PathLike[str], network: Any = None) -> Surrogate:
    """A saved surrogate. `network`: an instance of the module, if it was one of a user's own class.

    A folder that is foreign, damaged or of a newer format is refused; nothing in it is run.
    """
    folder = Path(path)
    content = _read(folder / NAME)
    try:
        space = Space.from_dict(content["space"])
        members, weights = content["members"], content["weights"]
        description, history = dict(content["network"]), list(content["history"])
        if not (type(members) is int and 1 <= members <= LARGEST_ENSEMBLE):
            raise FormatError(f"{folder} has no valid number of members: {members!r}.")
        if not all(isinstance(record, dict) for record in history):
            raise FormatError(f"{folder} has no valid history.")
        provenance, calibration = content["provenance"], content["calibration"]
        name, checksum = weights["file"], weights["sha256"]
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, KeepscoreError):
            raise
        raise FormatError(f"{folder / NAME} is incomplete: {error}.") from None
    skeleton = _skeleton(description, members, network)
    if description["d"] != space.d:
        raise FormatError(f"{folder} has a network and a space of different dimensions.")
    if not isinstance(name, str) or Path(name).name != name:
        raise FormatError(f"{folder / NAME} names no weights in its folder.")
    tensors = read_tensors(folder / name, most=size_of(skeleton))
    if sha256(folder / name) != checksum:
        raise FormatError(f"{folder / name} does not match its checksum; it is damaged.")
    filled = from_tensors(skeleton, tensors)
    return Surrogate(
        filled,
        space,
        tuple(description["x_shape"]),
        members,
        provenance,
        tuple(history),
        calibration,
    )


def _read(path: Path) -> dict[str, Any]:
    if not path.parent.is_dir():
        raise StorageError(f"No such folder: {path.parent}.")
    if not path.is_file():
        raise FormatError(f"{path.parent} holds no surrogate ({NAME} is missing).")
    if path.stat().st_size > LARGEST_JSON:
        raise FormatError(f"{path} is too large to be a surrogate's description.")
    content = read_json(path)
    if content.get("format") != FORMAT:
        raise FormatError(f"{path} is not a surrogate of keepscore.")
    if content.get("version") != VERSION:
        raise FormatError(
            f"{path} has format version {content.get('version')!r}; this keepscore "
            f"({keepscore.__version__}) reads version {VERSION}. Update keepscore."
        )
    return content


def _skeleton(description: dict[str, Any], members: int, network: Any) -> Any:
    """The network of a description with shapes for arrays, and a member axis if it has members."""
    one = networks.rebuild(description, network)
    if members == 1:
        return one

    def stacked(leaf: Any) -> Any:
        if isinstance(leaf, jax.ShapeDtypeStruct) and jnp.issubdtype(leaf.dtype, jnp.inexact):
            return jax.ShapeDtypeStruct((members, *leaf.shape), leaf.dtype)
        return leaf

    return jax.tree.map(stacked, one)
