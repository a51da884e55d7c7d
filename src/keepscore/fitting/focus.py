"""`focus`: rounds of simulations for one data set, each where the likelihood of the one before is.

An amortised surrogate spends its simulations on the whole box. For one data set most of them lie
where the likelihood is nothing. With l_r the log-likelihood of the data by the surrogate of round r
and B_r its box, round r + 1 simulates at draws of the prior restricted to

    R_r = { theta in B_r : l_r(theta) >= max l_r - c_r },

and B_{r+1} is the bounding box of the draws, a little wider (`truncation`). The next network is
trained on all rounds' simulations inside B_{r+1}: any distribution of theta will do for
log p(x | theta) up to a function of x, so none of them is thrown away, and those outside R_r but
inside the box keep the network honest between modes. Scores are taken along in every round.

c_r is 12 or a little more, and as much larger as the surrogate of that round errs on held-out rows:
one that knows little cuts little away. Where the next surrogate has not fallen off at a side that
was cut, the box goes back there to what it was before the cut, and the network is trained again.

The region has stopped shrinking when it holds more than 80% of the draws of the region before, and
c_r was the usual one; then the rest of the budget is simulated in one last round. The result knows
its box only, and refuses theta outside.

Truncation (Deistler, Goncalves and Macke 2022) keeps the prior's shape inside the region, so no
weights are needed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from keepscore.checks import as_number, require_count
from keepscore.data.dataset import Dataset
from keepscore.data.simulate import simulate
from keepscore.errors import DomainError, MismatchError, MissingError
from keepscore.files import make_folder, read_sealed, write_sealed
from keepscore.fitting.truncation import (
    STREAM,
    Region,
    faces_cut,
    find_region,
    needed_drop,
    reopened,
    shrunken,
    usual_drop,
)
from keepscore.likelihood import as_groups
from keepscore.losses import Loss
from keepscore.models.base import Model, declares_missing
from keepscore.networks import names
from keepscore.space import Space
from keepscore.surrogate import Surrogate
from keepscore.training import TrainConfig, train
from keepscore.training.batches import hold_out
from keepscore.training.guard import unsaid, warn_of_quality
from keepscore.training.train import NetworkChoice

NAME, FORMAT, VERSION = "focus.json", "keepscore focus", 2
STILL = 0.8  # share of a region's draws in the next one: it no longer shrinks
FEWEST = 64  # simulations per round


def focus(
    model: Model,
    xs: ArrayLike,
    n: int = 10_000,
    rounds: int = 4,
    path: str | os.PathLike[str] | None = None,
    *,
    seed: int = 0,
    drop: float | None = None,
    network: NetworkChoice = "auto",
    loss: Loss | None = None,
    config: TrainConfig | None = None,
    jobs: int | None = None,
    progress: bool | None = None,
    after: tuple[Dataset, Surrogate] | None = None,
) -> Surrogate:
    """A surrogate for one data set: n simulations in rounds, each where the one before points.

    Args:
        model: What to simulate; see `keepscore.models.base.Model`.
        xs: The data: iid observations of one system, (m, *x_shape).
        n: Simulations in all rounds together.
        rounds: At most so many rounds, of equal size; fewer where the region stops shrinking.
        path: Folder for simulations and trainings; the same call goes on where it was.
        seed: Seed of everything random.
        drop: c, how far below its maximum the log-likelihood may be inside the region; by default
            12 or what held-out simulations need, after each round.
        network, loss, config: As for `ks.train`, in every round; where "auto" compares several
            networks, it does so in the first round and in the last.
        jobs: Worker processes for simulations.
        progress: Show bars; by default only on a terminal.
        after: A data set over the whole box and a surrogate trained on it: rounds go on from there,
            and n counts the new simulations. Scores are simulated if that data set has them.

    Returns:
        A surrogate whose space is the box around the region. Everything that takes a surrogate
        takes it; asked about theta outside the box it raises `DomainError`. Its provenance has an
        entry "focus" that tells what each round did.

    Raises:
        DomainError: Too few simulations per round.
        MismatchError: The folder holds rounds for other data or settings.

    Example:
        >>> import numpy as np
        >>> import keepscore as ks
        >>> model = ks.models.SIS()
        >>> theta = np.tile(model.space.grid(3)[4], (5, 1))
        >>> xs = model.simulate(theta, np.random.default_rng(0))
        >>> surrogate = ks.focus(model, xs, n=4000, path="runs/focus")  # doctest: +SKIP
        >>> ks.mle(surrogate.given(xs))  # doctest: +SKIP
    """
    n, rounds = require_count(n, "n"), require_count(rounds, "rounds")
    seed = require_count(seed, "seed", minimum=0)
    if n < FEWEST * rounds:
        raise DomainError(
            f"{n} simulations in {rounds} round(s) are too few: {FEWEST} per round are needed at "
            "least. Ask for more simulations or fewer rounds."
        )
    observed, single = as_groups(xs, tuple(model.x_shape), missing=declares_missing(model))
    if not single:
        raise DomainError(
            f"focus is for one data set, (m, *x_shape); got {len(observed)} groups. Call it for "
            "each of them."
        )
    c = usual_drop(model.space.d) if drop is None else as_number(drop, "drop")
    if not 0 < c < np.inf:
        raise DomainError(f"drop must be positive and finite; got {c}.")
    config = TrainConfig() if config is None else config
    folder = None if path is None else make_folder(path)
    if folder is not None:
        begun = {} if after is None else {"after": len(after[0])}
        begun |= {} if drop is None else {"drop_named": True}
        _claim(folder, _described(model, observed[0], n, rounds, seed, c) | begun)
    sizes = _sizes(n, rounds)
    sets: list[Dataset] = []
    records: list[dict[str, Any]] = []
    boxes, spent = [model.space], 0
    region: Region | None = None
    surrogate: Surrogate | None = None
    scores = True

    def next_region(of: Surrogate, data: Dataset, latest: int, r: int) -> Region:
        """From the surrogate trained on these data, as many draws as the next round may want. The
        `latest` rows, which come last, are those that the observed data are most like."""
        held = hold_out(len(data), config.validation_fraction, config.seed)[1]
        like_ours = held[held >= len(data) - latest]
        asked = like_ours if len(like_ours) else held
        cut = c if drop is not None else needed_drop(of, data, asked, len(observed[0]), c)
        return find_region(of.given(observed[0]), cut, n - spent, sets[-1], [seed, r])

    if after is not None:
        sets, surrogate = [after[0]], after[1]
        scores = after[0].score is not None
        region = next_region(surrogate, after[0], len(after[0]), rounds)
    while spent < n:
        r = len(records)
        still = region is not None and region.share > STILL and region.drop == c
        count = n - spent if still else sizes[r]
        where = None if folder is None else folder / f"round-{r + 1}"
        theta = None if region is None else region.theta[:count]
        data_path = None if where is None else where / "data"
        own_seed = _seed(seed, r if after is None else r + 1)
        sets.append(
            simulate(model, count, own_seed, data_path, scores=scores, jobs=jobs, theta=theta)
        )
        spent += count
        if region is not None:
            boxes.append(shrunken(model, boxes[-1], region.theta))
        choice = network if r == 0 or spent == n else _as_before(network, surrogate)
        on = partial(_trained, choice, loss, config, where, progress)
        surrogate, data, again = _without_cut_faces(model, observed[0], sets, boxes, on)
        records.append(
            {
                "simulations": count,
                "used": len(data),
                "lower": boxes[-1].lower.tolist(),
                "upper": boxes[-1].upper.tolist(),
                "share": None if region is None else region.share,
                "drop": None if region is None else region.drop,
                "reopened": again,
            }
        )
        if spent < n:
            # Where the box was cut too near, the latest ones were simulated in the wrong place.
            region = next_region(surrogate, data, len(data) if again else count, r)
    assert surrogate is not None
    digest = hashlib.sha256(np.ascontiguousarray(observed[0]).tobytes()).hexdigest()
    record = {"data": digest, "drop": c, "n": n, "rounds": records}
    result = replace(surrogate, provenance={**surrogate.provenance, "focus": record})
    if result.quality is not None:
        warn_of_quality(result.quality, result.space.names, stacklevel=2)
    if folder is not None:
        result.save(folder / "surrogate")
    return result


def _trained(
    network: NetworkChoice,
    loss: Loss | None,
    config: TrainConfig,
    folder: Path | None,
    progress: bool | None,
    data: Dataset,
    again: int,
) -> Surrogate:
    """A round's surrogate; `again`: how often it was trained before."""
    own = f"surrogate-{again + 1}" if again else "surrogate"
    at = None if folder is None else folder / own
    with unsaid():  # of the last one it is
        return train(data, None, network, loss, config, at, progress=progress)


