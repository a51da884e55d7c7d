"""Do simulator, likelihood and score agree? The laws every model must obey.

With s = grad log p(x | theta) and x ~ p(. | theta):

    score       s equals central differences of log_prob (and autodiff, where JAX can trace it)
    mean        E[s] = 0
    ratio       E[p'/(p + p') under theta] = E[p/(p + p') under theta'],  p' = p(x | theta')
    information Cov[s] + E[Hessian] = 0
    joint       E[joint score - s] = 0 and E[(joint score - s) s'] = 0
    symmetry    p(S x | T theta) = p(x | theta) for each declared map
    structure   what a model declares about itself ("markov", "gaussian-field" ...) holds

The law of ratios is that of E[p'/p] = 1 without its faults: its terms lie in [0, 1], so one sharp
likelihood cannot make a mean explode, and it holds too where p' is zero at an x that p can give.
The other laws about the score differentiate under an integral; they hold only if the support of x
does not move with theta. Where it is seen to move they are not checked, and the table says so.

The first compares numbers and has a tolerance. `mean`, `ratio`, `information` and `joint` are
tests on simulated data: each statistic is a mean that is zero if the law holds, studentised,
corrected for skewness (Hall 1992), and compared with the normal quantile at a false-alarm rate of
1e-6 shared evenly among all statistics of the run. With n draws, a bias of 7 / sqrt(n) standard
deviations of the summand is found nine times in ten (0.22 for n = 1000).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtri

from keepscore.budget import Say, affordable, as_minutes, seconds_of, voice
from keepscore.checks import Floats, require_count, require_parts
from keepscore.errors import KeepscoreError, MissingError
from keepscore.models.base import Model, Symmetry, declares_missing
from keepscore.models.from_functions import (
    AutodiffScore,
    FunctionModel,
    central_differences,
    is_traceable,
)

FALSE_ALARM = 1e-6
FEWEST_DRAWS = 50
BY_DIFFERENCES, BY_AUTODIFF = "score = central differences", "score = autodiff"
MEAN, INFORMATION = "E[score] = 0", "Cov[score] = -E[Hessian]"
RATIO = "E0[p1/(p0+p1)] = E1[p0/(p0+p1)]"
MOVING = "the support of x moves with theta, where this law need not hold"
JOINT_MEAN, JOINT = "E[joint score] = 0", "E[joint score | x] = score"
Verdict = Literal["holds", "BROKEN", "not checked"]


@dataclass(frozen=True)
class Finding:
    """One law at work: its statistic, the threshold it must stay below, and the verdict."""

    law: str
    statistic: float
    threshold: float
    verdict: Verdict
    detail: str = ""


@dataclass(frozen=True)
class LawReport:
    """All findings for one model, made by `ks.check_model`; printing it gives a table.

    Args:
        model: Its name.
        findings: One per law: what was measured, the threshold and the verdict.

    Example:
        >>> import keepscore as ks
        >>> report = ks.check_model(ks.models.GaussianField(shape=(3, 3)), draws=50, show=False)
        >>> report.broken, len(report.held), len(report.not_checked)
        ((), 7, 1)
    """

    model: str
    findings: tuple[Finding, ...]

    @property
    def passed(self) -> bool:
        """No law that was checked is broken; `not_checked` names those that were not."""
        return not self.broken

    @property
    def broken(self) -> tuple[str, ...]:
        """Names of the laws that do not hold."""
        return self._with("BROKEN")

    @property
    def held(self) -> tuple[str, ...]:
        """Names of those that were checked and hold."""
        return self._with("holds")

    @property
    def not_checked(self) -> tuple[str, ...]:
        """Names of those that need something the model does not have."""
        return self._with("not checked")

    @property
    def summary(self) -> str:
        """What was found, in one line: never more than what was checked."""
        total, open_ = len(self.findings), self.not_checked
        checked = f"{total - len(open_)} of {total} laws checked"
        if self.broken:
            found = f"BROKEN: {', '.join(self.broken)}; {checked}"
        else:
            found = f"no law broken, {checked}" if open_ else f"all {total} laws hold"
        return f"{found}; not checked: {', '.join(open_)}" if open_ else found

    def _with(self, verdict: Verdict) -> tuple[str, ...]:
        return tuple(f.law for f in self.findings if f.verdict == verdict)

    def to_dict(self) -> dict[str, Any]:
        rows = [
            {k: _plain(v) for k, v in vars(finding).items()}  # NaN and infinity are not JSON
            for finding in self.findings
        ]
        return {
            "model": self.model,
            "passed": self.passed,
            "summary": self.summary,
            "broken": list(self.broken),
            "not_checked": list(self.not_checked),
            "laws": rows,
        }

    def __str__(self) -> str:
        width = max(len(f.law) for f in self.findings)
        lines = [f"{'law':{width}}  {'statistic':>10}  {'threshold':>10}  verdict"]
        for f in self.findings:
            numbers = (
                f"{'':>10}  {'':>10}"
                if f.verdict == "not checked"
                else f"{f.statistic:10.3g}  {f.threshold:10.3g}"
            )
            detail = f"  ({f.detail})" if f.detail else ""
            lines.append(f"{f.law:{width}}  {numbers}  {f.verdict}{detail}")
        return "\n".join([f"Model {self.model}: {self.summary}", *lines])


def _plain(value: str | float) -> str | float | None:
    return None if isinstance(value, float) and not np.isfinite(value) else value


def check_model(
    model: Model,
    draws: int = 1000,
    seed: int = 0,
    show: bool = True,
    minutes: float | None = None,
    progress: Say | bool | None = None,
) -> LawReport:
    """Check that simulator, likelihood and score agree, and print a table of laws.

    Args:
        model: The model.
        draws: Simulations at each of three parameter values inside the space; 50 or more.
        seed: Root of all randomness.
        show: Whether to print the table.
        minutes: Time for the laws that rest on draws, by far the most of it: where `draws` do not
            fit, there are fewer, and a warning says so.
        progress: Told each stage in words; True for standard error, the default on a terminal.

    Returns:
        The findings. `passed`: no law that was checked is broken. `not_checked`: the laws that need
        a likelihood, or something else that this model does not have.

    Raises:
        DtypeError: `model` is no model.
        DomainError: Too few draws.

    Example:
        >>> import keepscore as ks
        >>> report = ks.check_model(ks.models.GaussianField(shape=(3, 3)), draws=50, show=False)
        >>> report.passed, report.broken, report.not_checked
        (True, (), ('score = autodiff',))
    """
    require_parts(model, "model", "name", "space", "simulate", "log_prob", "score_kind")
    draws = require_count(draws, "draws", minimum=FEWEST_DRAWS)
    seed = require_count(seed, "seed", minimum=0)
    minutes, say = as_minutes(minutes), voice(progress, "check_model")
    rng = np.random.default_rng(seed)
    theta = _spread_points(model, rng)
    say("shapes and types")
    findings: list[Finding] = [_rows(model, theta, seed)]
    say("score against differences")
    findings += _guarded(BY_DIFFERENCES, _score_against_differences, model, theta, rng)
    findings += _guarded(BY_AUTODIFF, _score_against_autodiff, model, theta, rng)
    if minutes is not None:
        apart = np.random.default_rng([seed, 1])
        cost = seconds_of(lambda: list(_zero_means(model, theta[0], FEWEST_DRAWS, apart)))
        each = len(theta) * cost / FEWEST_DRAWS
        draws = affordable(minutes, each, draws, FEWEST_DRAWS, "draws", "check_model")
    tests = []
    for k, point in enumerate(theta):
        say(f"laws by {draws:,} simulations, parameter value {k + 1} of {len(theta)}")
        tests += list(_zero_means(model, point, draws, rng))
    findings += _judge(tests, _expected_laws(model))
    say("symmetries and structure")
    findings += _guarded("symmetries", _symmetries, model, theta, rng)
    findings += _guarded("structure", _structure, model, theta, rng)
    report = LawReport(model.name, tuple(findings))
    if show:
        print(report)
    return report


# --- shapes, dtypes, determinism ---------------------------------------------------------------


def _rows(model: Model, theta: Floats, seed: int) -> Finding:
    """Shapes and dtypes as promised; same seed, same data; each row depends on itself only."""
    faults = []
    x = model.simulate(theta, np.random.default_rng(seed))
    again = model.simulate(theta, np.random.default_rng(seed))
    if x.shape != (len(theta), *model.x_shape):
        faults.append(f"simulate gave shape {x.shape}")
    if x.dtype != model.x_dtype:
        faults.append(f"simulate gave dtype {x.dtype}, x_dtype is {model.x_dtype}")
    if not np.array_equal(x, again, equal_nan=declares_missing(model)):
        faults.append("the same seed gave other data")
    if not faults and _has_likelihood(model, theta, x):
        value, score = model.log_prob_and_score(theta, x)
        fewer = slice(None, 0, -1)  # backwards and without the first row
        if value.shape != (len(theta),) or score.shape != theta.shape:
            faults.append(f"log_prob, score gave shapes {value.shape}, {score.shape}")
        elif value.dtype != np.float64 or score.dtype != np.float64:
            faults.append(f"log_prob, score gave dtypes {value.dtype}, {score.dtype}")
        elif not np.isfinite(value).all():
            faults.append("log_prob of simulated data is not finite")
        elif not np.allclose(model.log_prob(theta[fewer], x[fewer]), value[fewer], rtol=1e-10):
            faults.append("log_prob of a row depends on other rows")
        if model.log_prob(theta[:0], x[:0]).shape != (0,):
            faults.append("an empty batch does not give an empty result")
    verdict: Verdict = "BROKEN" if faults else "holds"
    return Finding("shapes and determinism", len(faults), 0.5, verdict, "; ".join(faults))


def _has_likelihood(model: Model, theta: Floats, x: NDArray[Any]) -> bool:
    try:
        model.log_prob_and_score(theta[:1], x[:1])
    except (MissingError, MemoryError):
        return False
    return True


# --- the score against other ways to get it ----------------------------------------------------


def _score_against_differences(
    model: Model, theta: Floats, rng: np.random.Generator
) -> Iterator[Finding]:
    rows = np.repeat(theta, 8, axis=0)
    x = model.simulate(rows, rng)
    score = model.score(rows, x)
    expected, error = central_differences(model.log_prob, model.space, rows, x)
    # No step, however short, stays in the support of an x on its very edge.
    edge = ~np.isfinite(error).all(axis=1)
    if edge.all():
        detail = "log_prob has no finite differences"
        verdict: Verdict = "not checked" if np.isfinite(score).all() else "BROKEN"
        yield Finding(BY_DIFFERENCES, np.inf, 1e-5, verdict, detail)
        return
    finding = _compare(BY_DIFFERENCES, score[~edge], expected[~edge], 1e-5, slack=10 * error[~edge])
    if edge.any():
        finding = replace(finding, detail=f"{edge.sum()} pairs at the edge of the support left out")
    yield finding


def _score_against_autodiff(
    model: Model, theta: Floats, rng: np.random.Generator
) -> Iterator[Finding]:
    law = BY_AUTODIFF
    function = model.log_prob_function if isinstance(model, FunctionModel) else None
    if function is None or not is_traceable(function, model.space.d, model.x_shape, model.x_dtype):
        yield Finding(law, np.nan, np.nan, "not checked", "log_prob is not written in JAX")
        return
    rows = np.repeat(theta, 8, axis=0)
    x = model.simulate(rows, rng)
    yield _compare(law, model.score(rows, x), AutodiffScore(function)(rows, x), 1e-8)


def _compare(
    law: str, got: Floats, expected: Floats, tolerance: float, slack: Floats | float = 0.0
) -> Finding:
    """Largest deviation in units of the typical size of each component, beyond `slack`."""
    scale = np.sqrt(np.mean(expected**2, axis=0)) + 1e-12
    excess = np.maximum(np.abs(got - expected) - slack, 0) / scale
    worst = float(np.max(excess)) if np.isfinite(excess).all() else np.inf
    verdict: Verdict = "holds" if worst <= tolerance else "BROKEN"
    return Finding(law, worst, tolerance, verdict)


# --- laws about expectations -------------------------------------------------------------------


@dataclass(frozen=True)
class _ZeroMean:
    """Draws whose expectation is zero if the law holds."""

    law: str
    what: str
    draws: Floats
    support_moves: bool = False  # seen on the way


def _zero_means(
    model: Model, point: Floats, draws: int, rng: np.random.Generator
) -> list[_ZeroMean]:
    rows = np.tile(point, (draws, 1))
    names = model.space.working_names
    joint: Floats | None = None
    if model.score_kind == "joint":
        x, joint = model.simulate_with_score(rows, rng)
    else:
        x = model.simulate(rows, rng)
    tests: list[_ZeroMean] = []
    if joint is not None:
        tests += [_ZeroMean(JOINT_MEAN, n, c) for n, c in zip(names, joint.T, strict=True)]
    if not _has_likelihood(model, rows, x):
        return tests
    value, score = model.log_prob_and_score(rows, x)
    tests += [_ZeroMean(MEAN, n, c) for n, c in zip(names, score.T, strict=True)]
    tests += _ratio_tests(model, rows, x, value, score, rng)
    tests += _information_tests(model, rows[: draws // 2], x[: draws // 2], score[: draws // 2])
    if joint is not None:
        gap = joint - score
        for k, name in enumerate(names):
            tests.append(_ZeroMean(JOINT, name, gap[:, k]))
            tests += [
                _ZeroMean(JOINT, f"{name} by {other}", gap[:, k] * column)
                for other, column in zip(names, score.T, strict=True)
            ]
    return tests


def _ratio_tests(
    model: Model,
    rows: Floats,
    x: NDArray[Any],
    value: Floats,
    score: Floats,
    rng: np.random.Generator,
) -> list[_ZeroMean]:
    """theta' lies where the log-ratio has a standard deviation near one half: far enough to see
    something, near enough that both likelihoods are alive at most x."""
    tests = []
    low, high = model.space.box("train")
    for k, name in enumerate(model.space.working_names):
        step = min(0.5 / (np.std(score[:, k]) + 1e-12), 0.25 * (high[k] - low[k]))
        other = rows.copy()
        other[:, k] += step if k % 2 == 0 else -step
        there = model.simulate(other, rng)
        here = model.log_prob(other, x) - value
        back = model.log_prob(rows, there) - model.log_prob(other, there)
        moves = bool(np.isneginf(here).any() or np.isneginf(back).any())
        # Independent draws on both sides: their differences, pair by pair, have mean zero.
        tests.append(_ZeroMean(RATIO, name, expit(here) - expit(back), moves))
    return tests


def _information_tests(
    model: Model, rows: Floats, x: NDArray[Any], score: Floats
) -> list[_ZeroMean]:
    """s s' + Hessian has mean zero; the Hessian is a central difference of the score."""
    low, high = model.space.box("base")
    tests = []
    for k, name in enumerate(model.space.working_names):
        step = np.zeros(model.space.d)
        # Short beside the box, and beside how far the likelihood stays the same.
        step[k] = min(1e-4 * (high[k] - low[k]), 1e-2 / (float(np.std(score[:, k])) + 1e-12))
        rise = model.score(rows + step, x) - model.score(rows - step, x)
        hessian = rise / (2 * step[k])
        for j in range(k, model.space.d):
            what = f"{name}, {model.space.working_names[j]}"
            product = score[:, k] * score[:, j] + hessian[:, j]
            tests.append(_ZeroMean(INFORMATION, what, product))
    return tests


