"""Messages and results show numbers as numbers, never as NumPy writes its scalars."""

import pickle
import warnings

import numpy as np
import pytest
from toys import GaussianToy

import keepscore as ks
from keepscore.errors import StorageError, plain_numbers

MODEL = GaussianToy()
XS = MODEL.simulate(np.zeros((5, 2)), np.random.default_rng(1))
LIKE = MODEL.given(XS)
WRONG = {
    "bounds": lambda: ks.Parameter("a", np.float64(2), np.float64(1)),
    "level": lambda: ks.confidence_set(LIKE, level=np.float64(2)),
    "theta": lambda: ks.lrt(LIKE, [np.float64(5), np.float64(0)]),
    "a count": lambda: ks.simulate(MODEL, np.float32(3.5)),
    "a setting": lambda: ks.TrainConfig(max_epochs=np.float64(2.5)),
    "a flag": lambda: ks.TrainConfig(guard=np.int64(7)),
    "sensitivity": lambda: ks.models.SIS(sensitivity=np.float64(3)),
    "extent": lambda: ks.models.GaussianField(4, extent=np.float64(-2)),
    "a name": lambda: ks.confidence_set(LIKE, method=np.int64(3)),
    "minutes": lambda: ks.fit(MODEL, np.float64(-3)),
}


@pytest.mark.parametrize("what", WRONG)
def test_errors_show_numbers_as_numbers(what):
    with pytest.raises(ks.KeepscoreError) as caught:
        WRONG[what]()
    assert "np." not in str(caught.value)


def test_results_show_numbers_as_numbers():
    results = [
        ks.mle(LIKE),
        ks.mle(MODEL.given(XS[:, None])),
        ks.lrt(LIKE, np.zeros(2)),
        ks.confidence_set(LIKE),
        ks.confidence_set(LIKE).intervals,
        MODEL.space,
        ks.Parameter("a", np.float64(1), np.int64(2)),
        ks.priors.Normal(np.float64(0), np.float64(1)),
    ]
    for result in results:
        assert "np." not in str(result)
        assert "np.float" not in repr(result)  # arrays may call themselves arrays


def test_only_scalars_are_rewritten():
    text = "np.float64(2.0), np.int32(-3), np.uint8(4), np.True_ and np.exp(theta), np.float64"
    assert plain_numbers(text) == "2.0, -3, 4, True and np.exp(theta), np.float64"


def test_warnings_are_plain_and_errors_stay_what_they_are():
    with pytest.warns(ks.KeepscoreWarning) as caught:
        warnings.warn(f"sd is {np.float64(0.5)!r}", ks.KeepscoreWarning, stacklevel=1)
    assert str(caught[0].message) == "sd is 0.5"
    error = StorageError("No such folder: here.")
    assert isinstance(error, OSError)
    again = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert (type(again), str(again)) == (StorageError, str(error))