def _without_cut_faces(
    model: Model,
    observed: NDArray[Any],
    sets: Sequence[Dataset],
    boxes: list[Space],
    trained: Callable[[Dataset, int], Surrogate],
) -> tuple[Surrogate, Dataset, int]:
    """The surrogate of the last box, its data, and how often sides of that box were opened again:
    those on which the surrogate has not fallen off. Each new box joins `boxes`."""
    again = 0
    while True:
        data = _inside(sets, boxes[-1])
        surrogate = trained(data, again)
        faces = faces_cut(model, surrogate.given(observed))
        if not faces.any():
            return surrogate, data, again
        boxes.append(reopened(model, boxes, faces))
        again += 1


def _as_before(network: NetworkChoice, before: Surrogate | None) -> NetworkChoice:
    """Where "auto" has several candidates, they are compared in the first round and in the last;
    rounds between them take the one that was kept, if it has a name."""
    kept = None if before is None else before.provenance.get("kept")
    return kept if network == "auto" and kept in names() else network


def _inside(sets: Sequence[Dataset], space: Space) -> Dataset:
    """All rows of all rounds inside the box of this space, as one data set in memory."""
    first = sets[0]
    theta, x, score = [], [], []
    for one in sets:
        rows = np.flatnonzero(space.contains(np.asarray(one.theta), "train", tolerance=0.0))
        t, values, s = one.rows(rows)
        theta.append(t)
        x.append(values)
        score.append(s)
    if sum(len(t) for t in theta) < FEWEST:
        raise MissingError(
            "Hardly any simulation lies where the likelihood of the data seems to be. Are the data "
            "possible under the model (ks.check_model), and the box around them?"
        )
    return Dataset(
        np.concatenate(theta),
        np.concatenate(x),
        None if first.score is None else np.concatenate(_all(score)),
        space,
        first.score_kind,
        first.structure,
        _still_there(first, space),
        {"model": first.provenance.get("model"), "rounds": len(sets)},
        first.contacts,
        first.missing,
        first.trend,
    )