def studentised(draws: Floats) -> float:
    """Mean over its standard error, corrected for skewness: normal to second order (Hall 1992)."""
    n, spread = len(draws), float(np.std(draws, ddof=1))
    if not np.isfinite(draws).all():
        return np.inf
    if spread <= 1e-12 * (1 + abs(float(np.mean(draws)))):
        return 0.0 if abs(float(np.mean(draws))) <= 1e-9 else np.inf
    t = float(np.mean(draws)) / spread
    skewness = float(np.mean((draws - np.mean(draws)) ** 3)) / spread**3
    corrected = t + skewness * t**2 / 3 + skewness**2 * t**3 / 27 + skewness / (6 * n)
    return float(np.sqrt(n) * corrected)


def _expected_laws(model: Model) -> tuple[str, ...]:
    """The laws about expectations that a model of this kind can be held to."""
    joint = (JOINT_MEAN, JOINT) if model.score_kind == "joint" else ()
    return MEAN, RATIO, INFORMATION, *joint


def _judge(tests: list[_ZeroMean], expected: tuple[str, ...]) -> list[Finding]:
    """One finding per law: its most extreme statistic against the shared threshold."""
    threshold = float(-ndtri(FALSE_ALARM / (2 * max(len(tests), 1))))
    moves = any(t.support_moves for t in tests)
    findings = []
    for law in dict.fromkeys([*(t.law for t in tests), *expected]):
        if moves and law in (MEAN, INFORMATION):
            findings.append(Finding(law, np.nan, np.nan, "not checked", MOVING))
            continue
        found = [(abs(studentised(t.draws)), t.what) for t in tests if t.law == law]
        if not found:
            detail = "no likelihood to test"
            findings.append(Finding(law, np.nan, np.nan, "not checked", detail))
            continue
        size, what = max(found, key=lambda pair: pair[0])
        verdict: Verdict = "holds" if size <= threshold else "BROKEN"
        findings.append(Finding(law, size, threshold, verdict, f"worst: {what}"))
    return findings


