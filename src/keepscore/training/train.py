"""`train`: a data set in, a surrogate out."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from keepscore import networks
from keepscore.budget import is_shown
from keepscore.checks import Floats, require_count, require_finite, require_flag
from keepscore.data.dataset import Dataset
from keepscore.errors import (
    DomainError,
    DtypeError,
    KeepscoreError,
    KeepscoreWarning,
    MismatchError,
    ShapeError,
    StorageError,
)
from keepscore.files import as_plain, make_folder, remove_leftovers
from keepscore.locks import only_writer
from keepscore.losses import (
    ASA,
    BCE,
    Loss,
    Perturbation,
    loss_to_dict,
    score_scale,
    score_tail,
    search_epsilon,
)
from keepscore.losses.score import TOLERANCE
from keepscore.models.base import declares_missing, trend_of
from keepscore.networks import Network, Tree, Weights
from keepscore.networks.compilation import make_room
from keepscore.networks.safetensors_io import digest_of, to_tensors
from keepscore.numerics.evenly import evenly
from keepscore.space import Space
from keepscore.surrogate import NAME as SURROGATE
from keepscore.surrogate import Surrogate, load
from keepscore.training import candidates, history, hosts
from keepscore.training.batches import (
    Feed,
    Rows,
    fingerprint,
    hold_out,
    open_rows,
    raw_sample,
    resident_tables,
    theta_sample,
    x_sample,
)
from keepscore.training.checkpoint import (
    Settings,
    read_checkpoint,
    remove_checkpoints,
    same_settings,
)
from keepscore.training.compiled_epoch import runner, symmetry_maps
from keepscore.training.config import FREE_SETTINGS, TrainConfig
from keepscore.training.devices import placement
from keepscore.training.guard import (
    clearly_worse,
    held_out_losses,
    is_suspect,
    measured,
    warn_of_quality,
)
from keepscore.training.loop import Diverged, Engine, Progress, fit
from keepscore.training.machine import machine, warn_of_another
from keepscore.training.optimizer import optimizer as make_optimizer
from keepscore.training.progress_record import Position
from keepscore.training.resolution import require_resolved_theta, require_resolved_x
from keepscore.training.step import Member, start
from keepscore.training.traits import traits_of
from keepscore.training.validation import ScoreTerm, validator

EPSILON_BATCHES = 8
SCALE_ROWS = 100_000
RESOLUTION_ROWS = 1_000
WITHOUT_SCORES = "without-scores"  # the folder of a run that was made to compare
LOG = logging.getLogger("keepscore")

# A name, a network, or a function of a key that makes one.
NetworkChoice = str | Network | Callable[[jax.Array], Network]


def train(
    data: Dataset,
    validation: Dataset | None = None,
    network: NetworkChoice = "auto",
    loss: Loss | None = None,
    config: TrainConfig | None = None,
    path: str | os.PathLike[str] | None = None,
    resume: bool = True,
    progress: bool | None = None,
    monitor: Dataset | None = None,
) -> Surrogate:
    """Train a network on a data set and return it as a `Surrogate`.

    How good it is, on held-out pairs, is kept in the surrogate: `print(surrogate)` shows it, and it
    is said after training where progress is shown. A parameter whose exact score is followed badly
    is warned of, and so is a score term that does harm: then the network is kept that was trained
    without it (see `training/guard.py`).

    SIGTERM writes a checkpoint and raises `Interrupted`, which exits with code 75.

    Args:
        data: From `ks.simulate`, `ks.open_dataset` or `ks.dataset`.
        validation: The same; without it, a part of `data` is held out (config.validation_fraction).
        network: "auto" (what fits the structure the data declare and the graph they live on; the
            best of several where they declare nothing, see `training/candidates.py`), a size of the
            paper's networks ("30k"), a family and size ("mlp-30k"), an Equinox module with
            features(x) and head(features, theta), or a function of a JAX key that makes one.
        loss: ASA(), which needs scores, BCE(), or the paper's ASA.paper(). By default ASA() where
            the data have scores, else BCE().
        config: A `TrainConfig`, or the paper's TrainConfig.paper(case). The defaults are the best
            we know.
        path: Folder for checkpoints, history and the surrogate. A run found there is continued
            exactly where it was, or its result returned if it had finished. One process at a time
            trains in a folder.
        resume: False starts anew: the run and the surrogate in `path` are removed before the first
            step.
        progress: Whether to show a bar; by default only on a terminal.
        monitor: Pairs from `ks.simulate` whose BCE is written to the history after each epoch
            ("monitor_bce"); it decides nothing.

    Returns:
        The surrogate, of the best epoch by validation.

    Raises:
        MissingError: ASA without scores.
        MismatchError: `path` holds a run with other data, settings or another network.
        DomainError: Fewer rows than a batch, or settings that do not fit together.
        BusyError: Another process trains in `path`.
        Interrupted: SIGTERM came; the same call goes on from the checkpoint.

    Example:
        >>> import keepscore as ks
        >>> data = ks.simulate(ks.models.GaussianField(shape=(4, 4)), 256)
        >>> short = ks.TrainConfig(min_epochs=1)  # for a doctest only: leave config out
        >>> surrogate = ks.train(data, network="mlp-1k", config=short, progress=False)
        >>> surrogate.space.names, surrogate.x_shape
        (('l_x', 'l_y', 'eps'), (4, 4))
    """
    if loss is None:
        loss = ASA() if getattr(data, "score", None) is not None else BCE()
    asked = loss
    config = TrainConfig() if config is None else config
    _require_kinds(loss, config, resume)
    make_room()
    rows, held = _rows(data, validation, loss, config)
    if isinstance(loss, ASA):
        loss.require_right_for(data.score_kind)
    watched = None if monitor is None else _monitored(monitor, data, config)
    folder = None if path is None else make_folder(path)
    writes = folder is not None and hosts.is_first()
    with only_writer(folder, "training") if folder and writes else nullcontext():
        built, weights, rest = _networks(network, rows, data, config)
        term = None
        if isinstance(loss, ASA):
            tail = score_tail(_some_scores(rows))
            loss = loss.for_scores(data.score_kind, tail, networks.has_density(built))
            term = ScoreTerm(
                loss.residual,
                score_scale(_some_scores(rows)) if loss.residual != "squared" else None,
            )
        settings = _settings(loss, config, built, weights, rows, held, term)
        hosts.require_same(settings)
        engine, state, found = _engine(
            rows, held, weights, rest, loss, term, config, settings, folder if writes else None
        )
        if watched is not None:
            watch = validator(rest, watched, config.seed, config.members, engine.place)
            engine = replace(engine, monitor=watch)
        begun = Progress(state, weights, Position())

        def surrogate() -> Surrogate:
            return _surrogate(built, begun, data, settings)

        surrogate().require_savable()  # now, not after hours of training
        if folder is not None:
            if writes:
                remove_leftovers(folder)
            if writes and not resume:
                _forget(folder)
            hosts.meet("before anything is read")
            earlier = _earlier(engine, folder, state, weights) if resume else None
            hosts.meet("after everything is read")
            if earlier is not None:
                begun = earlier
                if begun.position.finished and (kept := _kept(folder, settings, built)) is not None:
                    return kept
        if not begun.position.records:
            begun.position.records.append(_first_record(engine, built, found))
        try:
            fit(engine, begun, progress)
        except Diverged as error:
            error.surrogate = surrogate() if begun.position.best_epoch else None
            raise
        whole = config.is_whole(*engine.size)
        name = type(loss).__name__
        result = surrogate()
        result = replace(result, quality=measured(result, held, name, whole, config.seed))
        if isinstance(loss, ASA) and config.guard and whole:
            given = (data, validation, network, loss, config, folder, resume, progress)
            result = _guarded(result, held, *given)
        if network == "auto" and config.compare and whole:
            same = (data, validation, asked, config, folder, resume, progress)
            result = _best_of_all(result, rows, held, *same)
        if folder is not None and writes:
            result.save(folder)
        hosts.meet("after the surrogate is saved")
    _say(result, progress)
    return result


def _guarded(
    result: Surrogate,
    held: Rows,
    data: Dataset,
    validation: Dataset | None,
    network: NetworkChoice,
    loss: ASA,
    config: TrainConfig,
    folder: Path | None,
    resume: bool,
    progress: bool | None,
) -> Surrogate:
    """The surrogate trained with scores, or, where they did harm, one trained without."""
    quality = result.quality
    assert quality is not None
    if not is_suspect(quality, result.history, networks.has_density(result.network)):
        return result
    same = replace(config, compare=False)  # the same network: losses of other kinds do not compare
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KeepscoreWarning)  # of poor scores: said of what is kept
        other = train(
            data, validation, network, BCE(negatives=loss.negatives), same,
            None if folder is None else folder / WITHOUT_SCORES, resume, progress,
        )  # fmt: skip
    assert other.quality is not None
    ours, theirs = (held_out_losses(s, held, config.seed) for s in (result, other))
    if not clearly_worse(ours, theirs):
        return replace(result, quality=replace(quality, other_bce=other.quality.validation_bce))
    kept = replace(other.quality, other_bce=quality.validation_bce)
    # The settings are those of the call, so that the same call finds its result.
    return replace(other, provenance=result.provenance, quality=kept)


def _best_of_all(
    first: Surrogate,
    rows: Rows,
    held: Rows,
    data: Dataset,
    validation: Dataset | None,
    loss: Loss,
    config: TrainConfig,
    folder: Path | None,
    resume: bool,
    progress: bool | None,
) -> Surrogate:
    """The best of what "auto" may stand for; see `candidates`."""
    others = candidates.others(rows, data)
    if not others or candidates.is_good(first, held):
        return first
    best = first
    name_of_best = candidates.name_of_first(rows, data)
    parts = {name_of_best: candidates.criterion(first, held, config.seed)}
    alone = replace(config, guard=False)  # scores that did harm would show in the criterion
    for name, choice in others.items():
        _tell(f'"auto" tries {name} too', progress)
        path = None if folder is None else folder / name.replace(" ", "-")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", KeepscoreWarning)  # said of what is kept
            other = train(data, validation, choice, loss, alone, path, resume, progress)
        parts[name] = candidates.criterion(other, held, config.seed)
        if candidates.clearly_better(parts[name], parts[name_of_best]):
            best, name_of_best = other, name
    found = {name: float(values.mean()) for name, values in parts.items()}
    each = ", ".join(f"{name} {value:.3f}" for name, value in found.items())
    _tell(f'"auto" kept {name_of_best}; losses: {each}', progress)
    if data.structure and networks.has_density(first.network) and best is not first:
        warnings.warn(
            "The rows of x lie on a curve or a surface, so they have no density; a network that "
            "needs none was kept, which learns more slowly. Leave out the entries that follow from "
            "others (a product beside its factors), if there are some.",
            KeepscoreWarning,
            stacklevel=3,
        )
    # The settings are those of the call, so that the same call finds its result.
    told = {"candidates": found, "kept": name_of_best}
    return replace(best, provenance={**first.provenance, **told})


def _say(result: Surrogate, progress: bool | None) -> None:
    """One line on the quality, where progress is shown; warnings in any case."""
    quality, names = result.quality, result.space.names
    assert quality is not None
    _tell(quality.line(names), progress)
    warn_of_quality(quality, names, stacklevel=3)


def _tell(line: str, progress: bool | None) -> None:
    """To the log, and where progress is shown."""
    LOG.info(line)
    if is_shown(progress):
        print(line, file=sys.stderr)


def _some_scores(rows: Rows) -> Floats:
    """Scores of the training rows, at most so many of them, evenly spread."""
    index = evenly(len(rows), SCALE_ROWS)
    assert rows.data.score is not None
    score = np.asarray(rows.data.score[index if rows.index is None else rows.index[index]])
    require_finite(score, "scores of the training data")
    return score


def _settings(
    loss: Loss,
    config: TrainConfig,
    built: Network,
    weights: Weights,
    rows: Rows,
    held: Rows,
    term: ScoreTerm | None,
) -> Settings:
    """All that the result of a run depends on, as plain data: a run is continued, and its result
    returned, only where all of it is the same."""
    x_shape, d = rows.data.x.shape[1:], rows.data.space.d
    start = {**to_tensors(weights, "weights"), **to_tensors(networks.split(built)[1], "rest")}
    network = networks.describe(built, x_shape, d)
    # The weights it starts from, and constants in it: its own, a graph's, the scale of x.
    network["start"] = digest_of(start)
    if network["family"] == "user":
        network["computation"] = networks.computation(built, x_shape, d)
    content: dict[str, Any] = {
        "config": {k: v for k, v in config.to_dict().items() if k not in FREE_SETTINGS},
        "loss": loss_to_dict(loss),
        "network": network,
        "data": fingerprint(rows),
        "validation": fingerprint(held),
    }
    if term is not None and term.scale is not None:
        content["score_scale"] = term.scale.tolist()
    if networks.has_density(built) and not _chosen_by_scores(held, config):
        content["best_epoch"] = "likelihood"  # before, the loss of pairs
    return as_plain(Path("settings"), "settings", 1, content)


def _chosen_by_scores(held: Rows, config: TrainConfig) -> bool:
    """Whether the loss of scores counts in what makes an epoch the best."""
    return config.criterion == "both" and held.scores


def _earlier(engine: Engine, folder: Path, state: Tree, weights: Weights) -> Progress | None:
    """What an earlier run with these settings left in the folder; a record is added if it goes on
    elsewhere than it began."""
    found = read_checkpoint(folder, state, weights, engine.settings, engine.extent)
    if found is None:
        return None
    position = found.position
    if not position.finished and warn_of_another(engine.machine, found.machine, stacklevel=3):
        record = {"event": "resume", "after_epochs": position.epoch, "machine": engine.machine}
        position.records.append(record)
    return Progress(jax.tree.map(engine.place, found.state), found.best, position)


def _kept(folder: Path, settings: Settings, built: Network) -> Surrogate | None:
    """The surrogate saved in the folder, if it is that of a run with these settings.

    As it was saved, with a calibration it may have been given since. None if there is none, it is
    damaged, or it came from another run: then it is made again from the checkpoint.
    """
    if not (folder / SURROGATE).exists():
        return None
    inner = built.network if isinstance(built, networks.Scaled) else built
    try:
        kept = load(folder, network=inner)
    except KeepscoreError as error:
        warnings.warn(
            f"The surrogate saved in {folder} cannot be used ({str(error).rstrip('.')}); it is "
            "made again from the run's checkpoint.",
            KeepscoreWarning,
            stacklevel=3,
        )
        return None
    return kept if same_settings(settings, kept.provenance.get("training")) else None


def _forget(folder: Path) -> None:
    """A fresh start: no earlier run or result is left that could be taken for this one's."""
    for file in (folder / SURROGATE, folder / history.NAME):
        try:
            file.unlink(missing_ok=True)
        except OSError as error:
            raise StorageError(f"Cannot remove {file}: {error.strerror}.") from error
    remove_checkpoints(folder)


