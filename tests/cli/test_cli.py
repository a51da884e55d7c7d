"""The command line as a user meets it: from model to answer. Wrong turns: test_cli_wrong.py."""

import importlib
import json
import os
import signal
import subprocess
import sys
import time
import warnings
from dataclasses import replace

import numpy as np
import pytest
from likelihoods import FastToy, toy_groups
from scipy import stats
from shell_calls import run

import keepscore as ks
from keepscore.cli.app import main
from keepscore.inference import mle
from keepscore.likelihood import Likelihood

infer = importlib.import_module("keepscore.cli.infer")  # the package's own name is the command
KEEPSCORE = [sys.executable, "-m", "keepscore"]
TOY_MODULE = """
import sys
sys.path.insert(0, {tests!r})
from toys import GaussianToy as Toy
toy = Toy()
"""


def run_process(*words, cwd, code=0):
    done = subprocess.run(
        [*KEEPSCORE, *map(str, words)],
        cwd=cwd, capture_output=True, text=True, timeout=240,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
    )  # fmt: skip
    assert done.returncode == code, f"{words}\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    """A folder in which a model of one's own was simulated and trained, by commands alone."""
    folder = tmp_path_factory.mktemp("cli")
    tests = os.path.join(os.path.dirname(os.path.dirname(__file__)), "helpers")
    (folder / "mine.py").write_text(TOY_MODULE.format(tests=tests))
    (folder / "run.toml").write_text(
        "[simulate]\nn = 2000\nseed = 3\n"
        '[train]\nnetwork = "1k"\nmax-epochs = 20\nmin-epochs = 20\n'
    )
    run("simulate", "mine:Toy", "--out", "data", "--config", "run.toml", "--set", "m=4", cwd=folder)
    run("train", "data", "--out", "asa", "--config", "run.toml", cwd=folder)
    rng = np.random.default_rng(0)
    np.save(folder / "xs.npy", 0.3 + rng.standard_normal((10, 4)))
    np.savetxt(folder / "xs.csv", np.load(folder / "xs.npy"), delimiter=",")
    yield folder
    sys.modules.pop("mine", None)


def test_config_file_is_used_and_flags_win(session):
    manifest = json.loads((session / "data" / "simulate.command.json").read_text())
    assert manifest["settings"]["n"] == 2000
    assert manifest["settings"]["seed"] == 3
    words = ("simulate", "mine:toy", "--out", "data2", "--config", "run.toml", "-n", "50", "--json")
    assert json.loads(run(*words, cwd=session).stdout)["rows"] == 50


def test_the_loss_follows_from_the_data(session):
    """Scores are used where there are any; --loss asa still refuses data that have none."""
    run("simulate", "mine:toy", "--out", "bare", "-n", "300", "--no-scores", cwd=session)
    words = ("--network", "1k", "--max-epochs", "1", "--min-epochs", "1", "--json")
    for name, loss in (("bare", "BCE"), ("data", "ASA")):
        found = run("train", name, "--out", f"{name}-loss", *words, cwd=session).stdout
        assert json.loads(found)["quality"]["loss"] == loss
    refused = run("train", "bare", "--out", "no", "--loss", "asa", *words, cwd=session, code=2)
    assert "scores" in refused.stderr