# --- what a model declares about itself --------------------------------------------------------


def _symmetries(model: Model, theta: Floats, rng: np.random.Generator) -> Iterator[Finding]:
    """One row for all maps that hold, and one for each that does not."""
    if not model.symmetries:
        return
    x = model.simulate(theta, rng)
    value, score = model.log_prob_and_score(theta, x)
    gaps = {}
    for symmetry in model.symmetries:
        there = model.log_prob_and_score(symmetry.of_theta(theta), symmetry.of_x(x))
        of_value = np.abs(there[0] - value) / (1 + np.abs(value))
        of_score = np.abs(there[1] - symmetry.of_theta(score)) / (1 + np.abs(score).max())
        gaps[symmetry.name] = float(max(of_value.max(), of_score.max()))
        if not _keeps_the_box(model, symmetry):
            gaps[symmetry.name] = np.inf
    holding = [gap for gap in gaps.values() if gap <= 1e-8]
    if holding:
        detail = f"{len(holding)} declared map(s)"
        yield Finding("symmetries", max(holding), 1e-8, "holds", detail)
    for name, gap in gaps.items():
        if not gap <= 1e-8:
            detail = "" if np.isfinite(gap) else "not finite, or the space is not mapped to itself"
            yield Finding(f"symmetry: {name}", gap, 1e-8, "BROKEN", detail)


