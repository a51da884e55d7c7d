"""`train`: a data set in, a surrogate out."""

from __future__ import annotations

import os
import warnings
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from keepscore import networks
from keepscore.checks import require_count, require_flag
from keepscore.errors import (
    DomainError,
    DtypeError,
    KeepscoreError,
    KeepscoreWarning,
    ShapeError,
    StorageError,
)
from keepscore.files import as_plain, make_folder, remove_leftovers
from keepscore.locks import only_writer
from keepscore.losses import ASA, BCE, Loss, Perturbation, loss_to_dict, search_epsilon
from keepscore.losses.score import TOLERANCE
from keepscore.networks.safetensors_io import digest_of, to_tensors
from keepscore.surrogate import NAME as SURROGATE
from keepscore.surrogate import Surrogate, load
from keepscore.training import history
from keepscore.training.batches import (
    Feed,
    Rows,
    fingerprint,
    hold_out,
    open_rows,
    resident_tables,
    x_sample,
)
from keepscore.training.checkpoint import read_checkpoint, remove_checkpoints, same_settings
from keepscore.training.compiled_epoch import runner, symmetry_maps
from keepscore.training.config import FREE_SETTINGS, TrainConfig
from keepscore.training.devices import placement
from keepscore.training.loop import Diverged, Engine, Progress, fit
from keepscore.training.machine import machine, warn_of_another
from keepscore.training.optimizer import optimizer as make_optimizer
from keepscore.training.progress_record import Position
from keepscore.training.step import objective, start
from keepscore.training.validation import validator

EPSILON_BATCHES = 8


def train(
    data: Any,
    validation: Any = None,
    network: Any = "auto",
    loss: Loss | None = None,
    config: TrainConfig | None = None,
    path: str | os.PathLike[str] | None = None,
    resume: bool = True,
    progress: bool | None = None,
    monitor: Any = None,
) -> Surrogate:
    """Train a network on a data set and return it as a `Surrogate`.

    data, validation: from `ks.simulate`; without validation data, a part of `data` is held out
    (config.validation_fraction). network: "auto" (what fits the structure the data declare and the
    graph they live on), a size of the paper's networks ("30k"), a family and size ("mlp-30k"), an
    Equinox module with features(x) and head(features, theta), or a function of a JAX key that makes
    one.
    loss: ASA() (default), which needs scores, BCE(), or the paper's ASA.paper(). config: a
    `TrainConfig`, or the paper's TrainConfig.paper(case). The defaults are the best we know.
    path: folder for checkpoints, history and the surrogate. A run found there is continued exactly
    where it was (or its result returned if it had finished): with other data, settings or another
    network that is an error. resume=False starts anew; the run and the surrogate that were there
    are then removed before the first step. One process at a time trains in a folder.
    progress: show a bar; by default only on a terminal. monitor: pairs from `ks.simulate` whose BCE
    is written to the history after each epoch ("monitor_bce"); it decides nothing.

    SIGTERM writes a checkpoint and raises `Interrupted`, which exits with code 75.
    """
    loss = ASA() if loss is None else loss
    config = TrainConfig() if config is None else config
    _require_kinds(loss, config, resume)
    rows, held = _rows(data, validation, loss, config)
    watched = None if monitor is None else _monitored(monitor, data, config)
    folder = None if path is None else make_folder(path)
    with nullcontext() if folder is None else only_writer(folder, "training"):
        built, weights, rest = _networks(network, rows, data, config)
        settings = _settings(loss, config, built, weights, rows, held, data)
        engine, state, found = _engine(rows, held, weights, rest, loss, config, settings, folder)
        if watched is not None:
            watch = validator(rest, watched, config.seed, config.members, engine.place)
            engine = replace(engine, monitor=watch)
        begun = Progress(state, weights, Position())

        def surrogate() -> Surrogate:
            return _surrogate(built, begun, data, settings)

        surrogate().require_savable()  # now, not after hours of training
        if folder is not None:
            remove_leftovers(folder)
            if not resume:
                _forget(folder)
            elif (earlier := _earlier(engine, state, weights)) is not None:
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
        result = surrogate()
        if folder is not None:
            result.save(folder)
        return result


def _settings(
    loss: Loss, config: TrainConfig, built: Any, weights: Any, rows: Rows, held: Rows, data: Any
) -> dict[str, Any]:
    """All that the result of a run depends on, as plain data: a run is continued, and its result
    returned, only where all of it is the same."""
    x_shape, d = data.x.shape[1:], data.space.d
    start = {**to_tensors(weights, "weights"), **to_tensors(networks.split(built)[1], "rest")}
    network = networks.describe(built, x_shape, d)
    # The weights it starts from, and constants in it: its own, a graph's, the scale of x.
    network["start"] = digest_of(start)
    if network["family"] == "user":
        network["computation"] = networks.computation(built, x_shape, d)
    content = {
        "config": {k: v for k, v in config.to_dict().items() if k not in FREE_SETTINGS},
        "loss": loss_to_dict(loss),
        "network": network,
        "data": fingerprint(rows),
        "validation": fingerprint(held),
    }
    return as_plain(Path("settings"), "settings", 1, content)


