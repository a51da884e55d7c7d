"""log of the mean of peaked functions over a box, by importance sampling that adapts to each.

    c_i = log of the integral of f_i(theta) p(theta) over the box,    i = 1, ..., r

p is uniform or a prior, normalised on the box. f_i is a likelihood: positive, and hundreds of nats
higher in a small part of the box (or in several) than elsewhere. All nodes are fixed quasi-random
points and functions of the f_i, so that the same f_i have the same c_i.

    nodes 1       an even cover of the box, g_1 = 1 / volume; the same for all i
    weights       w_k = f(theta_k) p(theta_k) / g(theta_k),     g = sum_t n_t g_t / sum_t n_t
    nodes t + 1   from g_{t+1}, a mixture of Student-t's: one as wide as the cloud of w^beta, and
                  others around nodes drawn in proportion to them, each as wide as the cloud
                  near it; beta is the largest number in (0, 1] that leaves an effective number of
                  LEAST nodes
    at last       c = log of the mean of w over all nodes of all rounds

beta keeps the first rounds from collapsing on the best of a few bad nodes: the region shrinks by a
bounded factor in each round, and is there once beta = 1. As every node is weighted by the mixture
of all rounds (the balance heuristic), the even cover stays in g as a defence: a mode that later
rounds do not visit cannot have a weight beyond n / n_1 of its share. Rounds end when all of the f_i
have had three in a row with beta = 1.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np
from scipy import special, stats

from keepscore.checks import Floats

# theta (r or 1, m, d) -> log f (members, r, m): node k of function i, or nodes that all share.
LogFunctions = Callable[[Floats], Floats]
COVER = {1: 128, 2: 256}  # nodes of the first round, by dimension; beyond, MANY
MANY = 512
NODES, CENTRES = 256, 16  # of each later round
ROUNDS, ENOUGH = 16, 3  # at most, and with beta = 1
LEAST = 16.0
FREEDOM = 5.0
NEAR = 0.5  # how far the weights around a centre count, in standard deviations of all
WIDER = 1.2  # than the cloud of weights near a centre


class Nodes(NamedTuple):
    """All nodes so far, in the unit cube."""

    unit: Floats  # (r, m, d)
    log_f: Floats  # (members, r, m)
    log_p: Floats  # (r, m); -inf outside the box
    density: Floats  # (r, m): g times the number of nodes
    mixtures: tuple[tuple[Floats, Floats], ...]  # of each round: centres and factors


def log_mean(
    log_f: LogFunctions,
    low: Floats,
    high: Floats,
    log_prior: Callable[[Floats], Floats] | None = None,
    cover_only: bool = False,
) -> tuple[Floats, Floats]:
    """(members, r): c for each member, and (r,): for the geometric mean of the members.

    log_prior: theta (n, d) -> the log-density of p (n,), normalised on the box. cover_only: the
    first nodes alone, which is right for functions that are as wide as the box.
    """
    nodes = _covered(log_f, low, high, log_prior)
    settled = np.zeros(nodes.unit.shape[0], dtype=int)
    for number in range(0 if cover_only else ROUNDS):
        if (settled >= ENOUGH).all():
            break
        nodes, beta = _refined(nodes, number, log_f, low, high, log_prior)
        settled = np.where(beta >= 1.0, settled + 1, 0)
    members = nodes.log_f + (nodes.log_p - np.log(nodes.density))
    whole = nodes.log_f.mean(axis=0) + (nodes.log_p - np.log(nodes.density))
    # The density counts nodes, so the sum is the mean.
    return special.logsumexp(members, axis=2), special.logsumexp(whole, axis=1)


def _covered(
    log_f: LogFunctions,
    low: Floats,
    high: Floats,
    log_prior: Callable[[Floats], Floats] | None,
) -> Nodes:
    """The first round."""
    d = len(low)
    unit = quasi_uniform(COVER.get(d, MANY), d)[None]
    values = log_f(low + (high - low) * unit)
    r, m = values.shape[1:]
    log_p = np.broadcast_to(_log_density(unit, low, high, log_prior), (r, m))
    density = np.full((r, m), float(m))
    return Nodes(np.broadcast_to(unit, (r, m, d)), values, log_p, density, ())


def _refined(
    nodes: Nodes,
    number: int,
    log_f: LogFunctions,
    low: Floats,
    high: Floats,
    log_prior: Callable[[Floats], Floats] | None,
) -> tuple[Nodes, Floats]:
    """One round more, and beta (r,)."""
    log_w = nodes.log_f.mean(axis=0) + (nodes.log_p - np.log(nodes.density))
    beta = tempering(log_w)
    tempered = beta[:, None] * (log_w - log_w.max(axis=1, keepdims=True))
    share = special.softmax(tempered, axis=1)
    centre, factor = _mixture(nodes.unit, share)
    new = _drawn(centre, factor, number)
    inside = ((new >= 0.0) & (new <= 1.0)).all(axis=2)
    asked = np.clip(new, 0.0, 1.0)
    values = log_f(low + (high - low) * asked)
    log_p = np.where(inside, _log_density(asked, low, high, log_prior), -np.inf)
    mixtures = (*nodes.mixtures, (centre, factor))
    of_new = float(COVER.get(len(low), MANY)) * inside
    of_new += sum(NODES * _density(new, *one) for one in mixtures)
    of_old = nodes.density + NODES * _density(nodes.unit, centre, factor)
    grown = Nodes(
        np.concatenate([nodes.unit, new], axis=1),
        np.concatenate([nodes.log_f, values], axis=2),
        np.concatenate([nodes.log_p, log_p], axis=1),
        np.concatenate([of_old, of_new], axis=1),
        mixtures,
    )
    return grown, beta


def tempering(log_w: Floats) -> Floats:
    """The largest beta in (0, 1] with an effective number of weights w^beta of LEAST (r,)."""

    def effective(beta: Floats) -> Floats:
        logs = beta[:, None] * (log_w - log_w.max(axis=1, keepdims=True))
        w = np.exp(np.where(np.isfinite(logs), logs, -np.inf))
        return np.asarray(w.sum(axis=1) ** 2 / (w**2).sum(axis=1))

    low, high = np.zeros(len(log_w)), np.ones(len(log_w))
    enough = effective(high) >= LEAST
    for _ in range(30):
        middle = (low + high) / 2
        fine = effective(middle) >= LEAST
        low, high = np.where(fine, middle, low), np.where(fine, high, middle)
    return np.where(enough, 1.0, np.maximum(low, 1e-9))


def _mixture(unit: Floats, share: Floats) -> tuple[Floats, Floats]:
    """Centres (r, J, d) of the Student-t's, and Cholesky factors (r, J, d, d) of their scales."""
    r, _, d = unit.shape
    rows = np.arange(r)[:, None]
    steps = (np.arange(CENTRES) + 0.5) / CENTRES
    below = np.cumsum(share, axis=1)
    index = (below[:, None, :] < steps[None, :, None] * below[:, -1:, None]).sum(axis=2)
    centre = unit[rows, np.minimum(index, unit.shape[1] - 1)]
    mean = (share[:, :, None] * unit).sum(axis=1, keepdims=True)
    away = unit - mean
    whole = np.einsum("rm,rmi,rmj->rij", share, away, away) + 1e-14 * np.eye(d)
    root = np.linalg.cholesky(whole)
    scaled = np.linalg.solve(root, np.swapaxes(away, 1, 2))  # (r, d, m)
    of_centre = np.linalg.solve(root, np.swapaxes(centre - mean, 1, 2))
    between = scaled[:, :, None, :] - of_centre[:, :, :, None]  # (r, d, J, m)
    near = share[:, None, :] * np.exp(-0.5 * (between**2).sum(axis=1) / NEAR**2)
    near /= near.sum(axis=2, keepdims=True)
    local = np.matmul(near[:, :, None] * between.swapaxes(1, 2), between.transpose(0, 2, 3, 1))
    count = 1.0 / (near**2).sum(axis=2)[..., None, None]
    bandwidth = (4.0 / (d + 2) / LEAST) ** (2.0 / (d + 4))
    pooled = (count * local + (d + 1) * bandwidth * np.eye(d)) / (count + d + 1)
    scale = np.concatenate([np.eye(d)[None, None].repeat(r, 0), np.linalg.cholesky(pooled)], axis=1)
    return np.concatenate([mean, centre], axis=1), WIDER * root[:, None] @ scale


