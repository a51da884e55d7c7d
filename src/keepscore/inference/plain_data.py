"""Results as plain data for JSON."""

from __future__ import annotations

from typing import Any

import numpy as np


def plain(values: object) -> Any:
    """Arrays and NumPy scalars as nested lists and numbers; what is not finite becomes None."""
    if isinstance(values, (list, tuple)):
        return [plain(value) for value in values]
    if isinstance(values, (np.ndarray, np.generic)):
        return plain(values.tolist())
    return None if isinstance(values, float) and not np.isfinite(values) else values
