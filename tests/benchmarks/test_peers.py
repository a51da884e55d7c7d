"""The peers train the paper's networks and losses; skipped where torch is not installed.

Run by `make test-bridge` in the benchmark environment. If a peer trained another network or another
loss, every ratio of the benchmark would be worthless.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from benchmarks import machine  # noqa: E402
from benchmarks.peers import networks  # noqa: E402
from benchmarks.peers.cases import BATCH, SHAPES, synthetic  # noqa: E402

COUNTS = {
    "sis": {"3k": 3031, "10k": 10093, "30k": 30225, "100k": 99681},
    "field": {"30k": 29721, "100k": 99549, "300k": 303293, "1m": 1004281},
}
ALL = [(family, size) for family, sizes in COUNTS.items() for size in sizes]


@pytest.mark.parametrize(("family", "size"), ALL)
def test_parameter_counts_are_the_papers(family, size):
    net = networks.network(family, size)
    assert networks.parameter_count(net) == COUNTS[family][size]


@pytest.mark.parametrize("family", COUNTS)
def test_embedding_once_gives_what_embedding_again_gives(family):
    net = networks.network(family, "30k").double()
    theta, x, _ = (torch.from_numpy(a).double() for a in synthetic(family, 5))
    both = torch.stack([theta, theta.flip(0)])
    again = torch.stack([net(theta, x), net(theta.flip(0), x)])
    assert net.features(x).ndim == 2
    torch.testing.assert_close(net(both, x), again)


def test_synthetic_data_have_the_shapes_of_the_processes():
    for family, (x_shape, d) in SHAPES.items():
        theta, x, score = synthetic(family, 7)
        assert theta.shape == score.shape == (7, d)
        assert x.shape == (7, *x_shape)
    assert set(np.unique(synthetic("sis", 50)[1])) == {0.0, 1.0}


class TestContenders:
    @pytest.fixture(autouse=True)
    def _peers(self, monkeypatch):
        pytest.importorskip("sbi")
        pytest.importorskip("lampe")
        monkeypatch.setenv("KEEPSCORE_BENCH_THREADS", "1")

    def test_the_lean_score_loss_is_the_plain_one(self):
        from benchmarks.peers.torch_training import score_loss, score_loss_lean

        net = networks.network("sis", "3k").double()
        batch = [torch.from_numpy(a).double() for a in synthetic("sis", 32)]
        gradients = []
        for loss in (score_loss, score_loss_lean):
            net.zero_grad()
            torch.manual_seed(3)  # both draw the same permutation for Y = 0
            loss(net, *(a.clone() for a in batch)).backward()
            gradients.append([p.grad.clone() for p in net.parameters()])
        for plain, lean in zip(*gradients, strict=True):
            torch.testing.assert_close(plain, lean)

    def test_sbis_estimator_is_our_network(self):
        from benchmarks.peers.sbi_training import ratio_estimator

        net = networks.network("sis", "3k")
        theta, x, _ = (torch.from_numpy(a) for a in synthetic("sis", 6))
        estimator = ratio_estimator(net, theta, x)
        torch.testing.assert_close(estimator(theta, x), net(theta, x))
        assert networks.parameter_count(estimator) == COUNTS["sis"]["3k"]

    @pytest.mark.parametrize("contender", ["sbi", "lampe", "double-backward"])
    @pytest.mark.parametrize("tuned", [False, True])
    def test_a_round_trains_the_network_for_the_steps_it_says(self, contender, tuned, monkeypatch):
        from benchmarks.peers import sbi_training, torch_training

        made, steps = [], []
        monkeypatch.setattr(
            torch_training, "network", lambda *a: made.append(networks.network(*a)) or made[0]
        )
        step = torch.optim.Adam.step
        monkeypatch.setattr(torch.optim.Adam, "step", lambda *a: steps.append(1) or step(*a))
        settings = {"contender": contender, "tuned": tuned, "family": "sis", "size": "3k"}
        module = sbi_training if contender == "sbi" else torch_training
        play = module.start(settings | {"steps": 3})
        before, count = [p.clone() for p in made[0].parameters()], len(steps)
        assert play()["ms"] > 0
        assert len(steps) - count == 3
        assert all(not torch.equal(a, b) for a, b in zip(before, made[0].parameters(), strict=True))


def test_batch_is_the_papers():
    assert BATCH == 64


def test_the_machine_is_described_in_plain_data():
    described = json.loads(json.dumps(machine.describe()))
    assert described["cores"] >= 1
    assert described["versions"]["keepscore"]
