"""Hostile files and bad arguments end in typed errors: a few cases of each campaign.

All of them: `make test-attack` (hundreds per loader, every bad argument).
"""

from __future__ import annotations

import warnings
import zlib

import numpy as np
import pytest
from attack.loaders import loaders

from keepscore.errors import KeepscoreError

LOADERS = {loader.name: loader for loader in loaders()}
CASES = 25


@pytest.mark.parametrize("name", LOADERS)
def test_damaged_input_is_refused_in_words(name, tmp_path):
    loader, refused = LOADERS[name], 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loader.start(tmp_path)
        for number in range(CASES):
            rng = np.random.default_rng([1, zlib.crc32(name.encode()), number])
            what, call = loader.case(rng)
            try:
                assert call(), f"taken, but means something else: {what}"
            except KeepscoreError:
                refused += 1
            except Exception as error:
                raise AssertionError(f"case {number}: {what}") from error
    assert refused > 0 or name in ("verify", "repair", "simulate again")
