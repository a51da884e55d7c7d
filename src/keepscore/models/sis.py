"""Susceptible-infected-susceptible epidemics on a graph, seen at fixed times.

K people are the nodes of a weighted graph; v_k is 0 (susceptible) or 1 (infected). Person k

    catches it   0 -> 1   at rate  eta + lambda sum_j w_kj v_j,
    recovers     1 -> 0   at rate  mu,

with lambda and mu to be inferred, and eta, the rate of infection from outside, known. The states
x_t at the times t_1 < ... < t_T are observed, what happens between is not:

    p(x | lambda, mu) = P(x_t1) prod_i exp(Q(lambda, mu) (t_i - t_{i-1}))[x_{t_{i-1}}, x_{t_i}].

Log-likelihood and score are exact (`numerics.ctmc`, no 2^K x 2^K matrix); simulation is exact and
for any K (`numerics.gillespie`). Where 2^K states are out of reach, `SIS(..., score="joint")` gives
the score of the whole simulated path, whose mean given x is the score of x.

With `sensitivity` and `specificity` x holds the results of tests of everybody (`imperfect_tests`),
and the states are hidden. p(x) then sums over all paths of states; it and its score come from a
filter over the 2^K states (`numerics.hidden_chain`), which also takes tests that are missing:
`log_prob_observed`.

The default is the graph of the paper: 8 people at the corners of two unit squares, weights
exp(-distance), observed at 0, 1, ..., 12.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, NDArray

from keepscore.checks import (
    Floats,
    as_floats,
    as_number,
    as_theta,
    require_choice,
    require_finite,
    require_pairs,
)
from keepscore.errors import (
    DomainError,
    DtypeError,
    NonFiniteError,
    ShapeError,
    TooLargeError,
)
from keepscore.likelihood import Integers, Likelihood, as_groups, digests
from keepscore.models.base import ScoreKind, Symmetry, as_pairs, register
from keepscore.models.graphs import GraphLike, as_weights, distance_weights, plain_weights
from keepscore.models.imperfect_tests import (
    ERRORS,
    as_binary,
    as_error,
    as_results,
    known_error,
    numbers,
    results,
    slopes,
)
from keepscore.numerics import ctmc, gillespie, hidden_chain, uniformisation
from keepscore.numerics.automorphisms import automorphisms
from keepscore.numerics.simd import LANE
from keepscore.space import Parameter, Space

SELF_INFECTION = 0.135
MOST_EVENTS = 1e9
FEW_NODES = 12  # tables of 2^K are cheap, whether they will be needed or not
_SQUARE = ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (1.0, 1.0))
PAPER_POSITIONS = np.array([*_SQUARE, *((x + 2.0, y + 2.0) for x, y in _SQUARE)])


class SIS:
    """The SIS epidemic on a known graph: theta = (log lambda, log mu), x (T, K) of 0 and 1.

    Args:
        positions: (K, m), places of the people; weights are then exp(-distance).
        weights: (K, K), not negative: w[k, j] is the weight of j on k, and need not be symmetric.
            May be a SciPy sparse matrix. See also `ks.models.edge_weights` and
            `ks.models.contact_network`.
        self_infection: eta >= 0. With eta = 0, once nobody is infected nobody ever will be: a path
            that leaves that state has log_prob -inf, and its score is a NonFiniteError.
        times: The observation times, increasing, equally spaced or not.
        initial: At times[0]: None (uniform over all 2^K states), the probability of being infected,
            independently, one for all or (K,), or a distribution over all (2^K,) states, where
            state number s has node k infected if bit k of s is 1.
        space: Another space of lambda and mu than the paper's (or its `to_dict`); "sensitivity"
            and "specificity" may follow them and are then parameters too.
        score: What `simulate_with_score` returns: "exact", or "joint" for any K.
        sensitivity: The probability, in (0, 1], that the test of an infected person is positive;
            None is 1, or a parameter if the space names it.
        specificity: The probability that the test of a person who is not infected is negative.

    Raises:
        DomainError: Positions and weights both given, or a value out of range.
        ShapeError: Arrays that do not fit together.

    Example:
        >>> import numpy as np
        >>> import keepscore as ks
        >>> model = ks.models.SIS(weights=np.ones((3, 3)), times=[0, 1, 2])
        >>> theta = model.space.grid(2)[:1]
        >>> x = model.simulate(theta, np.random.default_rng(0))
        >>> x.shape, model.score(theta, x).shape
        ((1, 3, 3), (1, 2))
        >>> tested = ks.models.SIS(weights=np.ones((3, 3)), sensitivity=0.9, specificity=0.98)
        >>> tested.structure is None  # test results are no Markov chain
        True
    """

    name = "sis"
    x_dtype = np.dtype(np.uint8)

    def __init__(
        self,
        positions: ArrayLike | None = None,
        weights: GraphLike | None = None,
        self_infection: float = SELF_INFECTION,
        times: ArrayLike = tuple(range(13)),
        initial: ArrayLike | None = None,
        space: Space | Mapping[str, Any] | None = None,
        score: ScoreKind = "exact",
        sensitivity: float | None = None,
        specificity: float | None = None,
    ) -> None:
        require_choice(score, "kind of score", ("exact", "joint"))
        self.positions, self.weights = _graph(positions, weights)
        self.self_infection = _self_infection(self_infection)
        self.times = _times(times)
        self.initial = _initial(initial, self.node_count)
        errors = as_error(sensitivity, "sensitivity"), as_error(specificity, "specificity")
        self.space = _space(space, self.self_infection, errors)
        self.sensitivity = known_error(errors[0], "sensitivity", self.space)
        self.specificity = known_error(errors[1], "specificity", self.space)
        self.score_kind: ScoreKind = score

    def __getstate__(self) -> dict[str, Any]:
        """What is derived stays behind: a worker computes its own tables when it needs them."""
        derived = ("symmetries", "_images", "_automorphisms", "_coupling", "_chain", "_law")
        return {name: value for name, value in vars(self).items() if name not in derived}

    def at_times(self, times: ArrayLike) -> SIS:
        """The same epidemic seen at other times; tables are shared.

        Args:
            times: The observation times, increasing.

        Returns:
            The model.
        """
        _ = self._coupling
        if self.node_count <= FEW_NODES:
            _ = self._chain, self._images, self._law
        other = object.__new__(SIS)
        vars(other).update(vars(self), times=_times(times))
        vars(other).pop("symmetries", None)
        return other

    def on_graph(self, weights: GraphLike) -> SIS:
        """The same epidemic among as many people who meet otherwise.

        Args:
            weights: (K, K).

        Returns:
            The model.
        """
        other = object.__new__(SIS)
        vars(other).update(self.__getstate__(), positions=None, weights=as_weights(weights))
        if len(other.weights) != self.node_count:
            raise ShapeError(f"The graph must have {self.node_count} people, as this one has.")
        # To look for symmetries costs more than they save, where every graph is another one.
        vars(other)["_automorphisms"] = np.arange(self.node_count)[None]
        return other

    @property
    def node_count(self) -> int:
        """K, the number of people."""
        return len(self.weights)

    @property
    def x_shape(self) -> tuple[int, int]:
        return (len(self.times), self.node_count)

    @property
    def perfect(self) -> bool:
        """Whether x holds the states themselves: tests do not err."""
        return self.sensitivity == 1.0 and self.specificity == 1.0

    @property
    def structure(self) -> str | None:
        if not self.perfect:
            return None  # what was shown before the last visit tells of the state there too
        steps = np.diff(self.times)
        return "markov" if np.allclose(steps, steps[0], rtol=1e-9, atol=0.0) else None

    @cached_property
    def symmetries(self) -> tuple[Symmetry, ...]:
        """Automorphisms of the graph that leave the initial distribution alone, the identity
        among them; empty if there is no other."""
        kept = [perm for perm in self._automorphisms if self._keeps_initial(perm)]
        if len(kept) < 2:
            return ()
        steps = np.arange(len(self.times))[:, None] * self.node_count
        same = tuple(range(self.space.d))
        return tuple(Symmetry(_cycles(perm), (steps + perm).ravel(), same) for perm in kept)

    def settings(self) -> dict[str, Any]:
        given_by_places = self.positions is not None
        errors = {"sensitivity": self.sensitivity, "specificity": self.specificity}
        known = {name: value for name, value in errors.items() if value not in (None, 1.0)}
        standard = self.space == _space(None, self.self_infection, tuple(errors.values()))
        return {
            "positions": self.positions.tolist() if self.positions is not None else None,
            "weights": None if given_by_places else plain_weights(self.weights),
            "self_infection": self.self_infection,
            "times": self.times.tolist(),
            "initial": None if self.initial is None else self.initial.tolist(),
            "space": None if standard else self.space.to_dict(),
            "score": self.score_kind,
            **known,  # without errors, a description is what it always was
        }

    def simulate(self, theta: ArrayLike, rng: np.random.Generator) -> NDArray[Any]:
        """x (n, T, K), exact in law, for any K."""
        return self._simulate(as_theta(theta, self.space.d), rng)[0]

    def simulate_with_score(
        self, theta: ArrayLike, rng: np.random.Generator
    ) -> tuple[NDArray[Any], Floats]:
        """x, and its score; or, with `score="joint"`, the score of the path that led to it."""
        rows = as_theta(theta, self.space.d)
        x, joint = self._simulate(rows, rng)
        return x, (joint if self.score_kind == "joint" else self.score(rows, x))

    def log_prob(self, theta: ArrayLike, x: ArrayLike) -> Floats:
        rows, data = as_pairs(self, theta, x)
        if not self.perfect:
            return self._filter(*self._rows(rows, as_binary(data)))
        table = self._transitions(data, gradient=False)
        rates = self._exact_rates(rows)
        value = ctmc.log_likelihood(self._chain, rates, np.arange(len(rows)), table)
        return value + self._log_initial(data[:, 0])

    def score(self, theta: ArrayLike, x: ArrayLike) -> Floats:
        return self.log_prob_and_score(theta, x)[1]

    def log_prob_and_score(self, theta: ArrayLike, x: ArrayLike) -> tuple[Floats, Floats]:
        rows, data = as_pairs(self, theta, x)
        if not self.perfect:
            return self._filter_with_score(rows, *self._rows(rows, as_binary(data)))
        table = self._transitions(data, gradient=True)
        value, score = self._with_gradient(rows, np.arange(len(rows)), table)
        return value + self._log_initial(data[:, 0]), score

    def log_prob_observed(self, theta: ArrayLike, x: ArrayLike) -> Floats:
        """log p of what was observed of x (n, T, K): NaN where a person was not tested.

        Args:
            theta: (n, d), working parameters.
            x: (n, T, K) of 0, 1 and NaN; as (n, d) and x pair up in `log_prob`.

        Returns:
            (n,); with nobody tested at all, 0.

        Raises:
            TooLargeError: 2^K states are out of reach.
        """
        rows, shown = self._observed(theta, x)
        return self._filter(*self._rows(rows, shown))

    def log_prob_and_score_observed(self, theta: ArrayLike, x: ArrayLike) -> tuple[Floats, Floats]:
        """The same, with its score (n, d)."""
        rows, shown = self._observed(theta, x)
        return self._filter_with_score(rows, *self._rows(rows, shown))

    def given(self, xs: ArrayLike, *, each: bool = False) -> Likelihood:
        """The likelihood of (n, T, K), one theta for all (with each=True, one per path), or of
        groups (g, n, T, K): transitions are counted once, each kind propagated once."""
        groups, single = as_groups(xs, self.x_shape, each)
        g, n = groups.shape[:2]
        data = groups.reshape(-1, *self.x_shape)
        if not self.perfect:
            return self._given_filtered(as_binary(data), digests(groups), (g, n), single)
        counted = self._count(self._transitions(data, gradient=True), g)
        constant = self._log_initial(data[:, 0]).reshape(g, n).sum(axis=1)

        def pairs(theta: Floats, group: Integers) -> Floats:
            rates = self._exact_rates(theta)
            value = ctmc.log_likelihood(self._chain, rates, group, counted.by_group)
            return value + constant[group]

        def pairs_gradient(theta: Floats, group: Integers) -> tuple[Floats, Floats]:
            value, gradient = self._with_gradient(theta, group, counted.by_group)
            return value + constant[group], gradient

        def surface(theta: Floats) -> Floats:
            rates = self._exact_rates(theta)
            values = np.empty((g, len(theta)))
            chunk = max(1, 2**22 // len(counted.kinds.source))
            for i in range(0, len(theta), chunk):
                logs = ctmc.log_probabilities(self._chain, rates[i : i + chunk], counted.kinds)
                values[:, i : i + chunk] = counted.matrix @ logs.T
            return values + constant[:, None]

        return Likelihood(
            self.space, g, n, pairs, pairs_gradient, surface, single, observed=digests(groups)
        )

    def _simulate(self, theta: Floats, rng: np.random.Generator) -> tuple[NDArray[Any], Floats]:
        raw, slope = self._raw(theta)
        n, (_, nodes) = len(theta), self.x_shape
        duration = self.times[-1] - self.times[0]
        # Whoever falls ill again has recovered before: the rarer of the two sets the pace.
        pace = np.minimum(
            nodes * self.self_infection + self.weights.sum() * raw[:, 0], nodes * raw[:, 1]
        )
        if n and 2 * duration * pace.max() > MOST_EVENTS:
            raise DomainError(
                f"Simulating row {int(pace.argmax())} of theta, {theta[pace.argmax()]}, may take "
                f"{2 * duration * pace.max():.1e} events a path; at most {MOST_EVENTS:.0e} are "
                "simulated. Use smaller rates or a shorter time."
            )
        streams = gillespie.streams(n, rng)
        rates = np.column_stack([np.full(n, self.self_infection), raw])
        states, score = gillespie.paths(
            streams, self._draw_initial(streams), rates, self._coupling, self.times
        )
        if self.perfect:
            return states, score * slope
        errors = self._errors(theta)
        shown = results(states, errors, streams)
        return shown, self._score(theta, score, numbers(states, shown))

    def _draw_initial(self, streams: NDArray[np.uint64]) -> NDArray[np.uint8]:
        nodes = self.node_count
        if self.initial is not None and len(self.initial) != nodes:
            cumulative = np.cumsum(self.initial)
            u = gillespie.uniforms(streams, 1)[:, 0] * cumulative[-1]
            state = np.searchsorted(cumulative, u, side="right")
            return ((state[:, None] >> np.arange(nodes)) & 1).astype(np.uint8)
        chance = 0.5 if self.initial is None else self.initial
        return (gillespie.uniforms(streams, nodes) < chance).astype(np.uint8)

    def _log_initial(self, first: NDArray[Any]) -> Floats:
        """log P(x_t1) of first (n, K)."""
        if self.initial is None:
            return np.full(len(first), -self.node_count * np.log(2.0))
        with np.errstate(divide="ignore"):
            if len(self.initial) != self.node_count:
                return np.log(self.initial / self.initial.sum())[_states(first)]
            return np.log(np.where(first == 1, self.initial, 1.0 - self.initial)).sum(axis=1)

    def _raw(self, theta: Floats) -> tuple[Floats, Floats]:
        """(lambda, mu), and d log raw / d theta, each (n, 2)."""
        with np.errstate(over="ignore"):
            raw = self.space.to_raw(theta)[:, :2]
        bad = ~((raw > 0) & np.isfinite(raw)).all(axis=1)
        if bad.any():
            i = int(bad.argmax())
            raise DomainError(
                "lambda and mu must be positive and finite; "
                f"row {i} of theta, {theta[i]}, gives {raw[i]}."
            )
        slope = np.ones_like(raw)
        for k, parameter in enumerate(self.space.parameters[:2]):
            inner = raw[:, k] - parameter.shift if parameter.transform == "log" else 1.0
            slope[:, k] = inner / raw[:, k]
        return raw, slope

    def _errors(self, theta: Floats) -> Floats:
        """(sensitivity, specificity): (n, 2)."""
        raw, errors = self.space.to_raw(theta), np.ones((len(theta), 2))
        for j, name in enumerate(ERRORS):
            known = getattr(self, name)
            errors[:, j] = raw[:, self.space.index(name)] if known is None else known
            bad = (errors[:, j] <= 0) | (errors[:, j] >= 1)
            if known is None and bad.any():
                i = int(bad.argmax())
                raise DomainError(
                    f"{name} must lie between 0 and 1; row {i} of theta, {theta[i]}, gives "
                    f"{errors[i, j]}."
                )
        return errors

    def _score(self, theta: Floats, of_rates: Floats, tested: Floats) -> Floats:
        """The score (n, d) from that in the logarithms of the rates and the numbers of tests."""
        score = np.empty((len(theta), self.space.d))
        score[:, :2] = of_rates * self._raw(theta)[1]
        if self.space.d > 2:
            raw = self.space.to_raw(theta)
            with np.errstate(divide="ignore", invalid="ignore"):  # of one that is known to be 1
                of_errors = slopes(tested, self._errors(theta))
            for k, parameter in enumerate(self.space.parameters[2:], start=2):
                inner = raw[:, k] - parameter.shift if parameter.transform == "log" else 1.0
                score[:, k] = of_errors[:, ERRORS.index(parameter.name)] * inner
        return score

    def _exact_rates(self, theta: Floats) -> Floats:
        """(lambda, mu) for the exact computation, refused where it would not end."""
        raw = self._raw(theta)[0]
        terms = uniformisation.largest_exit(self._chain, raw) * np.diff(self.times).max()
        if len(terms) and not terms.max() <= uniformisation.MOST_TERMS:
            i = int(np.argmax(np.where(np.isnan(terms), np.inf, terms)))
            raise DomainError(
                f"Row {i} of theta, {theta[i]}, has {terms[i]:.1e} events between two "
                f"observations at the highest rate; exact up to {uniformisation.MOST_TERMS:.0e}. "
                "Use smaller rates or shorter gaps."
            )
        return raw

    def _with_gradient(
        self, theta: Floats, jobs: Integers, table: ctmc.Transitions
    ) -> tuple[Floats, Floats]:
        rates, slope = self._exact_rates(theta), self._raw(theta)[1]
        value, score = ctmc.log_likelihood_and_gradient(self._chain, rates, jobs, table)
        _require_possible(theta, value)
        return value, score * slope

    # --- tests that err or are missing: the filter ---

    def _observed(self, theta: ArrayLike, x: ArrayLike) -> tuple[Floats, NDArray[np.uint8]]:
        rows, shown = as_theta(theta, self.space.d), as_results(x, self.x_shape)
        require_pairs(rows, shown)
        return rows, shown

    def _jobs(self, theta: Floats, offsets: Integers, sequence: Integers) -> hidden_chain.Jobs:
        return hidden_chain.Jobs(
            np.ascontiguousarray(self._exact_rates(theta)), self._errors(theta), offsets, sequence
        )

    def _rows(
        self, theta: Floats, shown: NDArray[np.uint8]
    ) -> tuple[hidden_chain.Jobs, NDArray[np.uint8]]:
        """Each row at its own theta; neighbours with the same theta go side by side."""
        self._require_states()
        new = np.flatnonzero((theta[1:] != theta[:-1]).any(axis=1)) + 1
        offsets = np.concatenate([[0], new, [len(theta)]]) if len(theta) else np.zeros(1)
        starts = offsets[:-1].astype(np.int64)
        return self._jobs(theta[starts], offsets.astype(np.int64), np.arange(len(theta))), shown

    def _seen(self, shown: NDArray[np.uint8]) -> hidden_chain.Seen:
        gaps, gap = np.unique(np.diff(self.times), return_inverse=True)
        return hidden_chain.Seen(shown, self._law, gap, gaps)

    def _filter(self, jobs: hidden_chain.Jobs, shown: NDArray[np.uint8]) -> Floats:
        self._require_memory(False, jobs.width)
        return hidden_chain.log_likelihood(self._chain, jobs, self._seen(shown))

    def _filter_with_score(
        self, theta: Floats, jobs: hidden_chain.Jobs, shown: NDArray[np.uint8]
    ) -> tuple[Floats, Floats]:
        """theta: one row per sequence that is asked for."""
        self._require_memory(True, jobs.width)
        value, gradient, tested = hidden_chain.log_likelihood_and_gradient(
            self._chain, jobs, self._seen(shown)
        )
        _require_possible(theta, value)
        return value, self._score(theta, gradient, tested)

    def _given_filtered(
        self,
        shown: NDArray[np.uint8],
        observed: tuple[bytes, ...],
        shape: tuple[int, int],
        single: bool,
    ) -> Likelihood:
        """The likelihood of g groups of n; observations of one group are filtered side by side."""
        self._require_states()
        g, n = shape

        def asked(theta: Floats, group: Integers) -> hidden_chain.Jobs:
            sequence = group[:, None] * n + np.arange(n)
            return self._jobs(theta, np.arange(len(theta) + 1) * n, sequence.ravel())

        def pairs(theta: Floats, group: Integers) -> Floats:
            return self._filter(asked(theta, group), shown).reshape(-1, n).sum(axis=1)

        def pairs_gradient(theta: Floats, group: Integers) -> tuple[Floats, Floats]:
            each = np.repeat(theta, n, axis=0)
            value, score = self._filter_with_score(each, asked(theta, group), shown)
            summed = score.reshape(-1, n, self.space.d).sum(axis=1)
            return value.reshape(-1, n).sum(axis=1), summed

        def surface(theta: Floats) -> Floats:
            m = len(theta)
            jobs = self._jobs(theta, np.arange(m + 1) * g * n, np.tile(np.arange(g * n), m))
            return self._filter(jobs, shown).reshape(m, g, n).sum(axis=2).T

        return Likelihood(
            self.space, g, n, pairs, pairs_gradient, surface, single, observed=observed
        )

    @cached_property
    def _law(self) -> Floats:
        """P(state at t_1), (2^K,)."""
        nodes = self.node_count
        state = (np.arange(2**nodes)[:, None] >> np.arange(nodes)) & 1
        return np.exp(self._log_initial(state))

    def _transitions(self, data: NDArray[Any], gradient: bool) -> ctmc.Transitions:
        """The T - 1 transitions of each row, sorted by source; symmetric ones are made equal."""
        self._require_memory(gradient)
        binary = as_binary(data)
        n, steps = len(binary), len(self.times) - 1
        gaps, gap = np.unique(np.diff(self.times), return_inverse=True)
        states = _states(binary)
        source, target = self._representatives(states[:, :-1], states[:, 1:])
        order = np.argsort(source, axis=1, kind="stable")
        source, target = (np.take_along_axis(a, order, axis=1) for a in (source, target))
        offsets = np.arange(n + 1) * steps
        ones = np.ones(n * steps)
        return ctmc.Transitions(
            offsets, source.ravel(), target.ravel(), gap[order].ravel(), ones, gaps
        )

    def _count(self, table: ctmc.Transitions, groups: int) -> _Counted:
        """The same transitions, equal ones counted: for each group, and all kinds there are."""
        size = 2**self.node_count
        key = (table.source * size + table.target) * len(table.gaps) + table.gap
        kinds, kind = np.unique(key, return_inverse=True)
        group = np.repeat(np.arange(groups), len(key) // groups)
        matrix = scipy.sparse.csr_matrix(
            (table.tally, (group, kind)), shape=(groups, len(kinds)), dtype=np.float64
        )
        matrix.sum_duplicates()
        states, gap = np.divmod(kinds, len(table.gaps))
        source, target = np.divmod(states, size)
        chosen, offsets = matrix.indices, matrix.indptr.astype(np.int64)
        return _Counted(
            ctmc.Transitions(
                offsets, source[chosen], target[chosen], gap[chosen], matrix.data, table.gaps
            ),
            ctmc.Transitions(
                np.array([0, len(kinds)]), source, target, gap, np.ones(len(kinds)), table.gaps
            ),
            matrix,
        )

    def _representatives(self, source: Integers, target: Integers) -> tuple[Integers, Integers]:
        """Move each transition by the automorphism that makes its source smallest: the same
        probability, and fewer different sources to propagate."""
        images = self._images
        best = images.argmin(axis=0)[source]
        return images[best, source], images[best, target]

    @cached_property
    def _images(self) -> Integers:
        """(automorphisms, 2^K): where each sends each state."""
        nodes = self.node_count
        most = max(1, 2**22 // 2**nodes)
        state = np.arange(2**nodes)
        return np.stack(
            [
                sum(((state >> int(perm[k])) & 1) << k for k in range(nodes))
                for perm in self._automorphisms[:most]
            ]
        )

    @cached_property
    def _automorphisms(self) -> Integers:
        return automorphisms(self.weights)

    @cached_property
    def _coupling(self) -> gillespie.Coupling:
        return gillespie.coupling(self.weights)

    @cached_property
    def _chain(self) -> uniformisation.Chain:
        nodes = self.node_count
        infected = ((np.arange(2**nodes)[:, None] >> np.arange(nodes)) & 1).astype(np.float64)
        susceptible = 1.0 - infected
        return uniformisation.chain(
            self.self_infection * susceptible, susceptible * (infected @ self.weights.T), infected
        )

    def _keeps_initial(self, perm: Integers) -> bool:
        if self.initial is None:
            return True
        if len(self.initial) == self.node_count:
            return bool(np.array_equal(self.initial[perm], self.initial))
        state = np.arange(len(self.initial))
        moved = sum(((state >> int(perm[k])) & 1) << k for k in range(self.node_count))
        return bool(np.allclose(self.initial[moved], self.initial, rtol=1e-12, atol=0.0))

    def _require_states(self) -> None:
        """Before any array of 2^K is made."""
        self._require_memory(False, LANE)

    def _require_memory(self, gradient: bool, width: int | None = None) -> None:
        """width: of the filter's columns; None: transitions between known states."""
        if width is None:
            needed = ctmc.memory_needed(self.node_count, gradient)
        else:
            times = len(self.times)
            needed = hidden_chain.memory_needed(self.node_count, times, gradient, width)
        limit = uniformisation.memory_limit()
        if needed > limit:
            raise TooLargeError(
                f"{self.node_count} nodes have 2^{self.node_count} states; the exact likelihood "
                f"would take {_gibibytes(needed)} and at most {_gibibytes(limit)} (half of this "
                "machine's memory) is used. Simulation works at any size: train on joint scores, "
                'SIS(..., score="joint").'
            )


