"""A trained network, its space and its provenance.

    log_ratio(theta, x)   log p(x | theta) / p(x) as the network has learned it, pairs row by row
    relative(theta, x)    the same up to a function of x, which `given` leaves out
    log_evidence(x)       that function of x: log_ratio = relative - log_evidence
    score(theta, x)       its gradient in theta
    given(xs)             the log-likelihood of groups of observations, up to a constant in theta

The function of x is zero, but for networks that are densities q in x: these know log q, and p(x) is
the mean of q over the design that they were trained on (uniform on the train box, or the prior),

    log_evidence(x) = log of the mean of q(x | theta) over theta,

computed by `numerics/mean_over_box.py`, some hundred to two thousand theta for each x. Estimates,
tests, sets and posteriors do not need it.

On disk a surrogate is a folder:

    surrogate.json              format and version, the network in plain words, space, provenance,
                                history, calibration, quality; names the weights and their
                                checksum, and carries a checksum of itself
    weights-<digest>.safetensors

Nothing in it is code. The JSON is written last and in one step, so a folder holds the old surrogate
or the new one, and one writer at a time replaces it. Loading refuses what it does not know, and
allocates nothing before the weights' file has the size that the description needs. Saving refuses
what loading would.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike, NDArray

import keepscore
from keepscore import networks
from keepscore.checks import Floats, as_data, as_real, as_theta, require_pairs
from keepscore.errors import (
    DomainError,
    DtypeError,
    FormatError,
    KeepscoreError,
    KeepscoreWarning,
    MissingError,
    StorageError,
)
from keepscore.files import (
    as_path,
    as_plain,
    make_folder,
    read_sealed,
    remove_leftovers,
    write_sealed,
)
from keepscore.likelihood import Integers, Likelihood, as_groups, digests
from keepscore.locks import only_writer
from keepscore.models.trend import Trend, trend_from
from keepscore.models.with_missing import missing_rows_of
from keepscore.networks import Network, evaluator
from keepscore.networks.safetensors_io import (
    Tensors,
    digest_of,
    from_tensors,
    read_tensors,
    size_of,
    stored_bytes,
    to_tensors,
    write_tensors,
)
from keepscore.numerics import chebyshev
from keepscore.numerics.mean_over_box import log_mean
from keepscore.quality import Quality
from keepscore.records import require_history
from keepscore.space import Space

if TYPE_CHECKING:
    from torch.distributions import Distribution

FORMAT, VERSION = "keepscore surrogate", 2
NAME = "surrogate.json"
PATIENCE = 30.0  # seconds to wait for another writer: a save takes far less
FARTHEST = 1e6  # standard deviations of the training data: beyond, an answer is noise
FARTHEST_LOGARITHM = 10.0  # the same of data that are taken by their logarithm
WITH_VALUES = (networks.CategoriesNetwork, networks.ConditionalSetNetwork)
EVIDENCES = 64  # of x whose evidence is computed at a time
RETRIES = 10  # of a load that meets a save
INTERPOLATION = 1e-3  # of a log-likelihood: half of what it moves a likelihood-ratio statistic


@runtime_checkable
class PlainData(Protocol):
    """Something that knows itself as plain data for JSON, as a calibration does."""

    def to_dict(self) -> dict[str, Any]: ...


@dataclass(frozen=True, eq=False)
class Surrogate:
    """A trained network, or an ensemble of them, with its parameter space.

    `ks.train` and `ks.load` make one. `print(surrogate)` says how good it was on held-out pairs.

    Args:
        network: The network. With several members its weights have a leading axis of members.
        space: The parameters it was trained over.
        x_shape: The shape of one observation.
        members: Networks in the ensemble.
        provenance: What it was trained on and how, as plain data.
        history: Records of its training.
        calibration: Plain data of a calibration; see `with_calibration`.
        quality: How good it was when trained.
        trend: An unknown mean, as the model declared it. It is taken off all data before the
            network sees them, so that x and x + any such mean have the same answers.

    Example:
        >>> import numpy as np
        >>> import keepscore as ks
        >>> space = ks.Space([ks.Parameter("mean", -1, 1, "identity")])
        >>> rng = np.random.default_rng(0)
        >>> network = ks.networks.MLP((3,), 1, rng, embedding=(8,), hidden=(8,))  # not trained
        >>> surrogate = ks.Surrogate(network, space, (3,))
        >>> surrogate
        Surrogate(MLP, weights=121, parameters=('mean',))
        >>> surrogate.log_ratio(theta=np.zeros((4, 1)), x=np.ones((4, 3))).shape
        (4,)
        >>> surrogate.given(np.ones((2, 5, 3))).grouping
        '2 groups of 5 observations each, one theta per group'
    """

    network: Network
    space: Space
    x_shape: tuple[int, ...]
    members: int = 1
    provenance: Mapping[str, Any] = field(default_factory=dict)
    history: tuple[Mapping[str, Any], ...] = ()
    calibration: Mapping[str, Any] | None = None
    quality: Quality | None = None
    trend: Trend | None = None

    @property
    def focused(self) -> bool:
        """Whether it was made by `ks.focus` for one data set, and knows theta in its box only."""
        return "focus" in self.provenance

    @property
    def missing(self) -> bool:
        """Whether it was trained on data with holes: NaN in x then means "not observed"."""
        return networks.takes_missing(self.network)

    def __repr__(self) -> str:
        inner = self.network
        while isinstance(inner, (networks.Scaled, networks.Masked)):
            inner = inner.network
        kind = type(inner).__name__
        many = f", members={self.members}" if self.members > 1 else ""
        weights = networks.count_weights(self.network)
        return f"Surrogate({kind}, weights={weights}, parameters={self.space.names}{many})"

    def __str__(self) -> str:
        """What it is and, in a second line, how good it was when trained."""
        if self.quality is None:
            return repr(self)
        return f"{self!r}\n{self.quality.line(self.space.names)}"

    def log_ratio(self, theta: ArrayLike, x: ArrayLike) -> Floats:
        """log p(x | theta) / p(x) at pairs, (n,); for an ensemble the mean over its members."""
        return self.relative(theta, x) - self.log_evidence(x)

    def relative(self, theta: ArrayLike, x: ArrayLike) -> Floats:
        """The log-ratio at pairs, (n,), up to a function of x: cheap for all networks."""
        return self._members_relative(theta, x).mean(axis=0)

    @property
    def computes_evidence(self) -> bool:
        """Whether the network is a density: `log_evidence` is then computed, x by x."""
        return networks.has_density(self.network)

    def log_evidence(self, x: ArrayLike) -> Floats:
        """The function of x, (n,), that `relative` has too much; zero if the network is no density.

        Of an ensemble: that of the (geometric) mean of its members.
        """
        return self._evidence(x)[1]

    def spread(self, theta: ArrayLike, x: ArrayLike) -> Floats:
        """Standard deviation of the log-ratio over the members of an ensemble, (n,)."""
        if self.members == 1:
            raise MissingError(
                "A single network has no spread; train an ensemble with TrainConfig(members=5)."
            )
        return (self._members_relative(theta, x) - self._evidence(x)[0]).std(axis=0, ddof=1)

    def score(self, theta: ArrayLike, x: ArrayLike) -> Floats:
        """Gradient of the log-ratio in theta at pairs, (n, d)."""
        rows, data = self._pairs(theta, x)
        out = np.empty(rows.shape)
        for part, features in self._embedded(data):
            index = np.arange(part.stop - part.start)
            out[part] = self._evaluator.scores(features, rows[part], index)[1][:, 0]
        return out

    def features(self, x: ArrayLike) -> Floats:
        """What the network keeps of each observation x (n, *x_shape): (n, features); for an
        ensemble the mean over its members."""
        data = self._without_trend(as_data(x, self.x_shape, missing=self.missing))
        self._require_near(data)
        parts = [
            np.asarray(_finite(self._evaluator.features(data[part, None]))).mean(axis=0)[:, 0]
            for part, _ in evaluator.pieces(len(data), evaluator.HEAD_ROWS)
        ]
        return np.concatenate(parts).astype(np.float64)

    def given(self, xs: ArrayLike, *, each: bool = False, interpolate: bool = True) -> Likelihood:
        """Log-likelihood of iid observations (n, *x_shape), one theta for all of them (with
        each=True, one for each), or of g groups (g, n, *x_shape), one theta per group.

        The observations are embedded here, once; every theta after that costs the head only. Logits
        are float32, their sums over a group float64 (where features of a group are summed instead,
        the sum is rounded to float32). NaN means "not observed" where the surrogate was trained on
        data with holes (`missing`), and is an error elsewhere. A network that is free of size
        ("local", "sites") takes x of other shapes than it was trained on: fields of the same
        spacing, other numbers of sites.

        A surface of many theta (some hundreds, two parameters) is interpolated between Chebyshev
        points wherever the error is estimated to be below 0.001 (numerics/chebyshev.py; an
        estimate, no bound); interpolate=False sends every theta through the head.
        """
        observed, single = as_groups(xs, self._shape_of(xs), each, self.missing)
        g, n = observed.shape[:2]
        seen = self._without_trend(observed.reshape(-1, *observed.shape[2:]))
        seen = seen.reshape(observed.shape)
        self._require_near(seen)
        network = self._evaluator
        groups = _finite(network.group_features(seen))

        def pairs(theta: Floats, group: Integers) -> Floats:
            self._require_inside(theta)
            found = network.pairs(groups, theta, group)
            return found.sum(axis=2, dtype=np.float64).mean(axis=0)

        def pairs_gradient(theta: Floats, group: Integers) -> tuple[Floats, Floats]:
            self._require_inside(theta)
            value, score = network.scores(groups, theta, group)
            return value.sum(axis=1, dtype=np.float64), score.sum(axis=1, dtype=np.float64)

        def surface(theta: Floats) -> Floats:
            self._require_inside(theta)
            if not interpolate:
                return network.surface(groups, theta)
            return chebyshev.evaluate_all(some_groups, g, theta, INTERPOLATION)

        def some_groups(theta: Floats, rows: Integers) -> Floats:
            if len(rows) == g:
                return network.surface(groups, theta)
            # Padded, so that any number of groups runs in one of few compiled programs.
            chosen = evaluator.pad(rows, evaluator.padded(len(rows), g))
            return network.surface(groups[:, chosen], theta)[: len(rows)]

        return Likelihood(
            self.space, g, n, pairs, pairs_gradient, surface, single,
            kind="surrogate",
            traceable=network.traced(groups),
            calibration=self.calibration,
            observed=digests(observed),
        )  # fmt: skip

    def with_calibration(self, calibration: PlainData | None) -> Surrogate:
        """The same surrogate carrying a calibration (from `ks.calibrate`), or none.

        It is kept as plain data, which `save` writes, and goes along with every `given`.
        """
        if calibration is None:
            return replace(self, calibration=None)
        if not isinstance(calibration, PlainData):
            raise DtypeError(
                f"calibration must be what ks.calibrate returns, or None; got "
                f"{type(calibration).__name__}."
            )
        return replace(self, calibration=calibration.to_dict())

    def to_sbi(self, xs: ArrayLike | None = None, *, prior: Distribution | None = None) -> Any:
        """A potential for sbi's MCMC posteriors and diagnostics, with gradient; needs sbi.

        xs: observations of one system, (n, *x_shape), or None to set them later in sbi. prior: a
        torch distribution of the working parameters; uniform on the base box by default.
        """
        from keepscore.bridges.sbi import to_sbi_potential

        return to_sbi_potential(self, xs, prior=prior)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a folder, over a surrogate that may be there.

        Raises:
            DomainError: it holds what could not be loaded again; nothing is written.
            BusyError: another process keeps on writing a surrogate to this folder.
        """
        folder = make_folder(path)
        content, tensors = self._described()
        weights = folder / content["weights"]["file"]
        with only_writer(folder, "surrogate", seconds=PATIENCE):
            remove_leftovers(folder)
            content["weights"]["sha256"] = write_tensors(weights, tensors)
            write_sealed(folder / NAME, FORMAT, VERSION, content)
            for old in folder.glob("weights-*.safetensors"):
                if old.name != weights.name:
                    old.unlink(missing_ok=True)

    def require_savable(self) -> None:
        """Refuse now what `save` would refuse; nothing is written."""
        self._described()

    def _described(self) -> tuple[dict[str, Any], Tensors]:
        """What goes into the two files (the checksum of the weights is still to come), if `load`
        will make the same surrogate of it."""
        tensors = to_tensors(self.network)
        name = f"weights-{digest_of(tensors)[:12]}.safetensors"
        content: dict[str, Any] = {
            "keepscore": keepscore.__version__,
            "network": networks.describe(self.network, self.x_shape, self.space.d),
            "members": self.members,
            "weights": {"file": name, "sha256": "0" * 64},
            "space": self.space.to_dict(),
            "provenance": _as_dict(self.provenance),
            "history": [_as_dict(record) for record in self.history],
            "calibration": _as_dict(self.calibration),
            "quality": None if self.quality is None else self.quality.to_dict(),
        }
        if self.trend is not None:  # only where it says something: older files have no such entry
            content["trend"] = self.trend.settings()
        try:
            plain = as_plain(Path(NAME), FORMAT, VERSION, content)
            whole = self.network
            inner = whole.network if isinstance(whole, networks.Scaled) else whole
            one = inner if self.members == 1 else _first_member(inner)
            found = _description(plain, Path(NAME))
            size = sum(array.nbytes for array in tensors.values())
            from_tensors(_skeleton(found, one, size), tensors)
        except KeepscoreError as error:
            raise DomainError(f"This surrogate could not be loaded again: {error}") from None
        return plain, tensors

    def _shape_of(self, xs: ArrayLike) -> tuple[int, ...]:
        """The shape of one observation: that of the training data, unless any is served."""
        if not networks.is_size_free(self.network):
            return self.x_shape
        if self.trend is not None and not self.trend.any_shape:
            return self.x_shape
        shape, axes = np.shape(as_real(xs, "observations")), len(self.x_shape)
        fits = len(shape) in (axes + 1, axes + 2) and min(shape[-axes:]) > 0
        return tuple(int(side) for side in shape[-axes:]) if fits else self.x_shape

    def _pairs(self, theta: ArrayLike, x: ArrayLike) -> tuple[Floats, NDArray[Any]]:
        rows, data = as_theta(theta, self.space.d), as_data(x, self.x_shape, missing=self.missing)
        require_pairs(rows, data)
        self._require_inside(rows)
        data = self._without_trend(data)
        self._require_near(data)
        return rows, data

    def _without_trend(self, x: NDArray[Any]) -> NDArray[Any]:
        """What the network is shown of x (n, *x_shape)."""
        return x if self.trend is None else self.trend.take_off(x)

    def _require_inside(self, theta: Floats) -> None:
        """A focused surrogate refuses theta outside its box: nothing was simulated there."""
        if not self.focused:
            return
        outside = np.flatnonzero(~self.space.contains(theta, "train", tolerance=1e-6))
        if len(outside):
            low, high = self.space.box("train")
            raise DomainError(
                "This surrogate was focused on one data set and knows theta between "
                f"{low.tolist()} and {high.tolist()} (working parameters) only; it was asked at "
                f"{theta[outside[0]].tolist()}. Ask inside, or train one for the whole space."
            )

    def _require_near(self, x: NDArray[Any]) -> None:
        """Refuse data beyond float32; warn of data absurdly far from what was trained on."""
        if networks.needs_whole_rows(self.network):
            missing_rows_of(x.reshape(-1, *x.shape[-len(self.x_shape) :]))
        seen = x[~np.isnan(x)] if self.missing and x.dtype.kind == "f" else x
        if seen.size == 0:
            return
        lowest, highest = float(seen.min()), float(seen.max())
        if max(-lowest, highest) > float(np.finfo(np.float32).max):
            raise DomainError(
                f"x must lie within what float32 can hold, 3.4e38; got {lowest:g} to {highest:g}."
            )
        if not isinstance(self.network, networks.Scaled):
            return
        if isinstance(self.network.network, WITH_VALUES):
            _warn_of_unseen(self.network.network, x)
            if isinstance(self.network.network, networks.ConditionalSetNetwork):
                _warn_of_far(self.network.network.far(x, FARTHEST, FARTHEST_LOGARITHM))
            return
        scale = self.network
        _warn_of_unlike(scale.view, x)
        x = scale.view.shown(np.asarray(x, np.float64)) if scale.view != networks.AS_IT_IS else x
        mean, sd = (np.asarray(a, np.float64) for a in (scale.x_mean, scale.x_sd))
        _warn_of_changed(x, mean, np.isinf(sd), self.missing)
        reach = FARTHEST * sd
        whole = scale.view == networks.AS_IT_IS
        if whole and lowest >= (mean - reach).max() and highest <= (mean + reach).min():
            return  # all of x, whatever the entry
        far = (x < mean - reach) | (x > mean + reach)
        if scale.z_mean is not None and scale.z_sd is not None:
            # What is small is the scale of such data: far by their logarithms.
            z = (np.arcsinh((x - mean) / sd) - scale.z_mean) / scale.z_sd
            far &= np.abs(z) > FARTHEST_LOGARITHM
        _warn_of_far(far)

    def _evidence(self, x: ArrayLike) -> tuple[Floats, Floats]:
        """The evidence of each member (members, n), and of their mean (n,)."""
        data = self._without_trend(as_data(x, self.x_shape, missing=self.missing))
        members, whole = np.zeros((self.members, len(data))), np.zeros(len(data))
        if not networks.has_density(self.network):
            return members, whole
        low, high = self.space.box("train")
        prior = (lambda t: self.space.log_prior(t, "train")) if self.space.has_prior else None
        for part, size in evaluator.pieces(len(data), EVIDENCES):
            features = self._evaluator.features(evaluator.pad(data[part], size)[:, None])
            function = partial(_log_q, self._evaluator, _finite(features))
            found = log_mean(function, low, high, prior)
            kept = part.stop - part.start
            members[:, part], whole[part] = found[0][:, :kept], found[1][:kept]
        return members, whole

    def _members_relative(self, theta: ArrayLike, x: ArrayLike) -> Floats:
        rows, data = self._pairs(theta, x)
        out = np.empty((self.members, len(rows)))
        for part, features in self._embedded(data):
            index = np.arange(part.stop - part.start)
            out[:, part] = self._evaluator.pairs(features, rows[part], index)[:, :, 0]
        return out

    def _embedded(self, data: NDArray[Any]) -> Iterator[tuple[slice, Array]]:
        """Rows of x piece by piece and their features, of which the last ones may be there only to
        fill up: few sizes are compiled."""
        for part, size in evaluator.pieces(len(data), evaluator.HEAD_ROWS, fine=True):
            filled = evaluator.pad(data[part], size)
            yield part, _finite(self._evaluator.features(filled[:, None]))

    @cached_property
    def _evaluator(self) -> evaluator.Evaluator:
        return evaluator.Evaluator(self.network, self.members)