def _keeps_the_box(model: Model, symmetry: Symmetry) -> bool:
    """T must map the space to itself: training applies it to every theta."""
    low, high = (symmetry.of_theta(bound[None])[0] for bound in model.space.box("train"))
    box = np.stack(model.space.box("train"))
    return np.allclose(np.sort([low, high], axis=0), box, rtol=1e-9, atol=1e-12)


def _structure(model: Model, theta: Floats, rng: np.random.Generator) -> Iterator[Finding]:
    if model.structure is None:
        return
    checks: dict[str, Callable[[Model, Floats, np.random.Generator], float]] = {
        "markov": _markov_gap,
        "timed-markov": _timed_markov_gap,
        "gaussian-field": _quadratic_gap,
        "stationary-field": _elliptical_gap,
        "field": lambda model, *_: 0.0 if len(model.x_shape) == 2 else np.inf,
        "iid": _iid_gap,
        "events": _events_gap,
        "gaussian-sites": _sites_gap,
        "markov-graphs": _graphs_gap,
    }
    law = f"structure: {model.structure}"
    if model.structure == "series" and model.x_shape:
        yield Finding(law, np.nan, np.nan, "not checked", "any rows in time order are a series")
        return
    if model.structure not in checks:
        detail = f"unknown structure; known: {', '.join(checks)}"
        yield Finding(law, np.inf, 1e-6, "BROKEN", detail)
        return
    # What is said of complete data is checked on complete data, by the likelihood of this model.
    gap = checks[model.structure](model, theta, rng)
    yield Finding(law, gap, 1e-6, "holds" if gap <= 1e-6 else "BROKEN")