def _monitored(monitor: Dataset, data: Dataset, config: TrainConfig) -> Rows:
    rows = open_rows(monitor, None, False, config.memory_budget)
    require_same_kind(monitor, data, "Monitored")
    return rows


def _require_kinds(loss: object, config: object, resume: bool) -> None:
    require_flag(resume, "resume")
    if not isinstance(loss, (ASA, BCE)):
        raise DtypeError(f"loss must be ks.ASA() or ks.BCE(); got {loss!r}.")
    if not isinstance(config, TrainConfig):
        raise DtypeError(f"config must be a ks.TrainConfig; got {config!r}.")


def _rows(
    data: Dataset, validation: Dataset | None, loss: Loss, config: TrainConfig
) -> tuple[Rows, Rows]:
    budget = config.memory_budget
    rows = open_rows(data, None, loss.uses_scores, budget)
    require_resolved_theta(data.space)
    require_resolved_x(raw_sample(rows, RESOLUTION_ROWS))
    if validation is None:
        if len(rows) < 2:
            raise DomainError(f"Cannot hold out validation rows from {len(rows)} row(s).")
        own, held = hold_out(len(rows), config.validation_fraction, config.seed)
        return (
            open_rows(data, own, loss.uses_scores, budget),
            open_rows(data, held, loss.uses_scores, budget),
        )
    scored = loss.uses_scores and getattr(validation, "score", None) is not None
    held_rows = open_rows(validation, None, scored, budget)
    require_same_kind(validation, data, "Validation")
    if scored and validation.score_kind != data.score_kind:
        raise MismatchError(
            f"Validation data have {validation.score_kind} scores, training data "
            f"{data.score_kind} ones. Simulate both alike, or the former with scores=False."
        )
    require_count(len(held_rows), "rows of validation data")
    return rows, held_rows


