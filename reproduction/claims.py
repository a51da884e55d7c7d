"""The paper's claims, each as a question to the results of a case.

A claim looks at pairs (BCE, ASA) of the same network, N and seed, says in one sentence what was
measured, and gives a verdict by a rule fixed here before any result (but two, which results showed
to be too kind, and which were made stricter: coverage, and worth):

    same       what the paper says was seen          better    more than it says
    partly     seen in part of the cells             not seen  the opposite, or nothing

What it is based on is named: cells as network/N. No pair, no verdict: "not yet run".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from keepscore.evaluation import METRICS
from reproduction.cases import CASES, OURS
from reproduction.results import Result, find
from reproduction.worth_table import worth_table

MOST, SOME = 0.8, 0.5
MUCH = 3.0  # the paper's lower equivalence, and the step from one N to the next
NOISE = 0.05  # of a share of the excess, from seed to seed (SIS: standard deviation 0.026 to 0.082)


@dataclass(frozen=True)
class Pair:
    """The same cell with both losses."""

    bce: Result
    asa: Result

    def values(self, metric: str) -> tuple[float, float]:
        return self.bce.metric(metric).value, self.asa.metric(metric).value


@dataclass(frozen=True)
class Judgement:
    """What a case says of a claim."""

    measured: str
    verdict: str
    cells: str


@dataclass(frozen=True)
class Claim:
    """A claim in our words, and how to look for it."""

    key: str
    text: str
    look: Callable[[list[Result], list[Pair]], Judgement]


def judge(claim: Claim, results: list[Result]) -> Judgement:
    """The verdict of one case's results on one claim."""
    pairs = pairs_of(results)
    if not pairs:
        return Judgement("not yet run", "not yet run", "none")
    return claim.look(results, pairs)


def pairs_of(results: list[Result]) -> list[Pair]:
    """Cells that were run with both losses."""
    found = []
    for asa in find(results, loss="asa"):
        c = asa.cell
        for bce in find(results, network=c.network, n=c.n, seed=c.seed, loss="bce"):
            found.append(Pair(bce, asa))
    return found


def of_paper(results: list[Result]) -> list[Result]:
    """Without the cells trained as we advise instead."""
    return [r for r in results if r.cell.network != OURS]


def _share(hits: int, of: int) -> str:
    return f"{hits} of {of}"


def _by_share(share: float) -> str:
    return "same" if share >= MOST else "partly" if share >= SOME else "not seen"


def _cells(results: list[Result]) -> str:
    """networks x N, in short."""
    if not results:
        return "none"
    order = CASES[results[0].cell.case].order
    networks = sorted({r.cell.network for r in results}, key=order.index)
    sizes = sorted({r.cell.n for r in results})
    return f"{', '.join(networks)} × N = {', '.join(f'{n:,}' for n in sizes)}"


def _of_pairs(pairs: list[Pair]) -> str:
    return _cells([p.asa for p in pairs])


def _better(pairs: list[Pair], metric: str, slack: float = 1.0) -> int:
    return sum(asa <= slack * bce for bce, asa in (p.values(metric) for p in pairs))


def _metrics(pairs: list[Pair], prefix: str) -> list[str]:
    return [m for m in pairs[0].asa.metrics() if m.startswith(prefix)]


def _improves(results: list[Result], pairs: list[Pair]) -> Judgement:
    words = {metric: METRICS[metric].brief for metric in ("bce", "rmse_far", "lrt_mse")}
    counts = {words[m]: _better(pairs, m) for m in words}
    parts = [f"{name} in {_share(count, len(pairs))}" for name, count in counts.items()]
    share = float(np.mean([count / len(pairs) for count in counts.values()]))
    return Judgement(
        f"lower with ASA: {', '.join(parts)} pairs", _by_share(share), _of_pairs(pairs)
    )