def test_infer_gives_estimates_intervals_tests_a_picture_and_json(session):
    words = ("infer", "asa", "xs.npy", "--test", "mean=0", "--out", "answer", "--json")
    result = json.loads(run(*words, cwd=session).stdout)
    assert [row["name"] for row in result["parameters"]] == ["mean", "sd"]
    for row in result["parameters"]:
        assert row["interval"][0] <= row["estimate"] <= row["interval"][1]
        assert row["interval"][0] < row["interval"][1]
    (test,) = result["tests"]
    assert 0 <= test["p_value"] <= 1
    assert test["p_value_kind"] == "chi-square"
    assert test["calibrated_p_value"] is None
    assert "no calibration" in result["notes"][0]
    assert (session / "answer" / "surface.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((session / "answer" / "inference.json").read_text()) == result
    from_csv = json.loads(run("infer", "asa", "xs.csv", "--json", cwd=session).stdout)
    assert from_csv["parameters"] == result["parameters"]
    assert "estimate" in run("infer", "asa", "xs.npy", cwd=session).stdout


def test_infer_with_exact_evaluations_gives_the_exact_answers(session):
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(__file__)), "helpers"))
    from toys import GaussianToy

    words = ("infer", "asa", "xs.npy", "--exact", "24", "--model", "mine:toy", "--test", "mean=0")
    result = json.loads(run(*words, "--out", "exact", "--json", cwd=session).stdout)
    truth = mle(GaussianToy().given(np.load(session / "xs.npy")))
    found = [row["estimate"] for row in result["parameters"]]
    np.testing.assert_allclose(found, truth.raw, atol=2e-3)
    plain = json.loads(run("infer", "asa", "xs.npy", "--json", cwd=session).stdout)
    assert np.abs([r["estimate"] for r in plain["parameters"]] - truth.raw).max() > 2e-3
    assert plain["basis"] == "surrogate"
    assert plain["exact_evaluations"] is None
    assert result["basis"].startswith("refined: error ")
    assert 5 <= result["exact_evaluations"] <= 25
    assert "Wilks" in result["notes"][0]
    assert json.loads((session / "exact" / "inference.json").read_text()) == result
    parts = {path.name for path in (session / "exact" / "exact").glob("part-*.npz")}
    assert parts
    said = run(*words, "--out", "exact", cwd=session).stdout  # again: nothing is computed anew
    assert f"Likelihood: {result['basis']}" in said
    assert {path.name for path in (session / "exact" / "exact").glob("part-*.npz")} == parts
    few = run("infer", "asa", "xs.npy", "--exact", "2", "--model", "mine:toy", cwd=session, code=2)
    assert "--exact must be at least 5" in few.stderr


def test_calibrate_is_kept_and_used(session):
    run("calibrate", "asa", "--model", "mine:toy", "-n", "300", "--group-size", "10", cwd=session)
    words = ("infer", "asa", "xs.npy", "--test", "mean=0.2")
    result = json.loads(run(*words, "--json", cwd=session).stdout)
    assert result["method"] == "calibrated"
    (test,) = result["tests"]
    assert 0 < test["calibrated_p_value"] <= 1
    assert test["calibration"] == "of this statistic"
    said = run(*words, cwd=session).stdout
    assert f"chi-square p = {test['p_value']:.3g}, calibrated p =" in said


def test_evaluate_and_report(session):
    run("evaluate", "asa", "--model", "mine:toy", cwd=session)
    card = json.loads((session / "asa" / "scorecard.json").read_text())
    assert card["ltest"] is not None
    assert card["etest"] is not None
    assert (session / "asa" / "scorecard.png").read_bytes().startswith(b"\x89PNG")
    run("report", "asa", "--model", "mine:toy", "--out", "page.html", cwd=session)
    assert (session / "page.html").read_text().startswith("<!DOCTYPE html>")


def test_verify_and_repair(session):
    assert "nothing damaged" in run("verify", "data", cwd=session).stdout
    shard = session / "data" / "shard-00000.x.npy"
    sound = shard.read_bytes()
    shard.write_bytes(sound[:-8] + b"\0" * 8)
    run("verify", "data", cwd=session, code=1)
    run("repair", "data", "--model", "mine:toy", cwd=session)
    assert shard.read_bytes() == sound


def test_shares_of_a_job_array(session):
    words = ("simulate", "mine:toy", "--out", "shares", "-n", "100", "--json", "--shard")
    run(*words, "1/1", cwd=session)
    assert "nothing damaged" in run("verify", "shares", cwd=session).stdout


def test_check_model(session):
    done = run("check-model", "mine:toy", "--draws", "100", cwd=session)
    assert "no law broken, 5 of 6 laws checked; not checked: score = autodiff" in done.stdout
    verdict = run("check-model", "mine:toy", "--draws", "100", "--json", cwd=session)
    verdict = json.loads(verdict.stdout)
    assert verdict["passed"] is True
    assert verdict["not_checked"] == ["score = autodiff"]


