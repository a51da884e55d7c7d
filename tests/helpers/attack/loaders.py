"""Everything that reads what somebody else may have written, each with a sound example of it.

A loader has `prepare(folder)`, which writes the example; `files`, what may be damaged; `read`, the
call under attack; and `same`, which tells whether what was read means what it meant before (None if
the loader does not promise to notice).
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import keepscore as ks
from attack.mutations import change_values, damage, flip_one_bit, restore


@dataclass
class Loader:
    """See the top of this file."""

    name: str
    prepare: Callable[[Path], Any]
    read: Callable[[Path], Any]
    files: str = "*"
    same: Callable[[Any, Any], bool] | None = None
    plain: bool = False  # the example is plain data, not files: values alone are changed
    harm: Callable[[np.random.Generator, Path, list[str]], tuple[str, bool]] = damage
    times: int = 1  # as many cases as the other loaders

    def start(self, folder: Path) -> None:
        pristine = folder / "pristine"
        pristine.mkdir()
        self.content = self.prepare(pristine)
        self.folder, self.pristine = folder / "case", pristine
        if not self.plain:
            self.names = sorted(p.name for p in pristine.glob(self.files) if p.is_file())
            restore(pristine, self.folder)
            self.sound = self.read(self.folder)

    def case(self, rng: np.random.Generator) -> tuple[str, Callable[[], Any]]:
        """What is done in one case, and the call to make; its result is True if all is well."""
        if self.plain:
            content = json.loads(json.dumps(self.content))
            what = change_values(rng, content)
            return what, lambda: (self.read(content), True)[1]
        restore(self.pristine, self.folder)
        what, fitted = self.harm(rng, self.folder, self.names)

        def call() -> bool:
            found = self.read(self.folder)
            return self.same is None or fitted or self.same(self.sound, found)

        return what, call


def toy() -> Any:
    from toys import GaussianToy

    return GaussianToy()


def tiny_run(folder: Path, loss: Any = None) -> Any:
    """A finished training run in a folder; the same call reads it again."""
    import training_helpers

    data = training_helpers.toy_data(128)
    config = ks.TrainConfig(batch_size=32, min_epochs=2, max_epochs=2, patience=1)
    loss = ks.BCE() if loss is None else loss
    return ks.train(data, network="mlp-3k", loss=loss, config=config, path=folder)


def save_surrogate(folder: Path) -> None:
    from keepscore.inference import calibrate

    surrogate = tiny_run(folder / "run")
    calibration = calibrate(surrogate, toy(), group_size=2, n=200)
    surrogate.with_calibration(calibration).save(folder)
    import shutil

    shutil.rmtree(folder / "run")


def same_weights(one: Any, other: Any) -> bool:
    """A run that went on from an earlier checkpoint has other times in its history, no more."""
    from training_helpers import weights_equal

    return weights_equal(one, other) and one.space == other.space


def same_surrogate(one: Any, other: Any) -> bool:
    from training_helpers import weights_equal

    plain = ("space", "x_shape", "members", "provenance", "history", "calibration")
    return weights_equal(one, other) and all(getattr(one, k) == getattr(other, k) for k in plain)


def same_set(one: Any, other: Any) -> bool:
    return np.array_equal(one.theta, other.theta) and np.array_equal(one.x, other.x)


def whole_set(folder: Path) -> Any:
    data = ks.open_dataset(folder)
    for array in (data.theta, data.x, data.score):
        np.asarray(array)
    return data


def report_content() -> Any:
    from report_sample import sample

    return sample().to_dict()


def calibration_content(folder: Path) -> Any:
    from keepscore.inference import calibrate

    return calibrate(toy(), toy(), group_size=2, n=200).to_dict()


def read_calibration(content: Any) -> Any:
    from keepscore.inference.null_distribution import Calibration

    found = Calibration.from_dict(content)
    found.critical(np.zeros((1, 2)), 0.9)
    str(found)
    return found


def exact_cache(folder: Path) -> Any:
    from keepscore.evaluation.exact_cache import cached

    def compute() -> Any:
        return {"a": np.arange(6.0).reshape(2, 3), "b": np.zeros(4)}

    return cached(folder / "exact.npz", {"seed": 0}, compute)


def same_arrays(one: Any, other: Any) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[k], other[k]) for k in one)


def observations(suffix: str) -> tuple[Callable[[Path], None], Callable[[Path], Any]]:
    from keepscore.cli.settings import read_observations

    def prepare(folder: Path) -> None:
        x = np.arange(12.0).reshape(3, 4)
        if suffix == ".npy":
            np.save(folder / "x.npy", x)
        else:
            np.savetxt(folder / "x.csv", x, delimiter=",", header="a,b,c,d", comments="")

    return prepare, lambda folder: read_observations(folder / f"x{suffix}", (4,))


def command_with_config(folder: Path) -> None:
    """`keepscore check-model --config`: the table is read before the command runs."""
    from typer.testing import CliRunner

    from keepscore.cli.app import app

    words = ["check-model", "toys:GaussianToy", "--config", str(folder / "run.toml")]
    result = CliRunner().invoke(app, words)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception


def write_config(folder: Path) -> None:
    text = '[check-model]\ndraws = 50\nseed = 1\nset = ["m=2"]\n'
    (folder / "run.toml").write_text(text)


def description(folder: Path) -> Any:
    return json.loads(json.dumps(tiny_description()))


def tiny_description() -> Any:
    import jax

    from keepscore import networks

    network = networks.resolve("mlp-3k", (4,), 2, None, jax.random.key(0), None)
    return networks.describe(network, (4,), 2)


def rebuild(content: Any) -> Any:
    from keepscore import networks

    return networks.rebuild(content)


def read_loss(content: Any) -> Any:
    from keepscore.losses import loss_from_dict

    return loss_from_dict(content)


def read_report(content: Any) -> Any:
    from keepscore.reports import ReportContent

    return ReportContent.from_dict(content)


def read_model(content: Any) -> Any:
    from keepscore.models import build

    return build(content)


def model_content(folder: Path) -> Any:
    from keepscore.models.base import describe

    return json.loads(json.dumps(describe(ks.models.SIS())))


def exact_values(folder: Path) -> Any:
    """Exact values that `ks.refine(path=)` keeps; the same call reads them again."""
    from likelihoods import FastToy, toy_groups

    from keepscore.inference.exact_work import ExactWork

    _, _, xs = toy_groups(2, 5)
    with ExactWork(FastToy().given(xs), path=folder) as work:
        theta = np.linspace(-0.3, 0.3, 8).reshape(4, 2)
        return work(theta, np.array([0, 1, 0, 1]))


def same_values(one: Any, other: Any) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def fit_content(folder: Path) -> Any:
    attempt = {"n": 1000, "network": "auto", "loss": "ASA", "epochs": None}
    measured = {"groups": 100, "size": 10, "lrt_error": [0.1, 0.01], "coverage": [0.95, 0.02],
                "coverage_exact": [0.94, 0.02], "inefficiency": [1.0, 1.1],
                "informed": [0.9, 0.8]}  # fmt: skip
    one = {"attempt": attempt, "simulating": 1.0, "training": 2.0, "quality": "good",
           "loss": 0.1, "measured": measured}  # fmt: skip
    return {"question": {"seed": 0}, "spent": 3.0, "laws": "hold", "costs": {"simulation": 0.1},
            "loss": "ASA", "rounds": [one], "under_way": attempt,
            "verdict": {"kind": "good"}}  # fmt: skip


def read_fit(content: Any) -> Any:
    """A record whose checksum is right, whatever it says."""
    import tempfile

    from keepscore.files import write_sealed
    from keepscore.fitting import fit_record

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / fit_record.NAME
        write_sealed(path, fit_record.FORMAT, fit_record.VERSION, content)
        found = fit_record.read_record(Path(folder), {"seed": 0})
        str([*found.rounds])
        found.write(Path(folder))
        return found


def simulate_set(folder: Path) -> Any:
    return ks.simulate(toy(), 140, path=folder, jobs=1)


def resumed_set(folder: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = simulate_set(folder)
    return whole_set(folder) if data is not None else None


def verified(folder: Path) -> Any:
    return ks.verify(folder)


def repaired(folder: Path) -> Any:
    ks.repair(folder, model=toy())
    return ks.verify(folder)


def loaders() -> list[Loader]:
    npy, csv = observations(".npy"), observations(".csv")

    def all_ok(one: Any, other: Any) -> bool:
        return bool(other.ok and other.complete)

    def found_it(one: Any, other: Any) -> bool:
        # `verify` lists damage, it does not raise; without its manifest a set is incomplete.
        return not (other.ok and other.complete)

    return [
        Loader("surrogate", save_surrogate, ks.load, same=same_surrogate),
        Loader(
            "bits of a surrogate",
            save_surrogate,
            ks.load,
            files="surrogate.json",
            same=same_surrogate,
            harm=flip_one_bit,
            times=5,
        ),
        Loader("checkpoint", tiny_run, tiny_run, files="[ch]*", same=same_weights),
        Loader("open_dataset", simulate_set, whole_set),
        Loader("verify", simulate_set, verified, same=found_it),
        Loader("repair", simulate_set, repaired, same=all_ok),
        Loader("simulate again", simulate_set, resumed_set, same=same_set),
        Loader("observations .npy", *npy),
        Loader("observations .csv", *csv),
        Loader("exact results .npz", exact_cache, exact_cache, same=same_arrays),
        Loader("exact values", exact_values, exact_values, same=same_values),
        Loader("fit", fit_content, read_fit, plain=True),
        Loader("settings .toml", write_config, command_with_config),
        Loader("space", lambda folder: toy().space.to_dict(), ks.Space.from_dict, plain=True),
        Loader("calibration", calibration_content, read_calibration, plain=True),
        Loader("report", lambda folder: report_content(), read_report, plain=True),
        Loader("network", description, rebuild, plain=True),
        Loader(
            "loss",
            lambda folder: {"name": "ASA", "history": 64, "decay": 64.0, "negatives": 1},
            read_loss,
            plain=True,
        ),
        Loader("model", model_content, read_model, plain=True),
    ]