def _still_there(data: Dataset, space: Space) -> tuple[Any, ...]:
    """The declared symmetries that map the box of this space onto itself."""
    low, high = space.box("train")
    slack = 1e-9 * (high - low)
    kept = []
    for symmetry in data.symmetries:
        ends = np.stack([symmetry.of_theta(end[None])[0] for end in (low, high)])
        same = (np.abs(ends.min(axis=0) - low) <= slack) & (
            np.abs(ends.max(axis=0) - high) <= slack
        )
        if same.all():
            kept.append(symmetry)
    return tuple(kept)


def _all(parts: Sequence[NDArray[Any] | None]) -> list[NDArray[Any]]:
    return [part for part in parts if part is not None]


def _sizes(n: int, rounds: int) -> list[int]:
    """Equal rounds; the first ones take what is left over."""
    return [n // rounds + (r < n % rounds) for r in range(rounds)]


def _seed(seed: int, r: int) -> int:
    """A seed of its own for each round: simulations of two rounds share no random stream."""
    if r == 0:
        return seed
    return int(np.random.SeedSequence([STREAM, seed, r]).generate_state(1, np.uint64)[0] >> 1)


def _described(
    model: Model, x: NDArray[Any], n: int, rounds: int, seed: int, c: float
) -> dict[str, Any]:
    digest = hashlib.sha256(np.ascontiguousarray(x).tobytes()).hexdigest()
    return {
        "model": model.name,
        "data": digest,
        "shape": list(x.shape),
        "n": n,
        "rounds": rounds,
        "seed": seed,
        "drop": c,
    }


def _claim(folder: Path, wanted: Mapping[str, Any]) -> None:
    """Write down what the folder is for, or refuse one that is for something else. Networks and
    their settings are compared by each round's training."""
    file = folder / NAME
    if not file.exists():
        write_sealed(file, FORMAT, VERSION, dict(wanted))
        return
    found = read_sealed(file, FORMAT, VERSION)
    other = [name for name, value in wanted.items() if found.get(name) != value]
    if other:
        raise MismatchError(
            f"{folder} holds rounds of another call: {', '.join(other)} differ. Choose another "
            "folder, or make the same call again."
        )