def _scores(results: list[Result], pairs: list[Pair]) -> Judgement:
    metrics = _metrics(pairs, "score_mse[")
    parts, ratios = [], []
    for metric in metrics:
        ratio = float(np.median([asa / bce for bce, asa in (p.values(metric) for p in pairs)]))
        ratios += [asa < bce for bce, asa in (p.values(metric) for p in pairs)]
        parts.append(f"{metric[len('score_mse[') : -1]} × {ratio:.2f}")
    text = f"squared score error with ASA, median over pairs: {', '.join(parts)}"
    return Judgement(text, _by_share(float(np.mean(ratios))), _of_pairs(pairs))


def _worth(results: list[Result], pairs: list[Pair]) -> Judgement:
    # At the largest N of BCE there is nothing to compare with but that run itself.
    table = [w for w in worth_table(results) if w.found.n < w.found.largest]
    if not table:
        return Judgement("BCE at a larger N is missing", "not yet run", _of_pairs(pairs))
    parts, every = [], []
    for metric in ("bce", "rmse_far"):
        found = [w.found for w in table if w.metric == metric]
        factors = [f.factor for f in found]
        beyond = sum(f.beyond == "more" for f in found)
        more = f" (more than the largest run in {_share(beyond, len(found))})" if beyond else ""
        middle, low, high = np.median(factors), min(factors), max(factors)
        parts.append(
            f"by {METRICS[metric].brief} {low:.3g}x to {high:.3g}x, median {middle:.3g}x{more}"
        )
        every += factors
    # Of the middle, not the best; a factor beyond the largest run counts as that run.
    usual = round(float(np.median(every)), 3)
    at_least = {"better": 10.0, "same": MUCH, "partly": 1.5}
    verdict = next((word for word, bound in at_least.items() if usual >= bound), "not seen")
    return Judgement("; ".join(parts), verdict, _cells(of_paper(results)))


def _removed(pair: Pair) -> float:
    """The share of BCE's excess that ASA removes: the difference of the two test BCE, on the same
    pairs, rather than of two excesses, each measured on a small part of them."""
    bce, asa = pair.values("bce")
    return (bce - asa) / pair.bce.metric("bce_excess").value


def _larger(results: list[Result], pairs: list[Pair]) -> Judgement:
    order = CASES[pairs[0].asa.cell.case].networks
    sizes = sorted({order.index(p.asa.cell.network) for p in pairs})
    if len(sizes) < 2:
        return Judgement("one network size only", "not yet run", _of_pairs(pairs))

    def gain(place: int) -> float:
        mine = [p for p in pairs if order.index(p.asa.cell.network) == place]
        return float(np.median([_removed(p) for p in mine]))

    small, large = gain(sizes[0]), gain(sizes[-1])
    text = (
        f"share of the excess BCE removed by ASA, median: {small:.0%} at {order[sizes[0]]}, "
        f"{large:.0%} at {order[sizes[-1]]}"
    )
    return Judgement(text, "same" if large > small + NOISE else "not seen", _of_pairs(pairs))


def _cost(results: list[Result], pairs: list[Pair]) -> Judgement:
    ratios = [a / b for b, a in (p.values("seconds_per_step") for p in pairs)]
    low, middle, high = np.quantile(ratios, [0, 0.5, 1])
    text = f"time per batch, ASA over BCE: {low:.2f} to {high:.2f}, median {middle:.2f}"
    verdict = "same" if low < 1.1 else "partly" if low < 1.25 else "not seen"
    return Judgement(text, verdict, _of_pairs(pairs))


def _cheaper(results: list[Result], pairs: list[Pair]) -> Judgement:
    ratios = []
    for p in pairs:
        c = p.asa.cell
        larger = [r for r in find(results, network=c.network, loss="bce") if r.cell.n >= MUCH * c.n]
        if larger:
            more = min(larger, key=lambda r: (r.cell.n, r.cell.seed))
            ratios.append(p.asa.metric("seconds_total").value / more.metric("seconds_total").value)
    if not ratios:
        return Judgement("no BCE run at three times the data", "not yet run", _of_pairs(pairs))
    hits = sum(ratio < 1 for ratio in ratios)
    text = (
        f"training with ASA took less than BCE with 3x or more data in {_share(hits, len(ratios))} "
        f"pairs (median ratio {np.median(ratios):.2f})"
    )
    return Judgement(text, _by_share(hits / len(ratios)), _of_pairs(pairs))