def _markov_gap(model: Model, theta: Floats, rng: np.random.Generator) -> float:
    """Paths A A B A ... and A B A A ... have the same start and the same transitions, so a
    time-homogeneous chain gives both the same probability, wherever the detour comes."""
    length = model.x_shape[0]
    if length < 4:
        return 0.0
    x = _complete(model).simulate(theta, rng)
    start, detour = x[:, 0], x[:, length // 2]
    values = []
    for position in range(1, length - 1):
        path = np.repeat(start[:, None], length, axis=1)
        path[:, position] = detour
        values.append(model.log_prob(theta, path))
    spread = np.ptp(np.stack(values), axis=0) / (1 + np.abs(values[0]))
    return float(np.max(spread))


def _timed_markov_gap(model: Model, theta: Floats, rng: np.random.Generator) -> float:
    """The steps (A to A in a time a), (A to B in b), (B to A in c) may come in any order that makes
    a path, at any time of day: a homogeneous chain gives all of them the same probability."""
    length = model.x_shape[0] if len(model.x_shape) == 2 else 0
    if length < 4 or model.x_shape[1] < 2:
        return 0.0 if length > 1 and model.x_shape[1] > 1 else np.inf
    x = np.asarray(model.simulate(theta, rng), dtype=np.float64)
    there = ~np.asarray(np.isnan(x).any(axis=2))
    start, detour = (x[np.arange(len(x)), i, 1:] for i in _first_and_last(there))
    gaps = rng.uniform(0.5, 1.5, length - 1) * np.nanmean(np.diff(np.sort(x[:, :, 0])))
    values = []
    for position in range(1, length - 1):
        path = np.empty_like(x)
        path[:, :, 1:] = start[:, None]
        path[:, position, 1:] = detour
        # The two steps of the detour keep their own times, wherever it comes.
        order = [*range(2, length - 1)]
        steps = gaps[[*order[: position - 1], 0, 1, *order[position - 1 :]]]
        path[:, :, 0] = 10.0 * position + np.concatenate([[0.0], np.cumsum(steps)])
        values.append(model.log_prob(theta, path))
    return float(np.max(np.ptp(np.stack(values), axis=0) / (1 + np.abs(values[0]))))


def _first_and_last(there: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Of each row, the first and the last place that is there."""
    return there.argmax(axis=1), there.shape[1] - 1 - there[:, ::-1].argmax(axis=1)


def _iid_gap(model: Model, theta: Floats, rng: np.random.Generator) -> float:
    """log p is a sum over rows of x with the same term for each: shuffling rows changes nothing,
    and exchanging one row between two data sets of one theta leaves the sum of both."""
    if not model.x_shape or model.x_shape[0] < 2:
        return np.inf
    x, y = _complete(model).simulate(theta, rng), _complete(model).simulate(theta, rng)
    here, there = model.log_prob(theta, x), model.log_prob(theta, y)
    scale = 1 + np.abs(here) + np.abs(there)
    gaps = [model.log_prob(theta, x[:, rng.permutation(x.shape[1])]) - here]
    for row in range(x.shape[1]):
        other, another = x.copy(), y.copy()
        other[:, row], another[:, row] = y[:, row], x[:, row]
        both = model.log_prob(theta, other) + model.log_prob(theta, another)
        gaps.append(both - here - there)
    return float(np.max(np.abs(gaps) / scale))


def _events_gap(model: Model, theta: Floats, rng: np.random.Generator) -> float:
    """Times come in order, from 0 on, and nothing but NaN comes after the last one: 0, or else the
    share of simulations where that is not so."""
    if len(model.x_shape) != 1:
        return np.inf
    x = np.asarray(model.simulate(np.repeat(theta, 20, axis=0), rng), dtype=np.float64)
    there = ~np.isnan(x)
    times = np.where(there, x, np.inf)
    since = np.concatenate([np.zeros((len(x), 1)), times[:, :-1]], axis=1)
    return float(np.mean((times < since).any(axis=1)))


def _graphs_gap(model: Model, theta: Floats, rng: np.random.Generator) -> float:
    """Who is who tells nothing of theta: other numbers for the people change log p by the same
    amount at every theta. And the states are a Markov chain, wherever a detour comes."""
    people = model.x_shape[1] if len(model.x_shape) == 2 else 0
    length = model.x_shape[0] - people
    if people < 1 or length < 2:
        return np.inf
    x = np.asarray(model.simulate(theta, rng), dtype=np.float64)
    renamed, other = x.copy(), theta[::-1]
    for one in renamed:
        order = rng.permutation(people)
        one[:length] = one[:length, order]
        one[length:] = one[length:][order][:, order]
    values = [model.log_prob(theta, y) - model.log_prob(other, y) for y in (x, renamed)]
    gaps = [np.abs(values[1] - values[0]) / (1 + np.abs(values[0]))]
    paths = []
    for position in range(1, length - 1):
        path = x.copy()
        path[:, :length] = x[:, :1]
        path[:, position] = x[:, length // 2]
        paths.append(model.log_prob(theta, path))
    if paths:
        gaps.append(np.ptp(np.stack(paths), axis=0) / (1 + np.abs(paths[0])))
    return float(np.max(gaps))


def _sites_gap(model: Model, theta: Floats, rng: np.random.Generator) -> float:
    """Rows may come in any order and sites may all be moved alike; and log p(y) - log p(0) is a
    quadratic form q of the values: q(2 y) = 4 q(y)."""
    if len(model.x_shape) != 2 or model.x_shape[1] != 3:
        return np.inf
    x = np.asarray(model.simulate(theta, rng), dtype=np.float64)
    value = model.log_prob(theta, x)
    scaled = [x * np.array([1.0, 1.0, c]) for c in (0.0, 2.0)]
    zero, twice = (model.log_prob(theta, one) for one in scaled)
    gaps = [
        model.log_prob(theta, x[:, rng.permutation(x.shape[1])]) - value,
        model.log_prob(theta, x + np.array([1.5, -0.7, 0.0])) - value,
        (twice - zero) - 4 * (value - zero),
    ]
    return float(np.max(np.abs(gaps) / (1 + np.abs(value) + np.abs(twice))))


def _quadratic_gap(model: Model, theta: Floats, rng: np.random.Generator) -> float:
    """log p(x) - log p(0) is a quadratic form q, the same for x and its mirror images: q(2 x) is
    4 q(x), and q(x+y) + q(x-y) = 2 q(x) + 2 q(y)."""
    x, y = _complete(model).simulate(theta, rng), _complete(model).simulate(theta, rng)
    zero = model.log_prob(theta, np.zeros_like(x))

    def q(field: NDArray[Any]) -> Floats:
        return model.log_prob(theta, field) - zero

    here, there = q(x), q(y)
    pairs = [(q(2 * x), 4 * here), (q(x + y) + q(x - y), 2 * here + 2 * there)]
    pairs += [(q(np.flip(x, axes)), here) for axes in ((1,), (2,))]
    return max(float(np.max(np.abs(a - b) / (1 + np.abs(b)))) for a, b in pairs)


def _elliptical_gap(model: Model, theta: Floats, rng: np.random.Generator) -> float:
    """log p is a decreasing function of a quadratic form q, the same for x and its mirror images;
    q is recovered by scaling a reference field until it is as likely, and must obey the
    parallelogram law q(x+y) + q(x-y) = 2 q(x) + 2 q(y)."""
    from scipy import optimize  # slow to import, and every worker process imports this module

    worst = 0.0
    for point in theta:
        row = point[None]
        reference, x, y = _complete(model).simulate(np.repeat(row, 3, axis=0), rng)

        def log_prob(field: NDArray[Any], row: Floats = row) -> float:
            return float(model.log_prob(row, field[None])[0])

        def q(field: NDArray[Any], reference: NDArray[Any] = reference) -> float:
            target = log_prob(field)
            scale = optimize.brentq(
                lambda c: log_prob(np.exp(c) * reference) - target, -12, 12, xtol=1e-13
            )
            return float(np.exp(2 * scale))

        left, right = q(x + y) + q(x - y), 2 * q(x) + 2 * q(y)
        mirrored = max(abs(log_prob(np.flip(x, a)) - log_prob(x)) for a in range(x.ndim))
        worst = max(worst, abs(left - right) / right, mirrored / (1 + abs(log_prob(x))))
    return worst


def _complete(model: Model) -> Model:
    """The model of complete data behind one with holes, or the model itself."""
    return getattr(model, "base", model) if declares_missing(model) else model


def _guarded(
    name: str,
    law: Callable[[Model, Floats, np.random.Generator], Iterator[Finding]],
    model: Model,
    theta: Floats,
    rng: np.random.Generator,
) -> list[Finding]:
    """A law that needs a likelihood the model does not have is said to be unchecked; any other
    error inside a law is a broken law, not a crash."""
    try:
        return list(law(model, theta, rng))
    except (MissingError, MemoryError) as error:
        return [Finding(name, np.nan, np.nan, "not checked", str(error))]
    except (KeepscoreError, ValueError) as error:
        return [Finding(name, np.inf, 0.0, "BROKEN", str(error))]


def _spread_points(model: Model, rng: np.random.Generator) -> Floats:
    """Three well-separated points inside the test region, no two coordinates alike, and none in
    the very middle, where a model may have a singular point (a standard deviation theta^2)."""
    low, high = model.space.box("test")
    d = model.space.d
    levels = (np.arange(3)[:, None] + np.linspace(0.1, 0.72, d)[None, :]) / 3
    columns = [rng.permutation(levels[:, k]) for k in range(d)]
    return low + (high - low) * np.stack(columns, axis=1)