class _Counted(NamedTuple):
    by_group: ctmc.Transitions
    kinds: ctmc.Transitions
    matrix: scipy.sparse.csr_matrix


def _gibibytes(size: int) -> str:
    return f"{size / 2**30:.3g} GiB"


def _require_possible(theta: Floats, value: Floats) -> None:
    """A score needs a probability that is not zero."""
    if not np.isfinite(value).all():
        i = int(np.argmin(np.isfinite(value)))
        raise NonFiniteError(
            f"Row {i} has probability zero at theta {theta[i]}, and so no score; "
            "`log_prob` is -inf there."
        )


def _states(binary: NDArray[Any]) -> Integers:
    """State numbers of (..., K) bits: bit k is node k."""
    return binary.astype(np.int64) @ (1 << np.arange(binary.shape[-1], dtype=np.int64))


def _graph(positions: ArrayLike | None, weights: GraphLike | None) -> tuple[Floats | None, Floats]:
    if weights is None:
        return distance_weights(PAPER_POSITIONS if positions is None else positions)
    if positions is not None:
        raise DomainError("Give positions or weights, not both.")
    return None, as_weights(weights)


def _self_infection(value: float) -> float:
    rate = as_number(value, "self_infection")
    if not (np.isfinite(rate) and rate >= 0):
        raise DomainError(f"self_infection must be a finite rate >= 0; got {value!r}.")
    return rate