def _log_q(network: evaluator.Evaluator, features: Array, theta: Floats) -> Floats:
    """log q of each x at its own theta (r, m, d), or at those that all share, (1, m, d):
    (members, r, m)."""
    r, m = features.shape[1], theta.shape[1]
    if len(theta) == 1 and r > 1:
        return network.every(features, theta[0]).astype(np.float64)
    flat, index = theta.reshape(-1, theta.shape[2]), np.repeat(np.arange(r), m)
    return network.pairs(features, flat, index)[..., 0].reshape(-1, r, m).astype(np.float64)


def load(path: str | os.PathLike[str], network: Network | None = None) -> Surrogate:
    """Load a saved surrogate.

    A folder that is foreign, damaged or of another format is refused; nothing in it is run.

    Args:
        path: The folder that `surrogate.save` or `ks.train(..., path=...)` wrote.
        network: An instance of the module, if its class is one of your own: such a class is never
            imported on its own.

    Returns:
        The surrogate, equal to the one that was saved.

    Raises:
        StorageError: There is no such folder, or it cannot be read.
        FormatError: It holds no surrogate, or a damaged one.
        MissingError: Its network is of a class of your own, and `network` was not given.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> import keepscore as ks
        >>> space = ks.Space([ks.Parameter("mean", -1, 1, "identity")])
        >>> rng = np.random.default_rng(0)
        >>> network = ks.networks.MLP((3,), 1, rng, embedding=(8,), hidden=(8,))
        >>> surrogate = ks.Surrogate(network, space, (3,))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     surrogate.save(folder)
        ...     again = ks.load(folder)
        >>> again
        Surrogate(MLP, weights=121, parameters=('mean',))
    """
    folder = as_path(path)
    for _ in range(RETRIES):
        text = _read(folder)
        try:
            return _load(folder, text, network)
        except StorageError:
            # Another process may have replaced the surrogate, and its weights, in between.
            if _read(folder) == text:
                raise
    return _load(folder, _read(folder), network)