def require_same_kind(other: Dataset, data: Dataset, what: str) -> None:
    """Data beside the training data must be of the same shape and space."""
    if other.x.shape[1:] != data.x.shape[1:] or other.space != data.space:
        raise ShapeError(f"{what} and training data must have the same x_shape and space.")
    if declares_missing(other) and not declares_missing(data):
        raise MismatchError(f"{what} data may have missing values, training data have none.")
    if trend_of(other) != trend_of(data):
        raise MismatchError(f"{what} and training data must have the same trend, or both none.")


def _networks(
    network: NetworkChoice, rows: Rows, data: Dataset, config: TrainConfig
) -> tuple[Network, Weights, Network]:
    """One network as an example, the weights of all members, and what is not weights."""
    x_shape, d = data.x.shape[1:], data.space.d
    contacts = getattr(data, "contacts", None)

    sample, traits = x_sample(rows), traits_of(rows, data)
    # A network that is given, and one fed x as it is, see all of it.
    ours = isinstance(network, str) and config.scale_inputs and traits["continuous"]
    ours = ours and traits["holes"] != networks.ENTRIES and _in_rows(data)
    view = networks.view_of(sample) if ours else networks.AS_IT_IS

    def make(key: jax.Array) -> Network:
        about = (x_shape, d, data.structure)
        return networks.resolve(network, *about, key, contacts, **traits, view=view)

    seeds = np.random.SeedSequence(config.seed).generate_state(config.members)
    keys = [jax.random.key(int(seed)) for seed in seeds]
    if config.members > 1 and not isinstance(network, str) and make(keys[0]) is network:
        raise DomainError(
            "All members would start from the same weights. Pass a function of a key that makes "
            "the network, e.g. network=lambda key: MyNetwork(key)."
        )
    many = [make(k) for k in keys]
    built = many[0]
    if config.scale_inputs:
        box = _theta_range(data.space)
        theta = theta_sample(rows)
        shown = view if networks.takes_view(built) else networks.AS_IT_IS
        many = [networks.standardise(one, sample, *box, theta, shown) for one in many]
        built = many[0]
    weights, rest = networks.split(built)
    if config.members > 1:
        every = [networks.split(one)[0] for one in many]
        weights = jax.tree.map(lambda *leaves: jnp.stack(leaves), *every)
    return built, weights, rest


