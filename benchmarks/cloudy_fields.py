"""Fields with holes, and fields of another size: one network against the exact likelihood.

    python -m benchmarks cloudy-fields [--quick]

The default network for Gaussian fields with missing values ("auto": local-5k) is trained once, on
3,000 fields of 25 x 25 with a fifth of the pixels under clouds, d = 3, exact scores, all defaults.
About 45 minutes of one core in all; raise GROUPS and run again, and what is there is kept.
Then, beside the exact likelihood of what was observed:

    clouds       fresh fields of the same kind: mean cross-entropy above that of the exact ratio
                 ("excess"), and differences over moves of theta ("far": normal, sd .3)
    clouds-1     likelihood-ratio statistics at the truth and coverage of 95% sets, groups of one
                 field
    clouds-10    the same for groups of ten fields
    larger-1     the same surrogate on complete fields of 50 x 50 with the same spacing, which it
                 has never seen
    trained-1    the same groups by the same network trained on 3,000 such fields of 50 x 50
    tailed-1     Student-t fields of 25 x 25 under clouds, groups of one, by the network that
                 "auto" takes for them (local-tailed-5k), trained on 3,000

theta of the groups are uniform over the inner (test) region. The evidence under "excess" is the
mean of the exact likelihood over theta uniform in the train box, by importance sampling: 4,096
theta, of which 64 are drawn in proportion to exp(h/2), h the surrogate's log-ratio. Each cell is
one small file in results/cloudy_fields; what is there is not computed again, and a cell that was
interrupted goes on after the last few groups. The surrogate is kept in runs/benchmarks.
"""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

import keepscore as ks
from benchmarks import machine
from keepscore.files import make_folder, read_json, write_json
from keepscore.losses import pair_losses

SIDE, LARGE, SHARE, SIZE = 25, 50, 0.2, 5
ROWS, SEED = 3_000, 0
PAIRS, CANDIDATES, DRAWN = 24, 4_096, 64
GROUPS = {"clouds-1": 300, "clouds-10": 120, "larger-1": 100, "trained-1": 100, "tailed-1": 100}
AT_ONCE = {"clouds-1": 5, "tailed-1": 5}  # groups between saves; 1 of the others
NETWORK = "local-5k"  # at 50 x 50; at 25 x 25 with clouds "auto" takes it
FAR, LEVEL = 0.3, 0.95
RESULTS = machine.ROOT / "benchmarks" / "results"


def cloudy(side: int = SIDE, kind: Any = ks.models.GaussianField) -> Any:
    """Fields with a fifth of the pixels under clouds."""
    clouds = ks.models.clouds(share=SHARE, size=SIZE)
    return ks.models.with_missing(kind(side), clouds)


def larger(side: int = SIDE, large: int = LARGE) -> Any:
    """Complete fields of another size; pixels are as far apart as in the smaller ones."""
    return ks.models.GaussianField(large, extent=3.0 * (large - 1) / (side - 1))


def trained(model: Any, name: str, network: str, quick: bool) -> Any:
    """A surrogate; made once, resumed where it was interrupted."""
    folder = machine.ROOT / "runs" / "benchmarks" / (f"{name}_quick" if quick else name)
    data = ks.simulate(model, 200 if quick else ROWS, seed=SEED, path=folder / "train")
    config = ks.TrainConfig(seed=SEED, max_epochs=1 if quick else None)
    path = folder / "surrogate"
    return ks.train(data, None, network, config=config, path=path, progress=False)


def group(model: Any, n: int, k: int) -> tuple[Any, Any]:
    """theta (1, d) and n observations; the same number gives the same group."""
    rng = np.random.default_rng([SEED, 0xC10D, n, k])
    theta = model.space.uniform(1, rng, "test")
    return theta, model.simulate(np.repeat(theta, n, axis=0), rng)


def statistics(
    surrogate: Any, model: Any, n: int, numbers: range, known: dict[int, float]
) -> list[dict[str, float]]:
    """The likelihood-ratio statistic at the truth, exact and by the surrogate, of each group;
    known: exact ones that are there, by the number of the group."""
    rows = []
    for k in numbers:
        theta, xs = group(model, n, k)

        def statistic(source: Any, xs: Any = xs, theta: Any = theta) -> float:
            return float(np.squeeze(ks.lrt(source.given(xs), theta[0]).statistic))

        exact = known[k] if k in known else statistic(model)
        rows.append({"number": k, "exact": exact, "surrogate": statistic(surrogate)})
    return rows


def differences(surrogate: Any, model: Any, pairs: int) -> list[dict[str, float]]:
    """Per pair: how much more cross-entropy than with the exact ratio, and the error of a move."""
    rng = np.random.default_rng([SEED, 0xFA2])
    low, high = model.space.box("base")
    theta = model.space.uniform(pairs, rng)
    x = model.simulate(theta, rng)
    other = np.roll(theta, 1, axis=0)
    moved = np.clip(theta + FAR * rng.standard_normal(theta.shape), low, high)
    ours = [surrogate.log_ratio(t, x) for t in (theta, other, moved)]
    exact = [model.log_prob(t, x) for t in (theta, other, moved)]
    evidence = np.array([log_evidence(surrogate, model, one, rng) for one in x])
    loss = np.asarray(pair_losses(ours[0], ours[1]))
    least = np.asarray(pair_losses(exact[0] - evidence, exact[1] - evidence))
    far = (ours[2] - ours[0]) - (exact[2] - exact[0])
    size = exact[2] - exact[0]
    return [
        {"loss": float(a), "least": float(b), "far": float(c), "far_exact": float(d)}
        for a, b, c, d in zip(loss, least, far, size, strict=True)
    ]


