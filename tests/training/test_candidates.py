"""What "auto" tries where nothing is declared, and what it keeps."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

import keepscore as ks
from keepscore.training import candidates
from keepscore.training.batches import open_rows
from keepscore.training.config import TrainConfig

RNG = np.random.default_rng
SHORT = TrainConfig(length="paper", guard=False)  # 40 epochs, and counted as whole


def space(d=2):
    return ks.Space([ks.Parameter(f"t{k}", -1.0, 1.0, transform="identity") for k in range(d)])


def noisy(n, noise, seed=0, score=True, p=2):
    """p numbers theta + N(0, .3^2), then heavy-tailed noise."""
    rng = RNG(seed)
    own = space(p)
    theta = own.uniform(n, rng)
    signal = theta + 0.3 * rng.standard_normal(theta.shape)
    x = np.concatenate([signal, rng.standard_t(2, (n, noise))], axis=1)
    return ks.dataset(theta, x, space=own, score=(signal - theta) / 0.09 if score else None)


def tried(data):
    return list(candidates.others(open_rows(data, None, data.score is not None, 1 << 30), data))


def test_what_is_tried():
    densities = ["mixture-3k", "mixture-10k"]
    assert tried(noisy(300, 0)) == [*densities, "independent-30k"]
    assert tried(noisy(300, 0, score=False)) == ["regression-10k", *densities, "independent-30k"]
    assert tried(noisy(300, 6)) == [*densities, "independent-30k"]  # too few to choose among
    some = [f"{name} of 2 entries" for name in ("residual-25k", *densities)]
    assert tried(noisy(300, 40)) == some
    assert tried(noisy(300, 40, score=False)) == some
    assert tried(noisy(300, 15)) == some
    counted = noisy(300, 0)
    whole = ks.dataset(counted.theta, np.round(counted.x), score=counted.score, space=counted.space)
    assert tried(whole) == ["categories-3k", "categories-30k"]  # a lattice of few values


def counts(n, most, seed=0, kind=np.int64):
    """Two counts out of `most`."""
    rng, own = RNG(seed), space()
    theta = own.uniform(n, rng)
    p = 1 / (1 + np.exp(-theta))
    x = rng.binomial(most, p)
    return ks.dataset(theta, x.astype(kind), space=own, score=x - most * p)


@pytest.mark.parametrize("kind", [np.int64, np.uint8, np.float32, float])
def test_counts_of_many_values_have_densities_of_their_own(kind):
    assert tried(counts(300, 100, kind=kind)) == [
        "counts-3k", "counts-10k", "independent-counts-30k",
    ]  # fmt: skip
    assert tried(counts(300, 4, kind=kind)) == ["categories-3k", "categories-30k"]
    negative = counts(300, 100)
    both = negative.x.astype(float)
    both[:, 0] += RNG(1).normal(size=300)
    some = ks.dataset(negative.theta, both, space=space(), score=negative.score)
    assert tried(some) == ["mixed-3k", "mixed-10k", "independent-mixed-30k"]
    moved = ks.dataset(negative.theta, negative.x - 90, space=space(), score=negative.score)
    assert tried(moved) == []  # whole numbers, and no counts


def test_the_guard_holds_a_network_against_the_same_network(monkeypatch):
    """Scores under suspicion are held against a training without them: of the first network, not of
    the best of several, whose loss may be of another kind and lower for that reason alone."""
    seen, others = [], candidates.others

    def watched(rows, data):
        seen.append(rows.scores)
        return others(rows, data)

    monkeypatch.setattr(candidates, "others", watched)
    monkeypatch.setattr(sys.modules["keepscore.training.train"], "is_suspect", lambda *_: True)
    config = TrainConfig(length="paper")
    result = ks.train(counts(300, 100), config=config, progress=False)
    assert seen == [True]  # asked once, by the run with scores
    assert result.quality.other_bce is None or not result.quality.paired


def test_nothing_is_tried_where_most_entries_tell():
    many = noisy(600, 0, p=20)
    assert tried(many) == ["mixture-3k", "mixture-10k", "independent-30k"]


def test_nothing_is_tried_where_something_is_declared():
    model = ks.models.SIS()
    assert tried(ks.simulate(model, 200)) == []


@pytest.mark.parametrize("noise", [0, 6, 15, 40])
def test_no_more_are_trained_than_counted_on(noise):
    data = noisy(300, noise)
    shape = data.x.shape[1:]
    for scores in (True, False):
        one = data if scores else noisy(300, noise, score=False)
        assert 1 + len(tried(one)) <= candidates.most_trainings(shape, None, scores)
        assert candidates.most_trainings(shape, "iid", scores) == 1
        assert candidates.most_trainings((2, 200), None, scores) == 1
        assert candidates.most_trainings((300,), None, scores) == 2  # it may be a path
        assert candidates.most_work((300,), None, scores) == 1 + candidates.LONGER
        assert candidates.most_work((300,), "series", scores) == 1
        assert candidates.most_work((5,), None, scores) == candidates.most_trainings(
            (5,), None, scores
        )


@pytest.fixture(scope="module")
def trained():
    data = noisy(512, 40)
    return data, ks.train(data, config=SHORT, progress=False)


def test_the_best_is_kept_and_written_down(trained):
    data, surrogate = trained
    found = surrogate.provenance["candidates"]
    assert set(found) == {"residual-25k", *tried(data)}
    best = surrogate.provenance["kept"]
    assert found[best] < found["residual-25k"]  # 40 of 42 numbers are noise
    kind = "Mixture" if best.startswith("mixture") else "Residual"
    assert type(surrogate.network.network).__name__ == f"{kind}OfEntries"
    # It is the better one on data that were not used for the choice, too.
    alone = ks.train(data, network="residual-25k", config=SHORT, progress=False)
    fresh = noisy(1000, 40, seed=9)
    x, theta = np.asarray(fresh.x), np.asarray(fresh.theta)
    losses = [
        np.logaddexp(0, s.relative(np.roll(theta, 1, 0), x) - s.relative(theta, x)).mean()
        for s in (surrogate, alone)
    ]
    assert losses[0] < losses[1]


@pytest.mark.parametrize("prior", [None, ks.priors.Normal(0.3, 0.4)])
@pytest.mark.parametrize("d", [1, 2, 10])
def test_the_true_likelihood_has_the_least_loss(d, prior):
    """x = theta + N(0, .3^2): against likelihoods that are too wide, too narrow, or shifted; 4,000
    rows. With theta drawn from a prior, leaving its density out is one of the wrong ones."""
    rng = RNG(5)
    own = ks.Space(
        [
            ks.Parameter(f"t{k}", -1.0, 1.0, transform="identity", train_margin=0.0, prior=prior)
            for k in range(d)
        ]
    )
    theta = own.draw(4000, rng)
    x = theta + 0.3 * rng.standard_normal(theta.shape)
    held = open_rows(ks.dataset(theta, x, space=own), None, False, 1 << 30)

    def loss(sd, shift=0.0, known=own):
        def relative(t, values):
            return -0.5 * ((values - t - shift) ** 2).sum(axis=1) / sd**2

        surrogate = SimpleNamespace(space=known, relative=relative)
        return candidates.criterion(surrogate, held, 0).mean()

    wrong = [loss(0.45), loss(0.2), loss(0.3, 0.15)]
    if prior is not None:
        flat = ks.Space([ks.Parameter(p.name, -1.0, 1.0, "identity", 0.0) for p in own.parameters])
        wrong.append(loss(0.3, known=flat))
    assert loss(0.3) < min(wrong)


def test_chance_does_not_decide():
    """Of 300 pairs of equally good networks, 16% look better by one standard error, 48 in the mean;
    70 or more have a probability below .001. A difference of seven standard errors is seen."""
    rng = RNG(6)
    losses = rng.exponential(size=(300, 2, 100))
    assert sum(candidates.clearly_better(*pair) for pair in losses) < 70
    assert candidates.clearly_better(losses[0, 0] - 1.0, losses[0, 1])
    assert not candidates.clearly_better(losses[0, 0], losses[0, 0])


def test_joint_scores_do_not_count(trained):
    """They scatter by an unknown amount: the loss of pairs decides alone."""
    data, surrogate = trained
    joint = ks.dataset(data.theta, data.x, data.score, space=data.space, score_kind="joint")
    none = ks.dataset(data.theta, data.x, space=data.space)
    exact, with_joint, without = (
        candidates.criterion(surrogate, open_rows(d, None, d.score is not None, 1 << 30), 0).mean()
        for d in (data, joint, none)
    )
    assert with_joint == without < exact
    assert not candidates.is_good(surrogate, open_rows(joint, None, True, 1 << 30))


def test_without_comparing_the_first_is_kept(trained):
    data, _ = trained
    alone = TrainConfig(length="paper", guard=False, compare=False)
    surrogate = ks.train(data, config=alone, progress=False)
    assert "candidates" not in surrogate.provenance
    assert type(surrogate.network.network).__name__ == "ResidualNetwork"


@pytest.mark.slow
def test_a_run_on_disk_is_found_again_and_told(trained, tmp_path, capsys):
    data, surrogate = trained
    made = ks.train(data, config=SHORT, path=tmp_path / "run", progress=True)
    told = capsys.readouterr().err
    assert f'"auto" kept {made.provenance["kept"]}' in told
    assert '"auto" tries mixture-3k of 2 entries too' in told
    theta, x = np.asarray(data.theta[:8]), np.asarray(data.x[:8])
    np.testing.assert_array_equal(made.relative(theta, x), surrogate.relative(theta, x))
    for again in (
        ks.load(tmp_path / "run"),
        ks.train(data, config=SHORT, path=tmp_path / "run", progress=False),
    ):
        np.testing.assert_array_equal(again.relative(theta, x), made.relative(theta, x))
        assert again.provenance["candidates"] == made.provenance["candidates"]


def test_a_good_first_network_is_enough():
    """Linear, tame scores: R^2 near 1, and nothing else is trained."""
    surrogate = ks.train(noisy(2000, 0), config=SHORT, progress=False)
    assert min(surrogate.quality.score_r2) > candidates.GOOD
    assert "candidates" not in surrogate.provenance


def test_a_hundred_rows_show_which_is_right():
    """Ten parameters, 100 held-out rows, twenty times: the true likelihood beside one with a
    standard deviation of .4 in place of .3. It is found in 19; with one theta' per row in 12."""

    def found(seed):
        rng = RNG(seed)
        theta = rng.uniform(-1, 1, (100, 10))
        own = ks.Space([ks.Parameter(f"t{k}", -1.0, 1.0, "identity", 0.0) for k in range(10)])
        x = theta + 0.3 * rng.standard_normal(theta.shape)
        held = open_rows(ks.dataset(theta, x, space=own), None, False, 1 << 30)

        def parts(sd):
            def relative(t, values):
                return -0.5 * ((values - t) ** 2).sum(axis=1) / sd**2

            return candidates.criterion(SimpleNamespace(space=own, relative=relative), held, seed)

        right, wrong = parts(0.3), parts(0.4)
        return candidates.clearly_better(right, wrong), candidates.clearly_better(wrong, right)

    right, wrong = np.sum([found(seed) for seed in range(20)], axis=0)
    assert right >= 15
    assert wrong == 0
