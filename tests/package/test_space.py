"""Space: transforms, regions, designs, grids, and what it refuses."""

import json

import numpy as np
import pytest

from keepscore.errors import DomainError, FormatError, ShapeError, UnknownNameError
from keepscore.space import Parameter, Space, cells_per_side


@pytest.fixture
def space() -> Space:
    return Space(
        [
            Parameter("rate", -1, 1),
            Parameter("nu", -2, 3, shift=2.0, train_margin=0.1),
            Parameter("mean", 0, 10, "identity", test_margin=1.0),
        ],
        fixed={"eta": 0.135},
    )


def test_raw_and_back(space):
    theta = space.uniform(50, np.random.default_rng(0))
    raw = space.to_raw(theta)
    np.testing.assert_allclose(raw[:, 0], np.exp(theta[:, 0]))
    np.testing.assert_allclose(raw[:, 1], 2 + np.exp(theta[:, 1]))
    np.testing.assert_allclose(raw[:, 2], theta[:, 2])
    np.testing.assert_allclose(space.to_working(raw), theta, atol=1e-12)
    np.testing.assert_allclose(space.to_raw(theta[0]), raw[0])


def test_margins_are_those_of_the_papers_examples():
    sis = Space([Parameter("lambda", -1, 1, train_margin=0.2, test_margin=0.4)])
    np.testing.assert_allclose(np.ravel(sis.box("train")), [-1.1, 1.1])
    np.testing.assert_allclose(np.ravel(sis.box("test")), [-0.8, 0.8])
    field = Space([Parameter("eps", -4, -1, train_margin=0.1)])
    np.testing.assert_allclose(np.ravel(field.box("train")), [-4.075, -0.925])


def test_names(space):
    assert space.names == ("rate", "nu", "mean")
    assert space.working_names == ("log rate", "log(nu - 2)", "mean")
    assert space.index("nu") == 1
    with pytest.raises(UnknownNameError, match="'rate'"):
        space.index("rat")


@pytest.mark.parametrize(
    ("n", "d", "side"), [(1, 1, 1), (1000, 3, 10), (1001, 3, 11), (30_000, 2, 174), (9, 2, 3)]
)
def test_cells_per_side_is_the_exact_ceiling(n, d, side):
    assert cells_per_side(n, d) == side


def test_grid_order_and_ends(space):
    grid = space.grid((2, 3, 4), region="test")
    low, high = space.box("test")
    assert grid.shape == (24, 3)
    np.testing.assert_allclose(grid[0], low)
    np.testing.assert_allclose(grid[-1], high)
    np.testing.assert_allclose(grid[:4, :2], np.tile(low[:2], (4, 1)))  # last one varies fastest


def test_containment_and_clipping(space):
    low, high = space.box("base")
    inside = np.stack([low, high, (low + high) / 2])
    assert space.contains(inside).all()
    assert not space.contains(inside + np.array([0, 0, 11])).any()
    assert space.contains(space.clip(inside + 100)).all()


def test_json_round_trip(space):
    again = Space.from_dict(json.loads(json.dumps(space.to_dict())))
    assert again == space
    assert hash(again) == hash(space)


def test_refusals(space):
    with pytest.raises(ShapeError, match=r"3 values \(rate, nu, mean\)"):
        space.to_raw(np.zeros((4, 2)))
    with pytest.raises(DomainError, match=r"nu must be greater than 2; got 1\.5"):
        space.to_working([1.0, 1.5, 3.0])
    with pytest.raises(UnknownNameError, match="train"):
        space.box("trian")
    with pytest.raises(DomainError, match="unique"):
        Space([Parameter("a", 0, 1), Parameter("a", 0, 1)])
    with pytest.raises(DomainError, match="lower must be below upper"):
        Parameter("a", 1, 0)
    with pytest.raises(DomainError, match="finite"):
        Parameter("a", 0, float("inf"))
    with pytest.raises(UnknownNameError, match="Did you mean 'log'"):
        Parameter("a", 0, 1, "logg")
    with pytest.raises(FormatError):
        Space.from_dict({"parameters": [{"nam": "a"}]})
    with pytest.raises(DomainError, match="at least one"):
        Space([])
    with pytest.raises(ShapeError, match="one count per parameter"):
        space.grid((2, 2))


def test_empty_designs(space):
    rng = np.random.default_rng(0)
    assert space.uniform(0, rng).shape == (0, 3)


def test_the_default_margin_shrinks_with_the_number_of_parameters():
    """From three parameters on, the same quarter of the larger box lies outside the base box."""
    for d in (1, 2, 3, 4, 6, 10):
        space = Space([Parameter(f"p{k}", -1, 1) for k in range(d)])
        (low, high), (base_low, base_high) = space.box("train"), space.box()
        outside = 1 - np.prod((base_high - base_low) / (high - low))
        assert outside == pytest.approx(1 - 1.1 ** -min(d, 3))
        assert space == Space.from_dict(space.to_dict())
    named = Space([Parameter(f"p{k}", -1, 1, train_margin=0.2) for k in range(10)])
    assert named.box("train")[1] == pytest.approx(np.full(10, 1.1))
