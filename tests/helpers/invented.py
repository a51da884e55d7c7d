"""Invented results of a sweep, in the shape of real ones: for tests of figures and pages only."""

import zlib

import numpy as np

from reproduction.cases import CASES, PROFILES
from reproduction.examples import example_data
from reproduction.results import EXACT, write_record, write_result

NAMES = {
    "sis": ("lambda", "mu"),
    "gaussian": ("l_x", "l_y", "eps"),
    "student-t": ("l_x", "l_y", "nu"),
}
WORKING = {
    "sis": ["log lambda", "log mu"],
    "gaussian": ["log l_x", "log l_y", "log eps"],
    "student-t": ["log l_x", "log l_y", "log(nu - 2)"],
}


def quality(case, cell, gain):
    """A power law in N, better with larger networks, as if ASA had `gain` times the data."""
    place = CASES[case].order.index(cell.network)
    effective = cell.n * (gain if cell.loss == "asa" else 1)
    noise = np.random.default_rng(zlib.crc32(f"{case} {cell.key}".encode())).normal(0, 0.02)
    return (effective / 30_000) ** -0.35 * 0.8**place * np.exp(noise)


def surface(case, shift, sharp):
    axis = np.linspace(-1, 1, 21)
    a, b = np.meshgrid(axis - 0.4 - shift, axis + 0.3 + shift, indexing="ij")
    values = -sharp * 12 * (a**2 + b**2 + 0.6 * a * b + 0.2 * a**3)
    return {
        "names": WORKING[case][-2:],
        "axes": [axis.tolist(), axis.tolist()],
        "values": np.round(values - values.max(), 2).tolist(),
        "mle": [0.4 + shift, -0.3 - shift],
        "truth": list(CASES[case].example[-2:]),
    }


def content(case, cell, settings, gain):
    q, d = quality(case, cell, gain), len(NAMES[case])
    rng = np.random.default_rng(0)
    null = np.sort(rng.chisquare(d, 300) * (1 + 0.5 * q))

    def entry(value, relative=0.03):
        return {"value": float(value), "se": float(abs(value) * relative)}

    seconds = cell.n * 40 * 2e-5 * (1.12 if cell.loss == "asa" else 1)
    epochs = np.arange(1, 41)
    return {
        "settings": settings,
        "training": {
            "seconds_per_step": 1.15e-3 * (1.12 if cell.loss == "asa" else 1),
            "seconds_total": seconds,
            "seconds_to_best": 0.8 * seconds,
            "epochs": 40,
            "best_epoch": 32,
            "curve": {
                "seconds": (seconds * epochs / 40).tolist(),
                "bce": (0.376 + 0.035 * q + 0.2 * np.exp(-epochs / 4)).tolist(),
                "best": 31,
            },
        },
        "ltest": {
            "n": 1000,
            "exact": 100,
            "evidence": 100,
            "metrics": {
                "bce": entry(0.376 + 0.035 * q, 0.001),
                "bce_limit": entry(0.376, 0.001),
                "bce_excess": entry(0.035 * q),
                **{f"score_mse[{k}]": entry(1.5 * q * (1 + i)) for i, k in enumerate(NAMES[case])},
                "rmse_near": entry(0.2 * q),
                "rmse_far": entry(0.6 * q),
            },
        },
        "etest": {
            "groups": 3,
            "size": 10,
            "level": 0.95,
            "null_distance": float(0.2 * q),
            "null": np.round(null, 3).tolist(),
            "metrics": {
                "lrt_mse": entry(1.1 * q),
                "coverage": entry(0.95 - 0.15 * q, 0.01),
                "coverage_exact": entry(0.948, 0.004),
                "volume": entry(0.24 * (1 - 0.2 * q), 0.01),
                "volume_exact": entry(0.24, 0.01),
                **{f"mle_mse[{k}]": entry(0.004 * q) for k in NAMES[case]},
            },
        },
        "surface": surface(case, 0.2 * q, 1 + 0.4 * q),
        "seconds": {"train": seconds, "ltest": 1.0, "etest": 2.0},
        "environment": {"keepscore": "0.1.0", "commit": "0" * 40},
    }


def invent(path, profile="committed", gain=4.0, cases=tuple(CASES), examples=True):
    """Write invented results of a profile below path."""
    for case in cases:
        plan, d = PROFILES[profile][case], len(NAMES[case])
        for cell in plan.cells(case):
            write_result(path, cell, content(case, cell, plan.settings(), gain))
        exact = {
            "names": WORKING[case],
            "null": np.sort(np.random.default_rng(1).chisquare(d, 300)).round(3).tolist(),
            "coverage": {"value": 0.948, "se": 0.004},
            "volume": {"value": 0.24, "se": 0.002},
            "by_theta": {"theta": [[0.0] * d]},
            "surface": surface(case, 0.0, 1.0),
            "settings": plan.settings(),
        }
        if examples:
            exact["examples"] = example_data(case)
        write_record(path / case / EXACT, exact)
