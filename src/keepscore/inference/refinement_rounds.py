"""The rounds of refining: many groups on their way to a stated error, in step with each other.

Round by round, for every group that is still open,

    1  the refined likelihood is maximised anew; a cloud of points around it, those inside its set
       at `level`, is where the answer is used,
    2  exact values are asked for where the interpolation is least sure,
    3  before they are used they test it: z = (D - predicted) / predicted standard deviation,
    4  all that is known is interpolated again, in the metric of the region as it is now.

The estimated error is the root mean square, over the cloud, of the predicted standard deviation,
times an upper bound, sure to 97.5%, of the root mean square of z (never less than one): few tests
that went well prove little. No error is claimed below a tenth of the tolerance, nor below .3 of
what the newest tests were off by, though these are interpolated now. A group is done
when that is below the tolerance, two rounds of new points have confirmed it and the region has not
moved since, or when its evaluations are spent: then the interpolation with the smallest error of
all rounds is its answer, once its maximum has been looked at (up to three evaluations more). Errors
of earlier rounds are no smaller than what exact values that came later have shown them to be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from keepscore.checks import Floats
from keepscore.errors import NonFiniteError
from keepscore.inference.correction import Correction, corrected
from keepscore.inference.exact_work import ExactWork
from keepscore.inference.maximise import climb_again, maximise, maximum_of
from keepscore.inference.placement import cloud_of, lattice_steps, least_sure, on_lattice, spread
from keepscore.inference.refinement import Refinement
from keepscore.inference.region import Ellipsoid, along_axes, around, walk
from keepscore.inference.statistic import drop
from keepscore.likelihood import Integers, Likelihood, Maximum
from keepscore.numerics import kriging
from keepscore.numerics.kriging import Kriging
from keepscore.numerics.space_filling import fill_ball
from keepscore.space import Region

CLOUD = 192  # candidates per group and round
REACH = 1.25  # of the radius of the set at `level`, for sets that are not quite ellipsoids
ROUNDS = 6
MISSED = 0.05  # of the set that may lie outside the region it was looked for in
PARTICLES = 64  # of the cloud: places all over the set, whatever its shape
FIRST_STEPS, STEPS = 5, 3  # that particles walk, at first and in each round
WIDER = 1.4  # than the region: where some of them begin
OFF_LATTICE, OUTSIDE = 1e-3, 1e-6  # how much such candidates are wanted
FARTHEST = 2.0  # radii of the region: points beyond say nothing of it
FEWEST_POINTS = 2  # times d + 1, that are used wherever they lie
CONFIRMED = 3  # exact points that must have tested the interpolation before a group is done
TWICE = 2  # rounds of tests: what the first one taught must have been tested too
FORESEEN = 3.0  # times the stated error: a maximum that is off by less is one
CHECKS = 3  # of the maximum of a group that is not within the tolerance
LEAST_GAIN = 0.3  # of what the newest tests were off by: they are known now, but are few
LEAST_CLAIM = 0.1  # of the tolerance: a few tests cannot show that an error is smaller
SURE = 0.975  # that errors are not larger than tests so far say
PRIOR_TESTS = 2.0  # z = 1 counted as often in the mean of z^2


@dataclass(frozen=True)
class Goal:
    """What was asked for."""

    evaluations: int
    tolerance: float
    level: float
    region: Region
    seed: int


class Rounds:
    """Groups on their way. Those still open all have the same number of points."""

    def __init__(self, like: Likelihood, work: ExactWork, number: Integers, goal: Goal) -> None:
        # number (g,): of these groups in the exact likelihood.
        self.like, self.work, self.number, self.goal = like, work, number, goal
        self.low, self.high = like.space.box(goal.region)
        self.top = maximum_of(like, goal.region)
        g, d = self.top.theta.shape
        most = goal.evaluations + CHECKS
        self.cut = float(stats.chi2.ppf(goal.level, d))
        self.radius = REACH * float(np.sqrt(self.cut))
        self.peak = self.top.theta.copy()
        self.unit = fill_ball(CLOUD, d, goal.seed)
        self.unit[0] = 0.0  # the maximum itself
        self.rng = np.random.default_rng([goal.seed, 0x9A27])
        self.particles = np.repeat(self.peak[:, None], PARTICLES, axis=1)
        region = self.first_region()
        # The region moves with what is learned; the chart of an interpolant is that of its fit.
        self.origin, self.a = region.centre.copy(), region.factor.copy()
        self.centre, self.factor = region.centre.copy(), region.factor.copy()
        self.steps = lattice_steps(
            self.a @ np.swapaxes(self.a, 1, 2), self.radius, goal.evaluations
        )
        # How much a candidate is wanted: points off the shared lattice only where it has no more.
        self.wanted = np.ones(CLOUD) if g == 1 else np.repeat([OFF_LATTICE, 1.0], CLOUD)
        # Points, exact minus surrogate with its gradient in theta, and exact values; then counts.
        self.theta, self.slope = np.zeros((g, most, d)), np.zeros((g, most, d))
        self.value, self.exact_value = np.zeros((g, most)), np.zeros((g, most))
        self.count = np.zeros(g, dtype=np.int64)
        self.tests, self.squares = np.zeros(g), np.zeros(g)
        self.tested = np.zeros(g, dtype=np.int64)  # rounds
        self.off = np.zeros(g)  # root mean square of D - predicted in the newest of these
        self.error, self.reached = np.full(g, np.inf), np.zeros(g, dtype=bool)
        self.before = np.zeros(g)
        self.so_far: Correction | None = None
        terms = len(kriging.all_powers(d))
        self.kriging = Kriging(
            np.zeros((g, most, d)),
            np.zeros((g, most, 1 + d)),
            np.zeros((g, terms)),
            kriging.all_powers(d),
            np.ones(g),
            np.zeros(g),
        )

    def run(self) -> Correction:
        d, goal = self.origin.shape[1], self.goal
        tests = TWICE * CONFIRMED
        first = max(min(goal.evaluations - tests, 3 * d), min(goal.evaluations - CONFIRMED, d + 1))
        step = max(CONFIRMED, -(-(goal.evaluations - first) // ROUNDS))
        rows = np.arange(len(self.origin))
        cloud = self.cloud(rows)
        self.ask(rows, self.spread(rows, cloud, first))
        while len(rows):
            sd = self.fit(rows, cloud)
            inside = self.inside(rows, cloud)
            self.claim(rows, sd, inside)
            settled = self.move(rows)
            known = settled & (self.tests[rows] >= CONFIRMED) & (self.tested[rows] >= TWICE)
            self.reached[rows] = (self.error[rows] <= goal.tolerance) & known
            self.keep_best(rows)
            left = goal.evaluations - int(self.count[rows[0]])
            go_on = ~self.reached[rows] & (left > 0)
            rows, settled = rows[go_on], settled[go_on]
            if len(rows):
                sd, inside, before = sd[go_on], inside[go_on], cloud[go_on]
                cloud = self.cloud(rows)
                n = min(step, left)
                theta = np.empty((len(rows), n, d))
                # Where the region has moved it is looked at afresh; what was predicted is not
                # tested there.
                theta[~settled] = self.spread(rows[~settled], cloud[~settled], n)
                score = (np.where(inside, sd, OUTSIDE * sd) * self.wanted)[settled]
                u, length = self.chart(rows, before)[settled], self.kriging.length[rows[settled]]
                chosen = least_sure(u, before[settled], score, length, n)
                theta[settled] = _taken(before[settled], chosen)
                self.ask(rows, theta)
                self.hold_against(rows, n)
                self.test(rows[settled], np.take_along_axis(sd[settled], chosen, axis=1))
        self.check_maxima()
        return self.best()

    def check_maxima(self) -> None:
        """Where the tolerance was not reached, an interpolant may rise far from all points, to a
        maximum that is none. The exact value there is asked for, and used if not foreseen."""
        rows = np.flatnonzero(~self.best().record.reached)
        for _ in range(CHECKS):
            if len(rows) == 0:
                return
            found = self.best()
            place = maximise(corrected(self.like, found)[rows], self.goal.region).theta
            inside = found.record.contains(place, rows)
            rows, place = rows[inside], place[inside]
            if len(rows) == 0:
                return
            self.ask(rows, place[:, None])
            newest = int(self.count[rows[0]]) - 1
            off = np.abs(self.value[rows, newest] - found.value(place, rows))
            wrong = off > FORESEEN * found.record.error[rows]
            rows = rows[wrong]
            if len(rows) == 0:
                return
            self.off[rows] = off[wrong]
            cloud = self.cloud(rows)
            sd = self.fit(rows, cloud)
            self.claim(rows, sd, self.inside(rows, cloud))
            self.move(rows)
            assert self.so_far is not None
            self.so_far.put(rows, self.correction())

    def claim(self, rows: Integers, sd: Floats, inside: np.ndarray) -> None:
        """The errors of these groups (r,): predicted over the candidates inside (r, c), times what
        tests have shown, and no less than can be known."""
        error = _rms(sd[:, :CLOUD], inside[:, :CLOUD]) * self.misfit(rows)
        least = np.maximum(LEAST_GAIN * self.off[rows], LEAST_CLAIM * self.goal.tolerance)
        self.error[rows] = np.maximum(error, least)

    def keep_best(self, rows: Integers) -> None:
        """Note the interpolants of those groups (r,) whose error has never been smaller."""
        now = self.correction()
        if self.so_far is None:
            self.so_far = now.copy()
            return
        then = self.so_far.record.error
        self.so_far.put(rows[self.reached[rows] | (self.error[rows] <= then[rows])], now)

    def hold_against(self, rows: Integers, n: int) -> None:
        """The n newest exact values of those groups (r,) try the best interpolants so far, which
        have not seen them: where these were off by more than they said, they say so from now on."""
        assert self.so_far is not None
        first = int(self.count[rows[0]]) - n
        theta, value = self.theta[rows, first : first + n], self.value[rows, first : first + n]
        told = self.so_far.value(theta.reshape(-1, theta.shape[2]), np.repeat(rows, n))
        off = value - told.reshape(len(rows), n)
        seen = self.exact_value[rows, first : first + n]
        inside = drop(self.known_best(rows)[:, None], seen) <= self.cut
        error = self.so_far.record.error
        some = inside.any(axis=1)
        error[rows[some]] = np.maximum(error[rows[some]], _rms(off[some], inside[some]))

    def best(self) -> Correction:
        """Every group's best interpolant: one more point may turn a fair one into a wild one."""
        last = self.correction()
        if self.so_far is None:
            return last
        # What was spent was spent.
        record = replace(
            self.so_far.record, evaluations=last.record.evaluations, points=last.record.points
        )
        return replace(self.so_far, record=record)

    def spread(self, rows: Integers, cloud: Floats, n: int) -> Floats:
        """n places (r, n, d) spread over the region."""
        region = Ellipsoid(self.centre[rows], self.factor[rows])
        return _taken(cloud, spread(region.chart(cloud), cloud, self.wanted, self.radius, n))

    def first_region(self) -> Ellipsoid:
        """The ellipsoid around the surrogate's own set."""
        everyone = np.arange(len(self.peak))
        region = along_axes(self.like.pairs, self.top, everyone, self.cut, self.low, self.high)
        region, _ = self.looked(everyone, self.like, self.top.value, [region], FIRST_STEPS)
        return region

    def looked(
        self,
        rows: Integers,
        like: Likelihood,
        best: Floats,
        regions: Sequence[Ellipsoid],
        steps: int,
    ) -> tuple[Ellipsoid, Floats]:
        """The ellipsoid around a likelihood's set, which is looked for in these, the last the most
        likely one, and particles (r, n, d) all over the set. best (r,): its maximum."""
        wide = Ellipsoid(regions[-1].centre, regions[-1].factor / WIDER)
        starts = [self.free(region) for region in (*regions, wide)]
        theta = np.concatenate([*starts, self.particles[rows]], axis=1)
        box = (self.low, self.high)

        def values(at: Floats) -> Floats:
            return self.values(rows, at, like)

        theta, inside = walk(values, theta, best, self.cut, box, self.rng, steps)
        self.particles[rows] = theta[:, self.rng.permutation(theta.shape[1])[:PARTICLES]]
        return around(regions[-1], theta, inside, self.cut, self.radius), theta

    def chart(self, rows: Integers, theta: Floats) -> Floats:
        """u of theta (r, m, d)."""
        return np.einsum("rmj,rji->rmi", theta - self.origin[rows, None], self.a[rows])

    def free(self, region: Ellipsoid) -> Floats:
        """CLOUD points of each region, in the box."""
        return cloud_of(*region, self.radius, self.unit, self.low, self.high)

    def cloud(self, rows: Integers) -> Floats:
        """Candidates (r, c, d): CLOUD points of the current region, some spread over it and some
        over the set, over which the error is taken;
        with several groups, the same again on the lattice they share."""
        free = self.free(Ellipsoid(self.centre[rows], self.factor[rows]))
        free[:, -PARTICLES:] = self.particles[rows]
        if len(self.wanted) == CLOUD:
            return free
        shared = on_lattice(free, self.steps[rows], self.low, self.high)
        return np.concatenate([free, shared], axis=1)

    def ask(self, rows: Integers, theta: Floats) -> None:
        """Exact minus surrogate at theta (r, m, d), all groups in one call."""
        r, m, d = theta.shape
        flat, group = theta.reshape(-1, d), np.repeat(rows, m)
        value, slope = self.work(flat, self.number[group])
        ours, our_slope = self.like.pairs_gradient(flat, group)
        for name, told, gradient, who in (
            ("exact", value, slope, "where the surrogate's confidence set lies"),
            ("surrogate's", ours, our_slope, "inside its own confidence set"),
        ):
            finite = np.isfinite(told), np.isfinite(gradient).all(axis=1)
            if not (finite[0] & finite[1]).all():
                bad = int(np.flatnonzero(~(finite[0] & finite[1]))[0])
                what = "score" if finite[0][bad] else "log-likelihood"
                raise NonFiniteError(
                    f"The {name} {what} is not finite at theta = {flat[bad].tolist()} (group "
                    f"{int(self.number[group[bad]])}), {who}. Are both likelihoods of the same "
                    "model? What was computed is in `computed` of this error, and in the folder if "
                    "path= was given."
                )
        new = slice(int(self.count[rows[0]]), int(self.count[rows[0]]) + m)
        self.theta[rows, new] = theta
        self.exact_value[rows, new] = value.reshape(r, m)
        self.value[rows, new] = (value - ours).reshape(r, m)
        self.slope[rows, new] = (slope - our_slope).reshape(r, m, d)
        self.count[rows] += m

    def fit(self, rows: Integers, cloud: Floats) -> Floats:
        """Interpolate what is known, in the metric of the region as it is now; standard deviations
        (r, c) at the candidates. Points far from the region, asked for before it was found, would
        bend a polynomial: they are left out."""
        self.origin[rows], self.a[rows] = self.centre[rows], self.factor[rows]
        n = int(self.count[rows[0]])
        u = self.chart(rows, self.theta[rows, :n])
        size = np.sqrt((u**2).sum(axis=2))
        near = np.argsort(size, axis=1, kind="stable")
        fewest = min(n, FEWEST_POINTS * (u.shape[2] + 1))
        used = np.maximum((size <= FARTHEST * self.radius).sum(axis=1), fewest)
        value, slope = self.value[rows, :n], self.slope[rows, :n]
        slope = np.einsum("rij,rmj->rmi", np.linalg.inv(self.a[rows]), slope)  # d / du
        there = self.chart(rows, cloud)
        sd, k = np.empty(there.shape[:2]), self.kriging
        k.weights[rows] = 0.0
        for m in np.unique(used):
            i = np.flatnonzero(used == m)
            # Those nearest, in the order in which they were asked for.
            index = np.sort(near[i, :m], axis=1)
            points = _taken(u[i], index)
            gradients = _taken(slope[i], index) if self.work.with_gradient else None
            values = np.take_along_axis(value[i], index, axis=1)
            made, sd[i] = kriging.fit(points, values, gradients, there[i])
            of = rows[i]
            k.points[of, :m], k.weights[of, :m] = made.points, made.weights
            k.beta[of], k.length[of], k.scale[of] = made.beta, made.length, made.scale
        return sd

    def known(self) -> Kriging:
        """The interpolants, without room for points still to come."""
        return self.kriging.first(int(self.count.max()))

    def inside(self, rows: Integers, cloud: Floats) -> np.ndarray:
        """Which candidates lie in the refined set at the level: (r, c) of bool. Notes the standard
        deviation of D over them."""
        r, m, d = cloud.shape
        at, group = self.chart(rows, cloud).reshape(-1, d), np.repeat(rows, m)
        more = self.known().value(at, group).reshape(r, m)
        value = self.values(rows, cloud, self.like) + more
        best = np.maximum(value.max(axis=1), self.known_best(rows))
        inside = drop(best[:, None], value) <= self.cut
        # A set hardly seen: the best candidates stand for it.
        few = inside[:, :CLOUD].sum(axis=1) < CLOUD // 8
        high = np.sort(value[:, :CLOUD], axis=1)[:, -(CLOUD // 8)]
        found = np.where(few[:, None], value >= high[:, None], inside)
        middle = (more * found).sum(axis=1) / found.sum(axis=1)
        self.before[rows] = _rms(more - middle[:, None], found)
        return found

    def values(self, rows: Integers, theta: Floats, like: Likelihood) -> Floats:
        """Log-likelihoods (r, m) at theta (r, m, d)."""
        r, m, d = theta.shape
        found = like.pairs(theta.reshape(-1, d), np.repeat(rows, m))
        return np.asarray(found, dtype=np.float64).reshape(r, m)

    def known_best(self, rows: Integers) -> Floats:
        """The highest exact log-likelihood (r,) seen so far."""
        seen = np.arange(self.exact_value.shape[1]) < self.count[rows, None]
        return np.where(seen, self.exact_value[rows], -np.inf).max(axis=1)

    def test(self, rows: Integers, sd: Floats) -> None:
        """Compare the newest points (r, m) with what had been predicted of them."""
        if len(rows) == 0:
            return
        m = sd.shape[1]
        n = int(self.count[rows[0]])
        new = slice(n - m, n)
        u = self.chart(rows, self.theta[rows, new])
        predicted = self.known().value(u.reshape(-1, u.shape[2]), np.repeat(rows, m))
        off = self.value[rows, new] - predicted.reshape(sd.shape)
        self.tests[rows] += m
        self.tested[rows] += 1
        self.off[rows] = np.sqrt((off**2).mean(axis=1))
        self.squares[rows] += ((off / sd) ** 2).sum(axis=1)

    def misfit(self, rows: Integers) -> Floats:
        """How much larger than predicted errors may be: an upper bound of the root mean square of
        z, with some z = 1 in it, and at least one."""
        count = self.tests[rows] + PRIOR_TESTS
        return np.maximum(1.0, np.sqrt((self.squares[rows] + PRIOR_TESTS) / _least_chi2(count)))

    def move(self, rows: Integers) -> np.ndarray:
        """The region of the refined likelihood: looked for where it was, and around its maximum.
        Says which groups (r,) had it about there before."""
        now = corrected(self.like, self.correction())
        everyone = np.arange(len(self.centre))
        here = Maximum(
            self.peak, now.pairs(self.peak, everyone), self.top.curvature,
            np.zeros(len(self.peak), dtype=bool), 0, self.goal.region,
        )  # fmt: skip
        found = climb_again(now, here, rows, self.peak[rows], here.value[rows])
        self.peak[rows] = found.theta[rows]
        before = Ellipsoid(self.centre[rows], self.factor[rows])
        other = along_axes(now.pairs, found, rows, self.cut, self.low, self.high)
        after, seen = self.looked(rows, now, found.value[rows], [before, other], STEPS)
        self.centre[rows], self.factor[rows] = after
        return np.asarray((before.norm(seen) > self.radius).mean(axis=1) <= MISSED)

    def correction(self) -> Correction:
        record = Refinement(
            error=self.error.copy(),
            evaluations=self.count.copy(),
            reached=self.reached.copy(),
            before=self.before.copy(),
            tolerance=self.goal.tolerance,
            level=self.goal.level,
            centre=self.centre.copy(),
            factor=self.factor.copy(),
            radius=self.radius,
            points=tuple(t[:n] for t, n in zip(self.theta, self.count, strict=True)),
        )
        return Correction(self.known(), self.origin, self.a, record)


def _least_chi2(count: Floats) -> Floats:
    """What a sum of so many squared normals (g,) exceeds with probability SURE."""
    return np.asarray(stats.chi2.ppf(1 - SURE, count), dtype=np.float64)


def _rms(sd: Floats, inside: np.ndarray) -> Floats:
    """Root mean square of sd (r, c) over the candidates inside."""
    return np.sqrt((sd**2 * inside).sum(axis=1) / inside.sum(axis=1))


def _taken(theta: Floats, index: Integers) -> Floats:
    """Rows (r, n, d) of theta (r, m, d) by their numbers (r, n)."""
    return np.take_along_axis(theta, index[..., None], axis=1)