def log_evidence(surrogate: Any, model: Any, x: Any, rng: np.random.Generator) -> float:
    """log of the mean of p(x | theta) over the train box, as the top of this file says."""
    theta = model.space.uniform(CANDIDATES, rng, "train")
    h = np.asarray(surrogate.given(x[None], interpolate=False)(theta)).ravel() / 2
    q = np.exp(h - h.max())
    q /= q.sum()
    drawn = rng.choice(CANDIDATES, DRAWN, p=q)
    exact = model.log_prob(theta[drawn], np.repeat(x[None], DRAWN, axis=0))
    terms = exact - np.log(CANDIDATES * q[drawn])
    top = terms.max()
    return float(top + np.log(np.exp(terms - top).mean()))


def run(quick: bool = False, folder: Path | None = None) -> dict[str, Any]:
    """Every cell that is not there yet; plain data."""
    kept = make_folder((folder or RESULTS) / ("cloudy_fields_quick" if quick else "cloudy_fields"))
    model, other = (cloudy(9), larger(9, 13)) if quick else (cloudy(), larger())
    surrogate = trained(model, "cloudy", "auto", quick)
    of_larger = trained(other, "larger", NETWORK, quick)
    heavy = cloudy(9 if quick else SIDE, ks.models.StudentTField)
    of_heavy = trained(heavy, "cloudy_tailed", "auto", quick)
    used = {
        "clouds": (model, surrogate),
        "larger": (other, surrogate),
        "trained": (other, of_larger),
        "tailed": (heavy, of_heavy),
    }
    path = kept / "clouds.json"
    if not path.exists():
        rows = differences(surrogate, model, 4 if quick else PAIRS)
        write_json(path, {"rows": rows, "quality": surrogate.quality.to_dict()})
    results = {"clouds": pairs_summary(read_json(path))}
    for name, groups in GROUPS.items():
        wanted, n = (2 if quick else groups), int(name.split("-")[1])
        source, chosen = used[name.split("-")[0]]
        path = kept / f"{name}.json"
        done = read_json(path) if path.exists() else {"rows": [], "seconds": 0.0}
        same = kept / "larger-1.json"  # the same groups
        there = read_json(same)["rows"] if name == "trained-1" else []
        known = {row["number"]: row["exact"] for row in there}
        while len(done["rows"]) < wanted:
            start, began = len(done["rows"]), time.perf_counter()
            more = range(start, min(start + AT_ONCE.get(name, 1), wanted))
            done["rows"] += statistics(chosen, source, n, more, known)
            done["seconds"] += round(time.perf_counter() - began, 1)
            write_json(path, done)
        results[name] = groups_summary(done, model.space.d)
    return results


def pairs_summary(done: dict[str, Any]) -> dict[str, Any]:
    """Means over pairs with their errors."""
    loss, least, far, size = (
        np.array([row[name] for row in done["rows"]])
        for name in ("loss", "least", "far", "far_exact")
    )
    excess = loss - least
    return {
        "pairs": len(excess),
        "bce": float(loss.mean()),
        "excess": float(excess.mean()),
        "excess_se": float(excess.std(ddof=1) / math.sqrt(len(excess))),
        "far_rmse": float(np.sqrt((far**2).mean())),
        "far_exact": float(np.sqrt((size**2).mean())),
    }


def groups_summary(done: dict[str, Any], d: int) -> dict[str, Any]:
    """Mean squared difference of the statistics, and both coverages with the error of their gap."""
    exact, ours = (np.array([row[k] for row in done["rows"]]) for k in ("exact", "surrogate"))
    square, limit = (ours - exact) ** 2, float(stats.chi2.ppf(LEVEL, d))
    inside = np.stack([exact <= limit, ours <= limit])
    gap = inside[1].astype(float) - inside[0]
    root = math.sqrt(len(exact))
    return {
        "groups": len(exact),
        "lrt_mse": float(square.mean()),
        "lrt_mse_se": float(square.std(ddof=1) / root),
        "coverage": float(inside[1].mean()),
        "coverage_exact": float(inside[0].mean()),
        "gap_se": float(max(gap.std(ddof=1), 1 / root) / root),
        "seconds": done["seconds"],
    }


def table(result: dict[str, Any]) -> str:
    """The same for a reader."""
    one = result["clouds"]
    lines = [
        f"{one['pairs']} pairs, clouds: BCE {one['bce']:.4f}, excess {one['excess']:.4f} ± "
        f"{one['excess_se']:.4f}; far RMSE {one['far_rmse']:.2f} (the exact differences: "
        f"{one['far_exact']:.1f}).",
        "",
        "| cell | groups | LRT error² | coverage | exact | gap |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, row in result.items():
        if name != "clouds":
            lines.append(
                f"| {name} | {row['groups']} | {row['lrt_mse']:.2f} ± {row['lrt_mse_se']:.2f} | "
                f"{row['coverage']:.3f} | {row['coverage_exact']:.3f} | "
                f"{row['coverage'] - row['coverage_exact']:+.3f} ± {row['gap_se']:.3f} |"
            )
    return "\n".join(lines)
