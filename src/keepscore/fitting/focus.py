"""`focus`: rounds of simulations for one data set, each where the likelihood of the one before is.

An amortised surrogate spends its simulations on the whole box. For one data set most of them lie
where the likelihood is nothing. With l_r the log-likelihood of the data by the surrogate of round r
and B_r its box,

    R_r = { theta in B_r : l_r(theta) >= max l_r - c },    c = max(12, q / 2),

q the 1 - 1e-4 quantile of chi-square with d degrees of freedom,
round r + 1 simulates at draws of the prior restricted to R_r, whatever its shape: the draws come
from particles (`inference.smc`) led from the prior on B_r to

    prior(theta) exp( S min(0, l_r(theta) - max l_r + c) ),     S = 4,

flat inside R_r, so that several modes and curved regions keep their share; what is left outside is
dropped. B_{r+1} is the bounding box of the draws, a little wider. The next network is trained on
all rounds' simulations inside B_{r+1}: any distribution of theta will do for log p(x | theta) up to
a function of x, so none of them is thrown away, and those outside R_r but inside the box keep the
network honest between modes. Scores are taken along in every round.

The region has stopped shrinking when it holds more than 80% of the draws of the region before; then
the rest of the budget is simulated in one last round. The result knows its box only, and refuses
theta outside.

Truncation (Deistler, Goncalves and Macke 2022) keeps the prior's shape inside the region, so no
weights are needed. A first surrogate that is wrong by more than c at the truth would cut it away:
c is generous, and what the last surrogate knows is measured on held-out pairs as ever.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import chi2

from keepscore.checks import Floats, as_number, require_count
from keepscore.data.dataset import Dataset
from keepscore.data.simulate import simulate
from keepscore.errors import ConvergenceError, DomainError, MismatchError, MissingError
from keepscore.files import make_folder, read_sealed, write_sealed
from keepscore.inference.maximise import maximum_of
from keepscore.inference.smc import smc
from keepscore.likelihood import Integers, Likelihood, as_groups
from keepscore.losses import Loss
from keepscore.models.base import Model, declares_missing
from keepscore.networks import names
from keepscore.space import Space
from keepscore.surrogate import Surrogate
from keepscore.training import TrainConfig, train
from keepscore.training.train import NetworkChoice

NAME, FORMAT, VERSION = "focus.json", "keepscore focus", 1
LEAST_DROP, DROP_LEVEL = 12.0, 1e-4
STEEPNESS = 4.0
STILL = 0.8  # share of a region's draws in the next one: it no longer shrinks
WIDER = 0.05  # of the box of the draws, on either side
FEWEST = 64  # simulations per round
FEWEST_PARTICLES = 2000
MOST_POPULATIONS = 50
MOST_IMAGES = 100  # of a box under symmetries, until it is mapped onto itself
STREAM = 0xF0C


@dataclass(frozen=True)
class Region:
    """Where a round found the likelihood: draws of the prior in it (m, d), and how much of the
    region before lies in it."""

    theta: Floats
    share: float


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
        drop: c, how far below its maximum the log-likelihood may be inside the region.
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
    c = max(LEAST_DROP, float(chi2.isf(DROP_LEVEL, model.space.d)) / 2) if drop is None else drop
    c = as_number(c, "drop")
    if not 0 < c < np.inf:
        raise DomainError(f"drop must be positive and finite; got {c}.")
    folder = None if path is None else make_folder(path)
    if folder is not None:
        begun = {} if after is None else {"after": len(after[0])}
        _claim(folder, _described(model, observed[0], n, rounds, seed, c) | begun)
    sizes = _sizes(n, rounds)
    sets: list[Dataset] = []
    records: list[dict[str, Any]] = []
    space, spent = model.space, 0
    region: Region | None = None
    surrogate: Surrogate | None = None
    scores = True
    if after is not None:
        sets, surrogate = [after[0]], after[1]
        scores = after[0].score is not None
        region = find_region(surrogate.given(observed[0]), c, n, sets[0], [seed, rounds])
    while spent < n:
        r = len(records)
        count = n - spent if region is not None and region.share > STILL else sizes[r]
        where = None if folder is None else folder / f"round-{r + 1}"
        theta = None if region is None else region.theta[:count]
        data_path = None if where is None else where / "data"
        own_seed = _seed(seed, r if after is None else r + 1)
        sets.append(
            simulate(model, count, own_seed, data_path, scores=scores, jobs=jobs, theta=theta)
        )
        spent += count
        if region is not None:
            space = _shrunken(model, space, region.theta)
        data = _inside(sets, space)
        own = None if where is None else where / "surrogate"
        choice = network if r == 0 or spent == n else _as_before(network, surrogate)
        surrogate = train(data, None, choice, loss, config, own, progress=progress)
        records.append(
            {
                "simulations": count,
                "used": len(data),
                "lower": space.lower.tolist(),
                "upper": space.upper.tolist(),
                "share": None if region is None else region.share,
            }
        )
        if spent < n:
            more = n - spent  # as many as the next round may want
            region = find_region(surrogate.given(observed[0]), c, more, sets[-1], [seed, r])
    assert surrogate is not None
    digest = hashlib.sha256(np.ascontiguousarray(observed[0]).tobytes()).hexdigest()
    record = {"data": digest, "drop": c, "n": n, "rounds": records}
    result = replace(surrogate, provenance={**surrogate.provenance, "focus": record})
    if folder is not None:
        result.save(folder / "surrogate")
    return result


def _as_before(network: NetworkChoice, before: Surrogate | None) -> NetworkChoice:
    """Where "auto" has several candidates, they are compared in the first round and in the last;
    rounds between them take the one that was kept, if it has a name."""
    kept = None if before is None else before.provenance.get("kept")
    return kept if network == "auto" and kept in names() else network


def find_region(
    like: Likelihood, c: float, count: int, latest: Dataset, seed: Sequence[int]
) -> Region:
    """`count` draws of the prior in { l >= max l - c }, and the share of the latest simulations
    that lie in it (those inside the likelihood's box)."""
    rng = np.random.default_rng([STREAM, *seed])
    space = like.space
    best = float(maximum_of(like).value[0])
    prior = space.unnormalised_log_prior if space.has_prior else None
    particles = max(FEWEST_PARTICLES, 2 * -(-count * 3 // 4))
    # The search may have missed the highest mode; particles then find something higher.
    for _ in range(3):
        level = best - c
        start = space.draw(particles, rng)[None]
        found = smc(_flat_top(like, level), np.zeros(1, dtype=np.int64), start, prior, rng)
        theta = found.theta[0]
        value = like(theta)
        if value.max() <= best + 1e-3 * c:
            break
        best = float(value.max())
    inside = theta[value >= best - c]
    kept = [inside]
    while sum(len(part) for part in kept) < count:
        if len(kept) > MOST_POPULATIONS:
            raise ConvergenceError(
                f"Only {sum(len(part) for part in kept)} of {count} draws were found where the "
                "likelihood of the data is. Is it finite on the box?"
            )
        start = space.draw(particles, rng)[None]
        found = smc(_flat_top(like, best - c), np.zeros(1, dtype=np.int64), start, prior, rng)
        kept.append(found.theta[0][like(found.theta[0]) >= best - c])
    draws = np.concatenate(kept)
    draws = draws[rng.permutation(len(draws))][:count]
    before = np.asarray(latest.theta)
    before = before[space.contains(before)]
    share = float(np.mean(like(before) >= best - c)) if len(before) else 0.0
    return Region(draws, share)


def _flat_top(like: Likelihood, level: float) -> Likelihood:
    """S min(0, l - level), as far as particles ask for it."""

    def pairs(theta: Floats, group: Integers) -> Floats:
        return STEEPNESS * np.minimum(0.0, like.pairs(theta, group) - level)

    return replace(like, pairs=pairs)


def _shrunken(model: Model, before: Space, theta: Floats) -> Space:
    """The space whose box is around these draws, a little wider, inside the box before.

    Symmetries that move theta alone are the likelihood's own: their images of the draws belong to
    the region too.
    """
    low, high = theta.min(axis=0), theta.max(axis=0)
    room = WIDER * (high - low)
    ends = [np.maximum(low - room, before.lower), np.minimum(high + room, before.upper)]
    alone = [s for s in model.symmetries if s.sign == 1 and _keeps(s.x_index)]
    for _ in range(MOST_IMAGES):
        images = [np.stack(ends), *(symmetry.of_theta(np.stack(ends)) for symmetry in alone)]
        wider = [np.min(images, axis=(0, 1)), np.max(images, axis=(0, 1))]
        if np.array_equal(wider, ends):
            break
        ends = wider
    parameters = [
        replace(p, lower=float(a), upper=float(b), train_margin=0.0)
        for p, a, b in zip(model.space.parameters, *ends, strict=True)
    ]
    return Space(parameters, model.space.fixed, model.space.prior)


def _keeps(index: NDArray[np.int64]) -> bool:
    return bool(np.array_equal(index, np.arange(len(index))))


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