def test_help_has_examples(monkeypatch, capsys):
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # main sets its own
    for command in (
        "simulate",
        "train",
        "infer",
        "evaluate",
        "calibrate",
        "demo",
        "worth",
        "report",
    ):
        monkeypatch.setattr(sys, "argv", ["keepscore", command, "--help"])
        with pytest.raises(SystemExit, match="0"):
            main()
        text = capsys.readouterr().out
        assert f"keepscore {command}" in " ".join(text.split()), command
    assert ks.__version__ in run_process("--version", cwd=".").stdout


def test_a_wrong_turn_in_a_process_of_its_own(session):
    done = run_process("infer", "asa", "absent.npy", cwd=session, code=3)
    assert done.stderr == "keepscore: No such file: absent.npy.\n"
    done = run_process("simulate", "sis", cwd=session, code=2)
    assert (
        done.stderr
        == "keepscore: Missing option '--out' / '-o'. See `keepscore simulate --help`.\n"
    )
    assert "Usage: keepscore" in run_process(cwd=session).stdout


def test_importing_the_package_is_light():
    code = (
        "import sys, time; t = time.perf_counter(); import keepscore; keepscore.Space;"
        "assert time.perf_counter() - t < 2;"
        "assert not {'jax', 'matplotlib', 'numba', 'arviz'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_ctrl_c_ends_with_its_own_code_and_no_traceback(session):
    """As a shell sends it: SIGINT in the middle of a long simulation."""
    words = [*KEEPSCORE, "simulate", "sis", "--out", "interrupted", "-n", "3000000"]
    started = subprocess.Popen(
        words, cwd=session, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "JAX_PLATFORMS": "cpu"}, start_new_session=True,
    )  # fmt: skip
    folder = session / "interrupted"
    for _ in range(600):
        if folder.exists() and any(folder.glob("**/*.npy")):
            break
        time.sleep(0.1)
    os.killpg(started.pid, signal.SIGINT)
    try:
        _, said = started.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        os.killpg(started.pid, signal.SIGKILL)
        raise
    assert started.returncode == 130, said
    assert "Traceback" not in said


@pytest.mark.parametrize("d", [1, 2])
def test_the_picture_of_an_inference_says_what_it_shows(d, tmp_path, monkeypatch):
    from matplotlib.figure import Figure

    drawn = []
    save = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda f, *a, **k: (drawn.append(f), save(f, *a, **k)))
    space = ks.Space(
        [ks.Parameter("rate", -1, 1, "log"), ks.Parameter("mean", -1, 1, "identity")][:d]
    )
    at = np.full(d, 0.2)
    like = quadratic_likelihood(space, at, 40.0)
    chosen = ks.confidence_set(like, 0.9)
    infer._picture(tmp_path / "surface.png", chosen)
    assert (tmp_path / "surface.png").read_bytes().startswith(b"\x89PNG")
    ax = drawn[0].axes[0]
    assert ax.get_xlabel() == "log rate"
    if d == 2:
        assert "the 90% set (wilks)" in ax.get_title()
        (label,) = [t.get_text() for t in ax.get_legend().get_texts()]
        assert label == "estimate: rate = 1.22, mean = 0.2"
    else:
        low, high = 0.2 + np.array([-1, 1]) * np.sqrt(stats.chi2.ppf(0.9, 1) / 40)
        box = ax.patches[0].get_extents().transformed(ax.transData.inverted())
        assert (box.x0, box.x1) == pytest.approx((low, high), abs=0.01)