def _read(folder: Path) -> dict[str, Any]:
    try:
        if not folder.is_dir():
            raise StorageError(f"No such folder: {folder}.")
        if not (folder / NAME).exists():
            raise FormatError(f"{folder} holds no surrogate ({NAME} is missing).")
    except (OSError, ValueError) as error:  # a folder that may not be entered, a NUL in its name
        if isinstance(error, KeepscoreError):
            raise
        raise StorageError(f"Cannot read {str(folder)!r}: {error}.") from None
    return read_sealed(folder / NAME, FORMAT, VERSION)


def _load(folder: Path, content: dict[str, Any], network: Network | None) -> Surrogate:
    found = _description(content, folder / NAME)
    weights = folder / found.weights
    size = stored_bytes(weights)
    skeleton = _skeleton(found, network, size)
    filled = from_tensors(skeleton, read_tensors(weights, size, found.checksum))
    return Surrogate(
        filled,
        found.space,
        tuple(found.network["x_shape"]),
        found.members,
        found.provenance,
        tuple(found.history),
        found.calibration,
        found.quality,
        found.trend,
    )


class _Description(NamedTuple):
    """The checked content of a surrogate's JSON."""

    network: dict[str, Any]
    members: int
    weights: str
    checksum: str
    space: Space
    provenance: dict[str, Any]
    history: list[dict[str, Any]]
    calibration: dict[str, Any] | None
    quality: Quality | None
    trend: Trend | None