def _times(times: ArrayLike) -> Floats:
    array = as_floats(times, "times").copy()
    if array.ndim != 1 or len(array) < 2:
        raise ShapeError(f"times must be one row of at least 2 times; got shape {array.shape}.")
    require_finite(array, "times")
    if not (np.diff(array) > 0).all():
        raise DomainError(f"times must be strictly increasing; got {array.tolist()}.")
    return array


def _initial(initial: ArrayLike | None, nodes: int) -> Floats | None:
    if initial is None:
        return None
    array = as_floats(initial, "initial").copy()
    if array.ndim == 0:
        array = np.full(nodes, float(array))
    if array.shape != (nodes,) and array.shape != (2**nodes,):
        raise ShapeError(
            f"initial must be one probability, or have shape ({nodes},), one for each node, or "
            f"(2^{nodes},), a distribution over all states; got {array.shape}."
        )
    require_finite(array, "initial")
    if (array < 0).any() or (array > 1).any():
        raise DomainError("initial must hold probabilities between 0 and 1.")
    if array.shape == (2**nodes,) and not np.isclose(array.sum(), 1.0, rtol=0.0, atol=1e-8):
        raise DomainError(f"initial over all states must sum to 1; got {array.sum():.9g}.")
    return array


def _space(
    space: Space | Mapping[str, Any] | None,
    self_infection: float,
    errors: tuple[float | None, ...],
) -> Space:
    if space is None:
        parameters = [
            Parameter(name, -1.0, 1.0, "log", train_margin=0.2, test_margin=0.4)
            for name in ("lambda", "mu")
        ]
        named = zip(ERRORS, errors, strict=True)
        known = {name: value for name, value in named if value not in (None, 1.0)}
        return Space(parameters, {"eta": self_infection, **known})
    result = Space.from_dict(space) if isinstance(space, Mapping) else space
    if not isinstance(result, Space):
        raise DtypeError(f"space must be a keepscore.Space; got {type(result).__name__}.")
    if result.names[:2] != ("lambda", "mu") or not set(result.names[2:]) <= set(ERRORS):
        raise DomainError(
            "The space of SIS has the parameters lambda and mu, and after them sensitivity and "
            f"specificity if they are not known; got {', '.join(result.names)}."
        )
    if result.fixed.get("eta", self_infection) != self_infection:
        raise DomainError(
            f"The space fixes eta at {result.fixed['eta']}, but self_infection is {self_infection}."
        )
    return result


def _cycles(perm: Integers) -> str:
    """A permutation of the nodes in words: "nodes (0 3)(4 7)"."""
    seen: set[int] = set()
    cycles = []
    for start in range(len(perm)):
        cycle, node = [], start
        while node not in seen:
            seen.add(node)
            cycle.append(str(node))
            node = int(perm[node])
        if len(cycle) > 1:
            cycles.append(f"({' '.join(cycle)})")
    return f"nodes {''.join(cycles)}" if cycles else "identity"


register(SIS.name, SIS)