def _in_rows(data: Dataset) -> bool:
    """Whether x is one row of numbers, or rows that are alike."""
    axes = len(data.x.shape) - 1
    return axes == 1 or (axes == 2 and data.structure in ("iid", "series"))


def _theta_range(space: Space) -> tuple[Floats, Floats]:
    """The box of a uniform draw with the mean and standard deviation that theta has."""
    if not space.has_prior:
        return space.box("train")
    mean, sd = space.spread("train")
    return mean - np.sqrt(3) * sd, mean + np.sqrt(3) * sd


def _engine(
    rows: Rows,
    held: Rows,
    weights: Weights,
    rest: Network,
    loss: Loss,
    term: ScoreTerm | None,
    config: TrainConfig,
    settings: Settings,
    folder: Path | None,
) -> tuple[Engine, Tree, Perturbation | None]:
    data, d = rows.data, rows.theta.shape[1]
    place, shard, _ = placement(config.devices, config.batch_size)
    maps = None
    if config.symmetries and data.symmetries:
        maps = symmetry_maps(data.symmetries, int(np.prod(data.x.shape[1:])), d)
    choices = 0 if maps is None else len(maps.sign)
    feed = Feed(rows, config.batch_size, loss.negatives, config.members, config.seed, choices)
    found = _perturbation(feed, weights, rest, loss)
    epsilon = None if found is None else jnp.asarray(found.epsilon, jnp.float32)
    scale = None if term is None or term.scale is None else jnp.asarray(term.scale, jnp.float32)
    size = len(rows), d
    steps = config.epochs_at_least(*size) * feed.steps
    optimizer = make_optimizer(config, steps, config.may_cool(*size))
    run = runner(rest, loss, optimizer, config.members, epsilon, scale, maps, shard)

    def begin(w: Weights) -> Member:
        return start(w, optimizer, loss, d)

    state = begin(weights) if config.members == 1 else jax.vmap(begin)(weights)
    both = term if _chosen_by_scores(held, config) else None
    validate = validator(rest, held, config.seed, config.members, place, both)
    engine = Engine(
        feed, resident_tables(rows, place), run, validate, place, config,
        loss.uses_scores, settings, folder, machine(),
    )  # fmt: skip
    return engine, jax.tree.map(place, state), found