def _description(content: dict[str, Any], path: Path) -> _Description:
    def part(name: str, kind: type, inside: dict[str, Any] = content) -> Any:
        value = inside.get(name)
        if type(value) is not kind:
            raise FormatError(f"{path} has no valid {name}: {value!r:.100}.")
        return value

    weights = part("weights", dict)
    file, checksum = part("file", str, weights), part("sha256", str, weights)
    if Path(file).name != file or "\0" in file:
        raise FormatError(f"{path} names no weights in its folder.")
    members = part("members", int)
    if members < 1:
        raise FormatError(f"{path} has no valid number of members: {members}.")
    provenance = part("provenance", dict)
    for name in ("training", "data"):
        if not isinstance(provenance.get(name, {}), dict):
            raise FormatError(f"{path} has no valid provenance: {name} must be an object.")
    history = part("history", list)
    require_history(history, path)
    calibration = None if content.get("calibration") is None else part("calibration", dict)
    try:
        space = Space.from_dict(part("space", dict))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise FormatError(f"{path} has no valid space: {str(error).rstrip('.')}.") from None
    network = part("network", dict)
    if network.get("d") != space.d:
        raise FormatError(f"{path} has a network and a space of different dimensions.")
    quality = None
    if content.get("quality") is not None:  # older surrogates have none
        try:
            quality = Quality.from_dict(content["quality"], space.d)
        except FormatError as error:
            raise FormatError(f"{path} has no valid quality: {error}.") from None
    trend = None
    if content.get("trend") is not None:
        try:
            trend = trend_from(content["trend"])
            trend.basis(network.get("x_shape", ()))
        except (KeepscoreError, TypeError, ValueError) as error:
            raise FormatError(f"{path} has no valid trend: {error}.") from None
    return _Description(
        network, members, file, checksum, space, provenance, history, calibration, quality, trend
    )