def _drawn(centre: Floats, factor: Floats, number: int) -> Floats:
    """Nodes (r, NODES, d) of the mixture: half from its first part, the others in turn."""
    z = standard_t(number, centre.shape[2])
    half = NODES // 2
    which = np.concatenate([np.zeros(half, int), 1 + np.arange(half) % CENTRES])
    return centre[:, which] + np.einsum("rnij,nj->rni", factor[:, which], z)


def _density(unit: Floats, centre: Floats, factor: Floats) -> Floats:
    """The density of the mixture at nodes (r, m)."""
    d = centre.shape[2]
    inverse = np.linalg.inv(factor)
    log_det = np.log(np.diagonal(factor, axis1=2, axis2=3)).sum(axis=2)
    norm = special.gammaln((FREEDOM + d) / 2) - special.gammaln(FREEDOM / 2)
    norm -= d / 2 * np.log(FREEDOM * np.pi)
    total = np.zeros(unit.shape[:2])
    for j in range(CENTRES + 1):
        away = (unit - centre[:, j, None]) @ np.swapaxes(inverse[:, j], 1, 2)
        tail = 1.0 + (away**2).sum(axis=2) / FREEDOM
        part = 0.5 if j == 0 else 0.5 / CENTRES
        total += part * np.exp(norm - log_det[:, j, None]) * tail ** (-(FREEDOM + d) / 2)
    return total


def _log_density(
    unit: Floats, low: Floats, high: Floats, log_prior: Callable[[Floats], Floats] | None
) -> Floats:
    """log p of the unit cube's points."""
    if log_prior is None:
        return np.zeros(unit.shape[:-1])
    flat = (low + (high - low) * unit).reshape(-1, len(low))
    found = log_prior(flat).reshape(unit.shape[:-1])
    return np.asarray(found + np.log(high - low).sum())


@cache
def quasi_uniform(n: int, d: int) -> Floats:
    """Points that cover the unit cube evenly, always the same."""
    return np.asarray(stats.qmc.Sobol(d, seed=0xC0FE).random(n))


@cache
def standard_t(number: int, d: int) -> Floats:
    """Draws (NODES, d) of a standard Student-t, evenly spread; others for each round."""
    u = stats.qmc.Sobol(d + 1, seed=0x7000 + number).random(NODES)
    # Each half is spread evenly; within the second, nodes that follow each other are no pattern.
    half = NODES // 2
    u[half:] = u[half + np.random.default_rng(number).permutation(half)]
    chi2 = stats.chi2.ppf(u[:, -1:], FREEDOM)
    return np.asarray(stats.norm.ppf(u[:, :-1]) * np.sqrt(FREEDOM / chi2))
