"""BLAS has one thread inside small factorisations, and afterwards what it had before."""

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController

import keepscore as ks
from keepscore.numerics import linalg, threads
from keepscore.numerics.threads import LARGE, one_blas_thread


@pytest.fixture
def counts():
    """How many threads each BLAS has now; two of them at the start, so that a limit shows."""
    controller = ThreadpoolController().select(user_api="blas")
    with controller.limit(limits=2):
        now = lambda: [pool["num_threads"] for pool in controller.info()]  # noqa: E731
        if not now() or set(now()) != {2}:
            pytest.skip("this BLAS does not let its threads be set to two")
        yield now


def test_one_thread_inside_and_what_was_there_afterwards(counts):
    with one_blas_thread(LARGE):
        assert set(counts()) == {1}
        with one_blas_thread(10):
            assert set(counts()) == {1}
        assert set(counts()) == {1}, "the inner one gave back what the outer one still needs"
    assert set(counts()) == {2}
    with pytest.raises(ZeroDivisionError), one_blas_thread(10):
        _ = 1 / 0
    assert set(counts()) == {2}


def test_large_matrices_keep_their_threads(counts):
    with one_blas_thread(LARGE + 1):
        assert set(counts()) == {2}


@pytest.mark.parametrize("model", [ks.models.GaussianField(5), ks.models.StudentTField(5)])
@pytest.mark.parametrize(("largest", "expected"), [(LARGE, 1), (1, 2)])
def test_exact_fields_factorise_with_one_thread(model, largest, expected, counts, monkeypatch):
    """With `LARGE` at one row nothing is limited: the control that must see two threads."""
    seen, real = [], linalg.cholesky_in_place

    def watched(matrix):
        seen.extend(counts())
        real(matrix)

    monkeypatch.setattr(linalg, "cholesky_in_place", watched)
    monkeypatch.setattr(threads, "LARGE", largest)
    theta, rng = np.zeros((2, 3)), np.random.default_rng(0)
    calls = (
        lambda: model.simulate(theta, rng),
        lambda: model.simulate_with_score(theta, rng),
        lambda: model.log_prob(theta, np.ones((2, 5, 5))),
        lambda: model.score(theta, np.ones((2, 5, 5))),
        lambda: model.given(np.ones((2, 5, 5)))(theta),
        lambda: model.given(np.ones((2, 2, 5, 5)))(theta),
    )
    for call in calls:
        seen.clear()
        call()
        assert set(seen) == {expected}
    assert set(counts()) == {2}