@pytest.mark.parametrize("profiles", [True, False])
def test_a_calibrated_test_agrees_with_the_calibrated_interval(profiles):
    """At the ends of the printed interval the calibrated p-value is one minus the level, within the
    grid of the set; inside it is larger, outside smaller. With a calibration of each parameter's
    profile both are of that, without one both are of the joint set."""
    _, _, x = toy_groups(1, n=5, seed=41, theta=[0.1, 0.2])
    calibration = ks.calibrate(FastToy(), FastToy(), 5, n=600, seed=1, intervals=profiles)
    like = replace(FastToy().given(x[0]), calibration=calibration.to_dict())
    intervals = ks.confidence_set(like, 0.8, method="calibrated").intervals
    assert intervals.kind == ("profile" if profiles else "projection")
    said = "of this statistic" if profiles else "of the joint set: conservative"
    for k, name in enumerate(like.space.names):
        low, high = intervals.raw[k]
        assert not intervals.at_boundary[k].any()

        def p(value, name=name):
            found = infer._test(like, like.space, f"{name}={value}")
            assert found["calibration"] == said
            return found["calibrated_p_value"]

        assert p(low) == pytest.approx(0.2, abs=0.04)
        assert p(high) == pytest.approx(0.2, abs=0.04)
        assert p((low + high) / 2) > 0.3
        assert p(high + 0.2 * (high - low)) < 0.15


def test_a_test_says_which_p_values_it_prints():
    like = quadratic_likelihood(ks.Space([ks.Parameter("rate", -1, 1, "log")]), [0.2], 40.0)
    plain = infer._test(like, like.space, "rate=1")
    assert plain["calibrated_p_value"] is None
    assert infer._calibrated_words(plain) == "not calibrated"
    of_all = calibration_of(like)
    own = infer._test(replace(like, calibration=of_all), like.space, "rate=1")
    assert own["calibration"] == "of this statistic"  # one parameter: the joint test is the test
    assert f"calibrated p = {own['calibrated_p_value']:.3g}" in infer._calibrated_words(own)
    other_size = replace(like, calibration=of_all, group_size=7)
    assert infer._test(other_size, like.space, "rate=1")["calibrated_p_value"] is None


def calibration_of(like):
    """A calibration whose null distribution is close to chi-square, for groups of one."""

    class Source:
        space = like.space

        def given(self, xs):
            at = np.asarray(xs)[:, 0]

            def pairs(theta, group):
                return -20 * (theta[:, 0] - at[group, 0]) ** 2

            def pairs_gradient(theta, group):
                return pairs(theta, group), -40 * (theta - at[group])

            def surface(theta):
                return -20 * (theta[None, :, 0] - at) ** 2

            return Likelihood(like.space, len(at), 1, pairs, pairs_gradient, surface)

        def simulate(self, theta, rng):
            return theta + rng.standard_normal(theta.shape) / np.sqrt(40)

    return ks.calibrate(Source(), Source(), group_size=1, n=300).to_dict()


def quadratic_likelihood(space, at, sharp):
    """l(theta) = -sharp |theta - at|^2 / 2, for one group."""

    def pairs(theta, group):
        return -0.5 * sharp * ((theta - at) ** 2).sum(axis=1)

    def pairs_gradient(theta, group):
        return pairs(theta, group), -sharp * (theta - at)

    return Likelihood(space, 1, 1, pairs, pairs_gradient, lambda theta: pairs(theta, None)[None])


def test_settings_of_a_model_are_numbers_as_the_shell_writes_them():
    from keepscore.cli.settings import find_model

    model = find_model("sis", ["sensitivity=.9", "specificity=0.98", "times=[0, 1, 2]"])
    assert (model.sensitivity, model.specificity) == (0.9, 0.98)
    space = (
        'space={parameters=[{name="lambda", lower=-1, upper=1}, {name="mu", lower=-1, upper=1}, '
        '{name="sensitivity", lower=.8, upper=.95, transform="identity"}]}'
    ).replace("=.", "=0.")
    assert find_model("sis", [space]).sensitivity is None
    assert find_model("sis", ["sensitivity=1."]).perfect
    with pytest.raises(ks.errors.DomainError, match="settings: sensitivity must be a real number"):
        find_model("sis", ["sensitivity=high"])


@pytest.mark.slow
def test_a_model_with_imperfect_tests_is_checked_from_the_shell(tmp_path):
    words = ("--set", "sensitivity=.9", "--set", "weights=[[0,1],[1,0]]", "--set", "times=[0,1,2]")
    done = run_process("check-model", "sis", "--draws", 300, "--json", *words, cwd=tmp_path)
    assert json.loads(done.stdout)["passed"] is True
