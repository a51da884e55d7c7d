"""What the checks at the boundary refuse: a typed error for whatever comes, never a raw one."""

import numpy as np
import pytest

from keepscore.checks import as_counts, require_choice, require_count, require_parts, require_rng
from keepscore.errors import KeepscoreError

BAD = [None, 1, 2**70, float("nan"), np.zeros((2, 2)), np.array(["a", "b"]), [[1], [2, 3]], {}]


@pytest.mark.parametrize("bad", BAD, ids=repr)
def test_bad_values_are_refused_in_words(bad):
    with pytest.raises(KeepscoreError):
        require_choice(bad, "method", ("wilks", "calibrated"))
    with pytest.raises(KeepscoreError):
        require_rng(bad)
    with pytest.raises(KeepscoreError):
        require_parts(bad, "model", "simulate")
    with pytest.raises(KeepscoreError):
        as_counts(bad, 2, "points", minimum=2)


def test_good_values_pass():
    assert require_choice("wilks", "method", ("wilks",)) == "wilks"
    rng = np.random.default_rng(0)
    assert require_rng(rng) is rng
    assert as_counts(np.int64(3), 2, "points") == [3, 3]
    assert as_counts(np.array([3, 4]), 2, "points") == [3, 4]
    assert require_count(2**40, "n") == 2**40
    with pytest.raises(KeepscoreError, match="at most"):
        require_count(2**64, "n")