def _earlier(engine: Engine, state: Any, weights: Any) -> Progress | None:
    """What an earlier run with these settings left in the folder; a record is added if it goes on
    elsewhere than it began."""
    assert engine.folder is not None
    found = read_checkpoint(engine.folder, state, weights, engine.settings, engine.extent)
    if found is None:
        return None
    position = found.position
    if not position.finished and warn_of_another(engine.machine, found.machine, stacklevel=3):
        record = {"event": "resume", "after_epochs": position.epoch, "machine": engine.machine}
        position.records.append(record)
    return Progress(found.state, found.best, position)


def _kept(folder: Path, settings: dict[str, Any], built: Any) -> Surrogate | None:
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


def _monitored(monitor: Any, data: Any, config: TrainConfig) -> Rows:
    rows = open_rows(monitor, None, False, config.memory_budget)
    require_same_kind(monitor, data, "Monitored")
    return rows


def _require_kinds(loss: Any, config: Any, resume: Any) -> None:
    require_flag(resume, "resume")
    if not isinstance(loss, (ASA, BCE)):
        raise DtypeError(f"loss must be ks.ASA() or ks.BCE(); got {loss!r}.")
    if not isinstance(config, TrainConfig):
        raise DtypeError(f"config must be a ks.TrainConfig; got {config!r}.")


def _rows(data: Any, validation: Any, loss: Loss, config: TrainConfig) -> tuple[Rows, Rows]:
    budget = config.memory_budget
    rows = open_rows(data, None, loss.uses_scores, budget)
    if validation is None:
        if len(rows) < 2:
            raise DomainError(f"Cannot hold out validation rows from {len(rows)} row(s).")
        own, held = hold_out(len(rows), config.validation_fraction, config.seed)
        return (
            open_rows(data, own, loss.uses_scores, budget),
            open_rows(data, held, False, budget),
        )
    held_rows = open_rows(validation, None, False, budget)
    require_same_kind(validation, data, "Validation")
    require_count(len(held_rows), "rows of validation data")
    return rows, held_rows


def require_same_kind(other: Any, data: Any, what: str) -> None:
    """Data beside the training data must be of the same shape and space."""
    if other.x.shape[1:] != data.x.shape[1:] or other.space != data.space:
        raise ShapeError(f"{what} and training data must have the same x_shape and space.")


def _networks(network: Any, rows: Rows, data: Any, config: TrainConfig) -> tuple[Any, Any, Any]:
    """One network as an example, the weights of all members, and what is not weights."""
    x_shape, d = data.x.shape[1:], data.space.d
    contacts = getattr(data, "contacts", None)

    def make(key: jax.Array) -> Any:
        return networks.resolve(network, x_shape, d, data.structure, key, contacts)

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
        box = data.space.box("train")
        many = [networks.standardise(one, x_sample(rows), *box) for one in many]
        built = many[0]
    weights, rest = networks.split(built)
    if config.members > 1:
        every = [networks.split(one)[0] for one in many]
        weights = jax.tree.map(lambda *leaves: jnp.stack(leaves), *every)
    return built, weights, rest


def _engine(
    rows: Rows,
    held: Rows,
    weights: Any,
    rest: Any,
    loss: Loss,
    config: TrainConfig,
    settings: dict[str, Any],
    folder: Path | None,
) -> tuple[Engine, Any, Perturbation | None]:
    data, d = rows.data, rows.theta.shape[1]
    place, shard, _ = placement(config.devices, config.batch_size)
    maps = None
    if config.symmetries and data.symmetries:
        maps = symmetry_maps(data.symmetries, int(np.prod(data.x.shape[1:])), d)
    choices = 0 if maps is None else len(maps.sign)
    feed = Feed(rows, config.batch_size, loss.negatives, config.members, config.seed, choices)
    found = _perturbation(feed, weights, rest, loss)
    epsilon = None if found is None else jnp.asarray(found.epsilon, jnp.float32)
    losses = objective(rest, loss, epsilon)
    optimizer = make_optimizer(config, config.epochs_at_least(len(rows)) * feed.steps)
    run = runner(losses, loss, optimizer, config.members, maps, shard)

    def begin(w: Any) -> Any:
        return start(w, optimizer, loss, d)

    state = begin(weights) if config.members == 1 else jax.vmap(begin)(weights)
    validate = validator(rest, held, config.seed, config.members, place)
    engine = Engine(
        feed, resident_tables(rows, place), run, validate, place, config,
        loss.uses_scores, settings, folder, machine(),
    )  # fmt: skip
    return engine, jax.tree.map(place, state), found


def _perturbation(feed: Feed, weights: Any, rest: Any, loss: Loss) -> Perturbation | None:
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


def _first_record(engine: Engine, built: Any, found: Perturbation | None) -> dict[str, Any]:
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


def _surrogate(built: Any, progress: Progress, data: Any, settings: dict[str, Any]) -> Surrogate:
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
    )