def _coverage(results: list[Result], pairs: list[Pair]) -> Judgement:
    under = [
        p
        for p in pairs
        if p.bce.metric("coverage").value
        < p.bce.metric("coverage_exact").value - 2 * p.bce.metric("coverage").se
    ]
    if not under:
        return Judgement(
            "BCE under-covers nowhere by two standard errors", "not seen", _of_pairs(pairs)
        )
    before, after = (np.mean([p.values("coverage")[k] for p in under]) for k in range(2))
    exact = np.mean([p.bce.metric("coverage_exact").value for p in under])
    closed = float((after - before) / (exact - before))
    text = (
        f"where BCE under-covers ({_share(len(under), len(pairs))} pairs): {before:.3f} with BCE, "
        f"{after:.3f} with ASA, {exact:.3f} exactly, on average: {closed:.0%} of the gap closed"
    )
    # A coverage that is merely higher is not repaired: .450 to .455 would count.
    verdict = "same" if closed >= 0.5 else "partly" if closed >= 0.2 else "not seen"
    return Judgement(text, verdict, _of_pairs(under))


def _volume(results: list[Result], pairs: list[Pair]) -> Judgement:
    small = [p for p in pairs if p.bce.metric("volume").value < p.bce.metric("volume_exact").value]
    if not small:
        return Judgement("no BCE sets smaller than the exact ones", "not seen", _of_pairs(pairs))
    hits = sum(a > b for b, a in (p.values("volume") for p in small))
    text = (
        f"BCE's sets are smaller than the exact ones in {_share(len(small), len(pairs))} pairs; "
        f"ASA's are larger than BCE's in {_share(hits, len(small))} of those"
    )
    return Judgement(text, _by_share(hits / len(small)), _of_pairs(small))


def _estimates(results: list[Result], pairs: list[Pair]) -> Judgement:
    metrics = _metrics(pairs, "mle_mse[")
    counts = {m[len("mle_mse[") : -1]: _better(pairs, m, slack=1.1) for m in metrics}
    parts = [f"{name} in {_share(count, len(pairs))}" for name, count in counts.items()]
    share = float(np.mean([count / len(pairs) for count in counts.values()]))
    text = f"squared MLE error no more than 10% above BCE's: {', '.join(parts)} pairs"
    return Judgement(text, _by_share(share), _of_pairs(pairs))


def _null(results: list[Result], pairs: list[Pair]) -> Judgement:
    distances = [
        (p.bce.content["etest"]["null_distance"], p.asa.content["etest"]["null_distance"])
        for p in pairs
    ]
    hits = sum(asa <= bce for bce, asa in distances)
    before, after = np.median(distances, axis=0)
    text = (
        f"largest distance between null distributions, surrogate and exact: median {before:.3f} "
        f"with BCE, {after:.3f} with ASA; closer in {_share(hits, len(pairs))} pairs"
    )
    return Judgement(text, _by_share(hits / len(pairs)), _of_pairs(pairs))


CLAIMS = (
    Claim("improves", "ASA improves the surrogate in nearly every configuration", _improves),
    Claim("scores", "The network's own score comes closer to the exact one", _scores),
    Claim("worth", "ASA is worth 3x to 10x as many simulations with BCE", _worth),
    Claim("larger", "The gain is larger for larger networks", _larger),
    Claim("cost", "ASA costs little: under 1.1x the time in some cases", _cost),
    Claim("cheaper", "ASA is cheaper than training on 3x the data", _cheaper),
    Claim("coverage", "Under-coverage of Wilks sets with BCE is repaired", _coverage),
    Claim("volume", "Sets grow where they were too small", _volume),
    Claim("estimates", "Maximum likelihood estimates are unaffected or better", _estimates),
    Claim("null", "The LRT statistic's null distribution comes closer to the exact one", _null),
)