def _perturbation(feed: Feed, weights: Weights, rest: Network, loss: Loss) -> Perturbation | None:
    """The sizes for finite differences, on the first batches until one meets the tolerance."""
    if not isinstance(loss, ASA) or loss.network_score != "finite-difference":
        return None
    one = weights if feed.members == 1 else jax.tree.map(lambda w: w[0], weights)
    network = eqx.combine(one, rest)
    best: Perturbation | None = None
    for index in feed.orders(1)[0, :EPSILON_BATCHES]:
        x, _ = feed.rows.fetch(index.astype(np.int64))
        features = network.features(jnp.asarray(x, jnp.float32))
        found = search_epsilon(network.head, features, jnp.asarray(feed.rows.theta[index]))
        if best is None or max(found.error) < max(best.error):
            best = found
        if best.reached:
            return best
    assert best is not None
    warnings.warn(
        f"No finite-difference step comes within {TOLERANCE:.0%} of the exact network score: the "
        f"best, {best.epsilon}, is off by up to {max(best.error):.1%}. ASA(network_score="
        "'autodiff') is exact and costs no more.",
        KeepscoreWarning,
        stacklevel=4,
    )
    return best


def _first_record(engine: Engine, built: Network, found: Perturbation | None) -> dict[str, Any]:
    record = {
        "event": "start",
        "settings": engine.settings,
        "versions": history.versions(),
        "machine": engine.machine,
        "weights": networks.count_weights(built),
        "rows": len(engine.feed.rows),
        "steps_per_epoch": engine.feed.steps,
        "min_epochs": engine.min_epochs,
        "streamed": engine.feed.rows.streamed,
        "devices": len(jax.devices()) if engine.config.devices is None else engine.config.devices,
    }
    if found is not None:
        record["epsilon"] = {"value": list(found.epsilon), "worst_error": list(found.error)}
    return record


def _surrogate(built: Network, progress: Progress, data: Dataset, settings: Settings) -> Surrogate:
    _, rest = networks.split(built)
    return Surrogate(
        network=eqx.combine(
            jax.tree.map(lambda w: jnp.asarray(np.asarray(w)), progress.best), rest
        ),
        space=data.space,
        x_shape=tuple(int(s) for s in data.x.shape[1:]),
        members=settings["config"]["members"],
        provenance={"training": settings, "data": dict(data.provenance)},
        history=tuple(progress.position.records),
        trend=trend_of(data),
    )
