"""What a data set is to be: model, size, seed, shards. The same plan always gives the same bytes.

A plan is plain data. It is written into the folder before the first shard, and a later call may
add to the folder only if its own plan is the same. The shards are fixed by n and the size of a
row alone, never by who computes them: about 64 of them, so that a worker's death costs little and
every worker has something to do, but not so many that files outweigh their content.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from keepscore.checks import Floats, as_theta, require_choice, require_count, require_name
from keepscore.data import design
from keepscore.errors import (
    DomainError,
    DtypeError,
    FormatError,
    KeepscoreError,
    ShapeError,
    unknown_name,
)
from keepscore.files import LARGEST_INTEGER
from keepscore.models.base import (
    Model,
    ScoreKind,
    Symmetry,
    build,
    declares_missing,
    describe,
    registered,
    trend_of,
)
from keepscore.models.graphs import as_weights, people_in, plain_weights
from keepscore.models.trend import trend_from
from keepscore.space import Space

SHARDS = 64
LEAST_ROWS, MOST_ROWS = 64, 8192
MOST_BYTES = 64 * 2**20
MOST_SHARDS = 2**15  # their records fit into one manifest
MOST_N = 2**60  # rows, and bytes
MOST_GIVEN = 1_000_000  # numbers in a theta that a plan holds
OWN = ("contacts", "given", "missing", "trend")  # what only some plans tell
ON_INVALID = ("raise", "drop")
NEEDED = (
    *("name", "space", "x_shape", "x_dtype", "score_kind", "symmetries", "structure"),
    *("settings", "simulate"),
)


@dataclass(frozen=True)
class Plan:
    """Everything that decides the bytes of a data set, as JSON can hold it."""

    model: Mapping[str, Any]
    x_shape: tuple[int, ...]
    x_dtype: str
    score_kind: ScoreKind | None
    structure: str | None
    symmetries: tuple[Mapping[str, Any], ...]
    n: int
    seed: int
    purpose: str
    on_invalid: str
    shard_rows: int
    contacts: Mapping[str, Any] | list[Any] | None = None  # where the description has no graph
    given: list[list[float]] | None = None  # theta (n, d), where it is not the design's
    missing: bool | None = None  # True where NaN in x means "not observed"
    trend: Mapping[str, Any] | None = None  # of an unknown mean, taken off x

    @property
    def space(self) -> Space:
        return Space.from_dict(self.model["space"])

    @property
    def shards(self) -> int:
        return -(-self.n // self.shard_rows)

    def rows(self, shard: int) -> range:
        """The rows of the whole set that a shard holds (before any are dropped)."""
        start = shard * self.shard_rows
        return range(start, min(start + self.shard_rows, self.n))

    def thetas(self, shard: int) -> Floats:
        """The design of one shard: (rows, d)."""
        rows = self.rows(shard)
        if self.given is not None:
            return np.array(self.given[rows.start : rows.stop], dtype=np.float64)
        return design.thetas(self.space, self.n, self.seed, self.purpose, shard, rows)

    def arrays(self) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
        """Name, shape of a row and dtype of each array that is kept."""
        d, real = (self.space.d,), np.dtype(np.float64)
        kept = {"theta": (d, real), "x": (tuple(self.x_shape), np.dtype(self.x_dtype))}
        if self.score_kind is not None:
            kept["score"] = (d, real)
        return kept

    def row_bytes(self) -> int:
        return sum(math.prod(s) * dtype.itemsize for s, dtype in self.arrays().values())

    def symmetry_records(self) -> tuple[Symmetry, ...]:
        return tuple(Symmetry.from_dict(s) for s in self.symmetries)

    def contact_weights(self) -> Floats | None:
        """The graph (K, K) that x (T, K) lives on, if the plan or the model's settings tell one."""
        if self.contacts is not None:
            return as_weights(self.contacts)
        try:
            return contacts_of(build(self.model))
        except KeepscoreError:  # a model of the user's own: its plan would have told
            return None

    def to_dict(self) -> dict[str, Any]:
        """Plain data; a plan without a graph or thetas of its own is as it always was."""
        content = asdict(self)
        for name in OWN:
            if content[name] is None:
                del content[name]
        return content

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Plan:
        """A plan from JSON, checked as if a stranger had written it."""
        try:
            values = {f.name: content[f.name] for f in fields(cls) if f.name not in OWN}
            values |= {name: content.get(name) for name in OWN}
            values["x_shape"] = tuple(values["x_shape"])
            values["symmetries"] = tuple(values["symmetries"])
            plan = cls(**values)
            plan._check()
        except Exception as error:  # a forged plan can fail in any way
            raise FormatError(f"Not the plan of a data set: {_short(error)}.") from None
        return plan

    def _check(self) -> None:
        """Raise something if a value is not what `make_plan` could have made."""
        counts = (self.n, self.shard_rows, self.seed, *self.x_shape)
        if not all(type(c) is int and c >= 0 for c in counts) or self.n < 1:
            raise ValueError("a count is out of range")
        if not 1 <= self.shard_rows <= MOST_ROWS:
            raise ValueError("shard_rows is out of range")
        structure = "none" if self.structure is None else self.structure
        names = (self.purpose, self.on_invalid, structure, self.model["name"])
        if not all(isinstance(name, str) and name.isprintable() for name in names):
            raise ValueError("a name is not text")
        if self.purpose not in design.PURPOSES or self.on_invalid not in ON_INVALID:
            raise ValueError("purpose or on_invalid is unknown")
        if self.score_kind not in ("exact", "joint", None):
            raise ValueError("score_kind is unknown")
        if not isinstance(self.model["settings"], dict):
            raise ValueError("the model has no settings")
        dtype = np.dtype(self.x_dtype)
        if not isinstance(self.x_dtype, str) or dtype.kind not in "biuf":
            raise ValueError("x_dtype is not a dtype of numbers")
        if dtype.newbyteorder("<").str != self.x_dtype:
            raise ValueError("x_dtype is not as it is written here")
        require_possible(self)
        if self.missing not in (None, True) or (self.missing and dtype.kind != "f"):
            raise ValueError("missing is not True of floating x")
        if self.trend is not None:
            trend_from(self.trend).basis(self.x_shape)
        people = people_in(self.structure, self.x_shape)
        if self.contacts is not None and len(as_weights(self.contacts)) != people:
            raise ValueError("the graph is not one of these people")
        space = self.space
        if self.given is not None:
            rows = self.given
            if not all(type(v) is float for row in rows for v in row):
                raise ValueError("theta is not made of numbers")
            if len(_given(np.array(rows), space)) != self.n:
                raise ValueError("theta does not have n rows")
        for symmetry in self.symmetry_records():
            entries, parameters = len(symmetry.x_index), len(symmetry.theta_index)
            if (entries, parameters) != (math.prod(self.x_shape), space.d):
                raise ValueError("a symmetry is of other data")

    def digest(self) -> str:
        """What ties a shard to its plan."""
        text = json.dumps(self.to_dict(), sort_keys=True, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()


def make_plan(
    model: Model,
    n: int,
    seed: int,
    purpose: str,
    scores: bool,
    on_invalid: str,
    theta: ArrayLike | None = None,
) -> Plan:
    """The plan of `simulate(model, n, seed, ...)`, with its arguments checked."""
    missing = [name for name in NEEDED if not hasattr(model, name)]
    if missing:
        raise DtypeError(
            f"model must be a model (keepscore.models, from_functions); {type(model).__name__} has "
            f"no {missing[0]}."
        )
    require_name(model.name, "The name of a model")
    n, seed = require_count(n, "n"), require_count(seed, "seed", minimum=0)
    if n > MOST_N:
        raise DomainError(f"n must be at most {MOST_N}; got {str(n)[:40]}.")
    if seed > LARGEST_INTEGER:
        raise DomainError(f"seed must be at most {LARGEST_INTEGER}; got {str(seed)[:40]}.")
    if not isinstance(scores, (bool, np.bool_)):
        raise DtypeError(f"scores must be True or False; got {scores!r}.")
    if not isinstance(purpose, str) or purpose not in design.PURPOSES:
        raise unknown_name("purpose", purpose, design.PURPOSES)
    require_choice(on_invalid, "value of on_invalid", ON_INVALID)
    x_shape = tuple(require_count(side, "a side of x_shape", minimum=0) for side in model.x_shape)
    given = None if theta is None else _given(theta, model.space)
    if given is not None and len(given) != n:
        raise ShapeError(f"theta has {len(given)} row(s), n is {n}; they must be the same.")
    x_dtype = np.dtype(model.x_dtype)
    if x_dtype.kind not in "biuf":
        raise DtypeError(f"x_dtype of {model.name} must be real numbers; got {x_dtype}.")
    holes, trend = declares_missing(model), trend_of(model)
    if holes and x_dtype.kind != "f":
        raise DtypeError(
            f"x of {model.name} may be missing, so its x_dtype must be floating, which holds NaN; "
            f"got {x_dtype}."
        )
    # Scores always count, so that a set with and one without have the same shards and thetas.
    row_bytes = x_dtype.itemsize * math.prod(x_shape) + 16 * model.space.d
    rows = min(max(LEAST_ROWS, -(-n // SHARDS)), MOST_ROWS, max(1, MOST_BYTES // row_bytes))
    return Plan(
        model=plain_description(model),
        x_shape=x_shape,
        x_dtype=x_dtype.newbyteorder("<").str,
        score_kind=model.score_kind if scores else None,
        structure=model.structure,
        symmetries=tuple(s.to_dict() for s in model.symmetries),
        n=n,
        seed=seed,
        purpose=purpose,
        on_invalid=on_invalid,
        shard_rows=rows,
        contacts=_own_contacts(model, x_shape),
        given=None if given is None else given.tolist(),
        missing=True if holes else None,
        trend=None if trend is None else trend.settings(),
    )


def _given(theta: ArrayLike, space: Space) -> Floats:
    """theta (n, d) to simulate at: finite, in the train box, no more than a plan can hold."""
    rows = as_theta(theta, space.d)
    if rows.size > MOST_GIVEN:
        raise DomainError(
            f"theta holds {rows.size} numbers; a data set is made of at most {MOST_GIVEN} given "
            "ones. Make several sets, with seeds of their own."
        )
    outside = np.flatnonzero(~space.contains(rows, "train"))
    if len(outside):
        raise DomainError(
            f"{len(outside)} of {len(rows)} theta lie outside the train box of the space; the "
            f"first is row {outside[0]}, {rows[outside[0]].tolist()} in working parameters."
        )
    return rows


def contacts_of(model: object) -> Floats | None:
    """Who meets whom, (K, K), if this is a model x (T, K) of people on a graph: its `weights`."""
    weights = getattr(model, "weights", None)
    return None if weights is None else as_weights(weights)


def _own_contacts(model: Model, x_shape: tuple[int, ...]) -> dict[str, Any] | list[Any] | None:
    """The graph as plain data, where the model cannot be built again from its description."""
    people = people_in(model.structure, x_shape)
    weights = contacts_of(model) if people is not None else None
    if weights is None or model.name in registered():
        return None
    if len(weights) != people:
        raise ShapeError(
            f"weights of {model.name} must be ({people}, {people}), as x_shape says; got "
            f"{weights.shape}."
        )
    return plain_weights(weights)


def require_possible(plan: Plan) -> None:
    """Refuse sizes that no data set of ours can have, before anything loops over them."""
    if plan.n * max(1, plan.row_bytes()) > MOST_N:
        raise DomainError(f"n = {plan.n} rows of {plan.row_bytes()} bytes are too many.")
    if plan.shards > MOST_SHARDS:
        raise DomainError(
            f"n = {plan.n} rows make {plan.shards} shards of {plan.shard_rows}; a data set has at "
            f"most {MOST_SHARDS}. Make several sets, with seeds of their own."
        )


def share_of(shards: int, share: tuple[int, int]) -> range:
    """The shards of share i of k (i = 1, ..., k): every k-th one."""
    if not isinstance(share, (tuple, list)) or len(share) != 2:
        raise DtypeError(f"A share is a pair (i, k), such as (1, 3); got {share!r}.")
    i, k = share
    require_count(k, "the number of shares")
    if not 1 <= require_count(i, "the share", minimum=0) <= k:
        raise DomainError(f"Shares are counted 1/{k}, ..., {k}/{k}; got {i}/{k}.")
    return range(i - 1, shards, k)


def _short(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:200].rstrip(".")


def plain_description(model: Model) -> dict[str, Any]:
    """What identifies the model, through JSON and back: equal to what a file will say."""
    try:
        plain: dict[str, Any] = json.loads(json.dumps(describe(model), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise DtypeError(
            f"settings() of model {model.name!r} must be plain data that JSON can hold: {error}."
        ) from None
    return plain
