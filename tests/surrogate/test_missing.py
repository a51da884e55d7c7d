"""Missing values from end to end: simulate, store, train, given, inference, beside the exact."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import keepscore as ks
from keepscore.cli.app import app
from keepscore.errors import DomainError, MismatchError, MissingError, NonFiniteError

M = ks.models
MOST = 12
SHORT = ks.TrainConfig(min_epochs=25, max_epochs=25, batch_size=64, seed=1, guard=False)


def line():
    """y = slope * u + noise, rows (u, y); u is drawn without regard to the slope."""
    space = ks.Space([ks.Parameter("slope", -2, 2, "identity")])

    def simulate(theta, rng):
        u = rng.uniform(-1, 1, (len(theta), MOST))
        y = theta * u + 0.5 * rng.standard_normal(u.shape)
        return np.stack([u, y], axis=2)

    def residual(theta, x):
        return (x[:, :, 1] - theta * x[:, :, 0]) / 0.5

    return M.from_functions(
        space, (MOST, 2), declares=["iid"], simulate=simulate,
        log_prob=lambda theta, x: -0.5 * (residual(theta, x) ** 2).sum(axis=1),
        score=lambda theta, x: (residual(theta, x) * x[:, :, 0] / 0.5).sum(axis=1, keepdims=True),
    )  # fmt: skip


@pytest.fixture(scope="module")
def rows():
    model = M.with_missing(line(), M.missing_rows(2, MOST))
    data = ks.simulate(model, 3000, seed=0)
    return model, data, ks.train(data, config=SHORT, progress=False)


@pytest.mark.slow
def test_data_with_holes_are_like_the_training_data_unless_they_are_not(rows):
    """Of three data sets of the model none is called unlike (level .01 each); in other units, all.
    A NaN that reached the distance would call every one of them unlike."""
    model, _, surrogate = rows
    x = model.simulate(np.full((3, 1), 0.7), np.random.default_rng(8))
    assert np.isnan(x).any()
    for k in range(3):
        found = ks.check_data(surrogate, x[k : k + 1], model, draws=100, seed=k)
        assert found.novelty > 0.01
        assert ks.check_data(surrogate, 55 * x[k : k + 1], model, draws=100).novelty < 0.01


def test_rows_of_differing_n_come_close_to_the_closed_form(rows):
    """The slope by least squares and its error, n = 3 and n = 12, are the closed form's."""
    model, data, surrogate = rows
    assert data.missing
    assert surrogate.missing
    rng = np.random.default_rng(5)
    for n in (3, MOST):
        x = model.base.simulate(np.full((20, 1), 0.7), rng)
        x[:, n:] = np.nan
        u, y = x[:, :n, 0], x[:, :n, 1]
        exact = np.clip((u * y).sum(axis=1) / (u**2).sum(axis=1), -2, 2)
        error = 0.5 / np.sqrt((u**2).sum(axis=1))
        ours = ks.mle(surrogate.given(x, each=True))
        assert np.sqrt(np.mean(((ours.estimate[:, 0] - exact) / error) ** 2)) < 0.35
        beside = ks.mle(model.given(x, each=True))
        assert np.allclose(beside.estimate[:, 0], exact, atol=1e-3)


def test_more_rows_tell_more(rows):
    """The curvature at the maximum grows as the information does; NaN taken for 0 would not."""
    model, _, surrogate = rows
    x = model.base.simulate(np.full((40, 1), 0.5), np.random.default_rng(3))
    few = x.copy()
    few[:, 3:] = np.nan
    ratio = []
    for xs in (few, x):
        like = surrogate.given(xs, each=True)
        at = ks.mle(like).estimate
        bend = like.paired(at + 0.1) + like.paired(at - 0.1) - 2 * like.paired(at)
        ratio.append(np.median(bend))
    assert 2.0 < ratio[1] / ratio[0] < 8.0  # rows: 12 to 3


def test_a_saved_surrogate_and_a_stored_data_set_know_of_their_holes(rows, tmp_path):
    model, _, surrogate = rows
    surrogate.save(tmp_path / "asa")
    again = ks.load(tmp_path / "asa")
    x = model.simulate(np.zeros((3, 1)), np.random.default_rng(0))
    theta = np.zeros((3, 1))
    assert again.missing
    assert np.array_equal(again.log_ratio(theta, x), surrogate.log_ratio(theta, x))
    field = M.with_missing(M.GaussianField(shape=(3, 3)), 0.3)
    made = ks.simulate(field, 100, seed=0, path=tmp_path / "data")
    back = ks.open_dataset(tmp_path / "data")
    assert back.missing
    assert np.isnan(np.asarray(back.x)).any()
    assert back.fingerprint() == made.fingerprint() == back.in_memory().fingerprint()
    assert ks.verify(tmp_path / "data").ok
    next((tmp_path / "data").glob("*.x.npy")).unlink()
    ks.repair(tmp_path / "data")  # rebuilt from its description, mask and all
    assert ks.verify(tmp_path / "data").ok


def test_rows_in_part_are_refused_by_a_mixture(rows):
    surrogate = rows[2]
    x = np.zeros((1, MOST, 2))
    x[0, 1, 0] = np.nan
    with pytest.raises(DomainError, match="row 1 of data set 0"):
        surrogate.given(x)


def test_nan_that_nobody_declared_stays_an_error():
    theta = np.zeros((4, 1))
    x = np.array([[1.0, 2.0], [np.nan, 1.0], [0.0, 0.0], [1.0, 1.0]])
    space = ks.Space([ks.Parameter("m", -1, 1, "identity")])
    with pytest.raises(NonFiniteError, match="with_missing"):
        ks.dataset(theta, x, space=space)
    assert ks.dataset(theta, x, space=space, missing=True).missing
    with pytest.raises(NonFiniteError):
        ks.dataset(theta, x + np.inf, space=space, missing=True)
    network = ks.networks.MLP((2,), 1, np.random.default_rng(0), embedding=(4,), hidden=(4,))
    plain = ks.Surrogate(network, space, (2,))
    with pytest.raises(NonFiniteError, match="with_missing"):
        plain.given(x)
    careless = M.from_functions(
        space, (2,), simulate=lambda theta, rng: np.full((len(theta), 2), np.nan)
    )
    with pytest.raises(ks.KeepscoreError, match="not observed"):
        ks.simulate(careless, 10)
    complete, holes = (
        ks.dataset(theta, np.nan_to_num(x) if fill else x, space=space, missing=not fill)
        for fill in (True, False)
    )
    with pytest.raises(MismatchError, match="missing values"):
        ks.train(complete, holes, loss=ks.BCE(), config=ks.TrainConfig(batch_size=2))
    with pytest.raises(MissingError, match="complete x"):
        ks.train(holes, network="mixture-10k", loss=ks.BCE(), config=ks.TrainConfig(batch_size=2))


def test_the_shell_reads_cells_that_were_not_observed(rows, tmp_path):
    model, _, surrogate = rows
    surrogate.save(tmp_path / "run")
    x = model.base.simulate(np.full((1, 1), 0.7), np.random.default_rng(1))[0]
    x[5:] = np.nan
    cells = [["" if np.isnan(v) else f"{v:.6f}" for v in row] for row in x]
    cells[-1] = ["NA", "nan"]
    file = tmp_path / "data.csv"
    file.write_text("\n".join(",".join(row) for row in cells) + "\n")
    words = ["infer", str(tmp_path / "run"), str(file), "--json"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    expected = ks.mle(surrogate.given(np.round(x[None], 6))).raw[0]
    assert np.isclose(told["parameters"][0]["estimate"], expected, atol=1e-3)