def _skeleton(found: _Description, network: Network | None, size: int) -> Network:
    """The network of a description with shapes for arrays, and a member axis if it has members;
    `size` bytes are there to fill it."""
    members = found.members
    one = networks.rebuild(found.network, network, weights=size // (4 * members))

    def stacked(leaf: object) -> object:
        if isinstance(leaf, jax.ShapeDtypeStruct) and jnp.issubdtype(leaf.dtype, jnp.inexact):
            return jax.ShapeDtypeStruct((members, *leaf.shape), leaf.dtype)
        return leaf

    whole = one if members == 1 else jax.tree.map(stacked, one)
    if size_of(whole) != size:
        raise FormatError(
            f"{found.weights} holds arrays of {size} bytes; the network described beside it needs "
            f"{size_of(whole)}. One of them is damaged or foreign."
        )
    return whole


def _finite(features: Array) -> Array:
    """Features as they are, if float32 could hold them."""
    if not np.isfinite(np.asarray(features)).all():
        raise DomainError(
            "The network overflows on these data: its features are not finite. They lie far from "
            "the data it was trained on. Are the units the same?"
        )
    return features


def _as_dict(value: object) -> object:
    return dict(value) if isinstance(value, Mapping) else value


def _warn_of_far(far: NDArray[np.bool_]) -> None:
    """Of data absurdly far from what was trained on."""
    if far.any():
        warnings.warn(
            f"{int(far.sum())} value(s) of x lie more than {FARTHEST:.0e} standard deviations "
            "from the data this surrogate was trained on: what it says of them means nothing. "
            "Are the units the same?",
            KeepscoreWarning,
            stacklevel=4,
        )


def _warn_of_unlike(view: networks.View, x: NDArray[Any]) -> None:
    """Of rows that lie where no simulation can have been: parts of another whole, say."""
    if view == networks.AS_IT_IS:
        return
    rows = np.asarray(x, np.float64)
    unlike = view.unlike(rows)
    if unlike.any():
        first = rows[tuple(np.argwhere(unlike)[0])]
        warnings.warn(
            f"{int(unlike.sum())} row(s) of x are not like those of any simulation, "
            f"{view.what_is_unlike(first, range(len(first)))}",
            KeepscoreWarning,
            stacklevel=4,
        )


def _warn_of_changed(
    x: NDArray[Any], value: Floats, constant: NDArray[np.bool_], missing: bool
) -> None:
    """Of other values than the one that an entry had in all simulations."""
    if not constant.any():
        return
    changed = constant & ~np.isnan(x) & ~np.isclose(x, value, rtol=1e-6, atol=0.0)
    if changed.any():
        first = tuple(int(i) for i in np.argwhere(changed)[0])
        own = np.broadcast_to(value, x.shape)
        warnings.warn(
            f"{int(changed.sum())} value(s) of x lie in entries that were the same in all "
            f"simulations: the first is {x[first]:g}, which was always {own[first]:g}"
            f"{' or missing' if missing else ''}. What that tells was never learned, and it is "
            "ignored. Can the model produce such data?",
            KeepscoreWarning,
            stacklevel=4,
        )


def _warn_of_unseen(network: Network, x: NDArray[Any]) -> None:
    """Of values that no simulation had: x may be coded otherwise."""
    assert isinstance(network, WITH_VALUES)
    unseen = network.unseen(x)
    if not unseen.any():
        return
    row, entry = np.argwhere(unseen)[0]
    known = [f"{v:g}" for v in network.values[entry] if not np.isnan(v)]
    listed = ", ".join(known) if len(known) < 10 else f"{known[0]} to {known[-1]}"
    warnings.warn(
        f"{int(unseen.sum())} value(s) of x were in no simulation: the first is "
        f"{x.reshape(len(unseen), -1)[row, entry]:g} in entry {entry}, where simulations had "
        f"{listed}. Each is taken as the nearest of these. Is x coded as it was "
        "simulated?",
        KeepscoreWarning,
        stacklevel=4,
    )


def _first_member(network: Network) -> Network:
    """One network of an ensemble."""
    return jax.tree.map(lambda leaf: leaf[0] if networks.is_weight(leaf) else leaf, network)
