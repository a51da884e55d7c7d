"""Error contrasts of a covariance: what is left of x = X beta + u when beta is not known (REML).

With an orthonormal basis U (m, p) of the columns of X, K (m, m - p) one of all that is orthogonal
to them, and Sigma = L L' the covariance of u, the law of K'x does not depend on beta:

    log det(K' Sigma K)      = log det Sigma + log det(U' Sigma^-1 U)
    x' K (K' Sigma K)^-1 K'x = x' P x = |z - Q Q'z|^2,        z = L^-1 x,   Q R = L^-1 U
    log det(U' Sigma^-1 U)   = 2 sum log |R_jj|
    P                        = Sigma^-1 - B B',               B = L^-T Q

So contrasts need one thin QR factorisation more than x itself. The gradient of the density of n of
them, in the terms of `covariance`, has A = sum_i w_i (P x_i)(P x_i)' - n P: the same with
alpha_i = L^-T (z_i - Q Q'z_i), and n B B' added. K is never formed. (Harville 1974; Patterson and
Thompson 1971.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from keepscore.numerics.covariance import StationaryCovariance

Array = np.ndarray
Rows = Float[Array, "g n _"]


@dataclass(frozen=True, eq=False)
class Contrasts:
    """U' in the coordinates of each block of a covariance, (p, m_b); orthonormal over them all."""

    basis: list[Float[Array, "p _"]]

    @property
    def spent(self) -> int:
        """p: the numbers of x that go to beta."""
        return int(self.basis[0].shape[0])

    def whitened(self, covariance: StationaryCovariance) -> tuple[list[Float[Array, "p _"]], float]:
        """Q' block by block, and log det(U' Sigma^-1 U)."""
        parts = [v[0] for v in covariance.whiten([u[None] for u in self.basis])]
        q, r = np.linalg.qr(np.concatenate(parts, axis=1).T)
        cuts = np.cumsum([part.shape[1] for part in parts])[:-1]
        rows = [np.ascontiguousarray(part) for part in np.split(q.T, cuts, axis=1)]
        return rows, float(2.0 * np.log(np.abs(np.diag(r))).sum())

    def residuals(self, u: list[Rows]) -> list[Rows]:
        """u - U U'u: ordinary least squares."""
        return without(u, self.basis)


def without(z: list[Rows], rows: list[Float[Array, "p _"]]) -> list[Rows]:
    """z less its part in the span of orthonormal rows, both given block by block."""
    for _ in range(2):  # a second time takes off what rounding left
        share = sum(v @ q.T for v, q in zip(z, rows, strict=True))
        z = [v - share @ q for v, q in zip(z, rows, strict=True)]
    return z
