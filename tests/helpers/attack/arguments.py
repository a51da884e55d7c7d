"""Bad arguments for every public function: one argument at a time, the others good."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import keepscore as ks
from attack.loaders import tiny_run, toy

BAD: tuple[tuple[str, Callable[[], Any]], ...] = (
    ("None", lambda: None),
    ("text", lambda: "x"),
    ("empty text", lambda: ""),
    ("bytes", lambda: b"x"),
    ("nan", lambda: float("nan")),
    ("inf", lambda: float("inf")),
    ("-1", lambda: -1),
    ("0", lambda: 0),
    ("1.5", lambda: 1.5),
    ("2**70", lambda: 2**70),
    ("complex", lambda: 1 + 2j),
    ("True", lambda: True),
    ("object", object),
    ("[]", list),
    ("{}", dict),
    ("ragged", lambda: [[1.0], [2.0, 3.0]]),
    ("array of text", lambda: np.array(["a", "b"])),
    ("complex array", lambda: np.array([[1j, 0.0]])),
    ("nan array", lambda: np.full((2, 2), np.nan)),
    ("1e300 array", lambda: np.full((2, 2), 1e300)),
    ("four axes", lambda: np.zeros((2, 2, 2, 2))),
    ("no rows", lambda: np.zeros((0, 2))),
    ("array of objects", lambda: np.array([None, {}], dtype=object)),
    ("function", lambda: lambda *a, **k: None),
    ("class", lambda: dict),
    ("date", lambda: np.datetime64("2026-01-01")),
)


@dataclass
class Target:
    """A function and good arguments for it; each of `spoil` is replaced in turn."""

    name: str
    function: Callable[..., Any]
    good: dict[str, Any]
    spoil: tuple[str, ...] = ()

    def cases(self) -> Iterator[tuple[str, Callable[[], Any]]]:
        for argument in self.spoil or tuple(self.good):
            for word, make in BAD:
                arguments = {**self.good, argument: make()}
                yield f"{self.name}({argument}={word})", _calling(self.function, arguments)


def _calling(function: Callable[..., Any], arguments: dict[str, Any]) -> Callable[[], Any]:
    return lambda: (function(**arguments), True)[1]


def targets(folder: Path) -> list[Target]:
    from likelihoods import FastToy, toy_groups

    model, fast, space, sis = toy(), FastToy(), toy().space, ks.models.SIS()
    rng = np.random.default_rng(0)
    theta, x = np.zeros((2, 2)), np.ones((2, 4))
    surrogate = tiny_run(folder / "run")
    data = ks.simulate(model, 128, path=folder / "set", jobs=1)
    _, _, xs = toy_groups(3, 5)
    likes = {"exact": fast.given(xs[0]), "surrogate": surrogate.given(xs[0])}
    many = fast.given(xs)
    made = ks.confidence_set(likes["exact"])
    parameter = {"name": "a", "lower": -1.0, "upper": 1.0, "transform": "identity", "shift": 0.0}
    margins = {"train_margin": 0.2, "test_margin": 0.4}
    settings = {"batch_size": 32, "min_epochs": 1, "max_epochs": 1, "patience": 1}
    config = ks.TrainConfig(**settings)
    functions = {
        "simulate": lambda theta, rng: theta[:, :1] + rng.standard_normal((len(theta), 4)),
        "log_prob": lambda theta, x: -0.5 * ((x - theta[:, :1]) ** 2).sum(axis=1),
        "score": lambda theta, x: np.stack([(x - theta[:, :1]).sum(axis=1), 0 * theta[:, 1]], 1),
    }
    result = [
        Target("Parameter", ks.Parameter, {**parameter, **margins}),
        Target("Space", ks.Space, {"parameters": [ks.Parameter(**parameter)], "fixed": {"b": 1.0}}),
        Target("box", space.box, {"region": "train"}),
        Target("index", space.index, {"name": "mean"}),
        Target("to_raw", space.to_raw, {"theta": theta}),
        Target("to_working", space.to_working, {"raw": theta + 1}),
        Target("contains", space.contains, {"theta": theta, "region": "base"}),
        Target("clip", space.clip, {"theta": theta, "region": "base"}),
        Target("uniform", space.uniform, {"n": 2, "rng": rng, "region": "base"}),
        Target("grid", space.grid, {"shape": (3, 3), "region": "base"}),
        Target("Space.from_dict", ks.Space.from_dict, {"content": space.to_dict()}),
        Target(
            "from_functions",
            ks.models.from_functions,
            {"space": space, "x_shape": (4,), **functions, "name": "own", "x_dtype": float},
        ),
        Target("SIS", ks.models.SIS, {"positions": np.eye(3), "self_infection": 0.1}),
        Target(
            "SIS (2)",
            ks.models.SIS,
            {"weights": np.ones((3, 3)) - np.eye(3), "times": [0, 1, 2], "initial": 0.5},
        ),
        Target("SIS (3)", ks.models.SIS, {"space": None, "score": "exact"}),
        Target("GaussianField", ks.models.GaussianField, {"side": 5, "kernel": "exponential"}),
        Target("GaussianField (2)", ks.models.GaussianField, {"shape": (4, 5), "extent": 3.0}),
        Target("GaussianField (3)", ks.models.GaussianField, {"locations": np.eye(4)[:, :2]}),
        Target("StudentTField", ks.models.StudentTField, {"side": 5, "space": None}),
        Target("build", ks.models.build, {"description": "sis"}),
        Target(
            "check_model",
            ks.check_model,
            {"model": model, "draws": 50, "seed": 0, "show": False},
            ("model", "draws", "seed"),
        ),
        Target(
            "simulate",
            ks.simulate,
            {"model": model, "n": 70, "seed": 0, "purpose": "train", "scores": True, "jobs": 1},
        ),
        Target(
            "simulate (2)",
            ks.simulate,
            {"model": model, "n": 70, "path": None, "jobs": 1, "on_invalid": "raise"},
            ("path", "on_invalid", "jobs"),
        ),
        Target("simulate (3)", ks.simulate, {"model": model, "n": 9, "cluster": 0}, ("cluster",)),
        Target("open_dataset", ks.open_dataset, {"path": folder / "set"}),
        Target("verify", ks.verify, {"path": folder / "set"}),
        Target("repair", ks.repair, {"path": folder / "set", "model": model}),
        Target("take", data.take, {"n": 3}),
        Target("rows", data.rows, {"index": [0, 1]}),
        Target(
            "Dataset",
            ks.Dataset,
            {"theta": theta, "x": x, "score": theta, "space": space, "score_kind": "exact"},
        ),
        Target("BCE", ks.BCE, {"negatives": 1}),
        Target(
            "ASA",
            ks.ASA,
            {"network_score": "autodiff", "update_every": 64, "history": 64, "decay": 64.0,
             "residual": "squared", "per_parameter": False, "negatives": 1},
        ),
        Target(
            "TrainConfig",
            ks.TrainConfig,
            {**settings, "learning_rate": 1e-3, "schedule": "constant", "averaging": 0.0,
             "weight_decay": 1e-6, "seed": 0, "members": 1, "symmetries": False,
             "scale_inputs": True, "validation_fraction": 0.1, "checkpoint_minutes": 5.0,
             "memory_budget": 1 << 30, "devices": None},
        ),
        Target("TrainConfig.paper", ks.TrainConfig.paper, {"case": "sis"}),
        Target(
            "train",
            ks.train,
            {"data": data, "validation": None, "network": "mlp-3k", "loss": ks.BCE(),
             "config": config, "path": None, "monitor": None},
            ("data", "network", "loss", "config", "path"),
        ),
        Target("train (2)", ks.train, {"data": data, "validation": data, "config": config,
                                       "network": "mlp-3k", "loss": ks.BCE()}, ("validation",)),
        Target("load", ks.load, {"path": folder / "run"}),
        Target("save", surrogate.save, {"path": folder / "saved"}),
        Target("with_calibration", surrogate.with_calibration, {"calibration": None}),
        Target("log_ratio", surrogate.log_ratio, {"theta": theta, "x": x}),
        Target("surrogate.score", surrogate.score, {"theta": theta, "x": x}),
        Target("log_prob", model.log_prob, {"theta": theta, "x": x}),
        Target("surrogate.given", surrogate.given, {"xs": x}),
        Target("model.given", model.given, {"xs": x}),
        Target("sis.given", sis.given, {"xs": np.ones((1, 13, 8))}),
        Target("field.given", ks.models.GaussianField(5).given, {"xs": np.ones((1, 5, 5))}),
        Target("sis.log_prob", sis.log_prob, {"theta": theta, "x": np.ones((2, 13, 8))}),
        Target("likelihood", many, {"theta": theta}),
        Target("gradient", many.gradient, {"theta": theta}),
        Target("paired", many.paired, {"theta": np.zeros((3, 2))}),
        Target("contains", made.contains, {"theta": theta}),
        Target("covers", made.covers, {"theta": theta[:1]}),
        Target("mask", made.mask, {"shape": 5}),
        Target(
            "calibrate",
            ks.calibrate,
            {"surrogate": fast, "simulator": fast, "group_size": 2, "n": 100, "level": 0.9,
             "parameters": None, "region": "base", "seed": 0},
        ),
        Target(
            "sbc",
            ks.sbc,
            {"source": fast, "simulator": fast, "n": 50, "group_size": 2, "draws": 9,
             "method": "grid", "region": "base", "seed": 0},
        ),
        Target(
            "ltest",
            ks.ltest,
            {"surrogate": surrogate, "model": model, "n": 50, "seed": 0, "exact": 10,
             "evidence": 5},
        ),
        Target(
            "etest",
            ks.etest,
            {"surrogate": surrogate, "model": fast, "grid": (2, 2), "groups": 2, "size": 2,
             "seed": 0},
        ),
        Target("dataset", ks.dataset, {"theta": theta, "x": x, "score": theta, "space": space}),
        Target(
            "refine",
            ks.refine,
            {"like": likes["surrogate"], "exact": likes["exact"], "evaluations": 8,
             "tolerance": 1e-3, "level": 0.9, "region": "base", "seed": 0, "jobs": 1,
             "path": None},
        ),
        Target("check_data", ks.check_data, {"source": surrogate, "xs": x, "model": model,
                                             "draws": 100, "level": 0.05, "seed": 0,
                                             "extra": None}),
        Target("scorecard", ks.scorecard, {"surrogate": surrogate, "model": fast, "size": "small",
                                           "seed": 0}, ("surrogate", "model", "size")),
        Target("posterior", ks.posterior, {"like": likes["exact"], "prior": None, "seed": 0,
                                           "draws": 20, "chains": 2, "warmup": 20,
                                           "region": "base", "target_acceptance": 0.8},
               ("like", "prior", "seed", "draws", "chains", "warmup", "region",
                "target_acceptance")),
    ]  # fmt: skip
    for kind, like in likes.items():
        result += [
            Target(f"mle ({kind})", ks.mle, {"like": like, "region": "base", "starts": 2,
                                             "grid": 5}),
            Target(
                f"lrt ({kind})",
                ks.lrt,
                {"like": like, "theta0": [0.0, 0.0], "parameters": None, "calibration": None,
                 "region": "base"},
            ),
            Target(f"lrt of one ({kind})", ks.lrt, {"like": like, "theta0": {"mean": 0.0},
                                                    "parameters": ["mean"]}),
            Target(
                f"confidence_set ({kind})",
                ks.confidence_set,
                {"like": like, "level": 0.95, "method": "wilks", "parameters": None,
                 "calibration": None, "grid": 8, "region": "base"},
            ),
        ]  # fmt: skip
    return result


class Arguments:
    """All bad arguments, as a campaign of numbered cases."""

    name = "arguments"

    def start(self, folder: Path) -> None:
        self.all = [case for target in targets(folder) for case in target.cases()]

    def __len__(self) -> int:
        return len(self.all)

    def numbered(self, number: int) -> tuple[str, Callable[[], Any]]:
        return self.all[number]
