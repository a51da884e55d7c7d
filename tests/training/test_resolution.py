"""What float32 would round away is refused, not silently lost."""

import numpy as np
import pytest

import keepscore as ks
from keepscore.errors import DomainError
from keepscore.training.resolution import require_resolved_theta, require_resolved_x

SPACE = ks.Space([ks.Parameter("shift", -5, 5, transform="identity")])
RNG = np.random.default_rng(3)
THETA = RNG.uniform(-5, 5, (400, 1))
X = THETA + RNG.normal(size=(400, 3))


def test_times_since_1970_are_refused_before_training():
    data = ks.dataset(THETA, X + 1.7e9, space=SPACE)
    with pytest.raises(DomainError, match=r"Entry 0 of x .*float32.*less 1\.7e\+09"):
        ks.train(data, progress=False)


@pytest.mark.parametrize("origin", [1.7e9, -1.7e9, 1e8])
def test_of_whole_numbers_too(origin):
    """int64 is rounded as float64 is; an entry of many is named by its place."""
    x = np.zeros((400, 2, 3), np.int64)
    x[:, 1, 2] = np.round(X[:, 0]) + int(origin)
    with pytest.raises(DomainError, match=r"Entry \(1, 2\) of x"):
        require_resolved_x(x)
    require_resolved_x(x - int(origin))


@pytest.mark.parametrize(
    "x",
    [
        X,
        X + 1e5,
        X.astype(np.float32) + np.float32(1e6),  # nothing is lost that was there
        np.round(X).astype(np.int32) + 10_000_000,
        np.full((400, 3), 1.7e9 + 0.1),  # never varies
        np.where(X > 0, X, np.nan),
        np.full((400, 3), np.nan),
        X > 0,
        X[:0],
    ],
    ids=["small", "offset", "float32", "int", "constant", "holes", "never", "bool", "no rows"],
)
def test_what_float32_can_hold_passes(x):
    require_resolved_x(x)


@pytest.mark.parametrize(("low", "width"), [(0.5, 1e-5), (1.7e9, 1e3)])
@pytest.mark.parametrize("d", [1, 2, 6])
def test_narrow_boxes_far_from_zero_are_refused(low, width, d):
    """The one narrow parameter is named, wherever it stands; from a nearer origin it passes."""
    wide = [ks.Parameter(f"wide{k}", 0, 1, transform="identity") for k in range(d - 1)]
    narrow = ks.Parameter("narrow", low, low + width, transform="identity")
    with pytest.raises(DomainError, match="'narrow' lies between"):
        require_resolved_theta(ks.Space([*wide, narrow]))
    require_resolved_theta(ks.Space([*wide, ks.Parameter("near", 0, width, transform="identity")]))
