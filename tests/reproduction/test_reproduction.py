"""The experiments: the paper's tables as data, cells that resume, claims judged by results."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import invented
import numpy as np
import pytest
from invented import invent

from keepscore.errors import (
    FormatError,
    MismatchError,
    MissingError,
    StorageError,
    UnknownNameError,
)
from keepscore.files import read_json
from reproduction import __main__ as shell
from reproduction import cases, reproduce
from reproduction.cases import (
    OURS,
    PROFILES,
    Cell,
    CellBlock,
    Evaluation,
    SweepPlan,
    find_cases,
    find_plan,
    profile_of,
)
from reproduction.cell import run_cell
from reproduction.claims import CLAIMS, judge
from reproduction.document import cut, fill, sections
from reproduction.figures.by_case import figures_from
from reproduction.inputs import Workspace, plane
from reproduction.pages import pages
from reproduction.results import (
    EXACT,
    TIMING,
    cell_file,
    load_exact,
    load_results,
    read_result,
    summary_frame,
    summary_text,
    write_record,
    write_result,
)
from reproduction.sweep import missing_cells
from reproduction.timing import measure_times
from reproduction.worth_table import worth_table

# Compiling networks on a busy machine takes its time.
pytestmark = pytest.mark.timeout(900)
ROOT = Path(__file__).parents[2]
TIMES = ("seconds", "environment")


# --- the configurations -------------------------------------------------------------------------


def test_results_tell_which_profile_made_them():
    for profile in ("smoke", "laptop", "committed", "paper"):
        plan = find_plan("sis", profile)
        assert profile_of("sis", plan.cells("sis"), plan.settings()) == profile
    smoke, paper = find_plan("sis", "smoke"), find_plan("sis", "paper")
    assert profile_of("sis", paper.cells("sis"), smoke.settings()) is None


def test_the_paper_has_28_cells_a_case():
    for case, networks in (("sis", "3k 10k 30k 100k"), ("gaussian", "30k 100k 300k 1m")):
        cells = find_plan(case, "paper").cells(case)
        assert len(cells) == 28
        assert {c.network for c in cells} == set(networks.split())
        assert {(c.n, c.loss) for c in cells if c.n == 1_000_000} == {(1_000_000, "bce")}
        assert find_plan(case, "paper").training == {}  # the paper's settings, unchanged


def test_what_is_to_be_committed():
    sis = find_plan("sis", "committed").cells("sis")
    assert set(find_plan("sis", "paper").cells("sis")) < set(sis)
    more = [c for c in sis if c.seed and c.network != OURS]
    assert {(c.network, c.n, c.loss, c.seed) for c in more} == {
        (network, n, loss, seed)
        for network in ("30k", "100k")
        for n in (30_000, 100_000)
        for loss in ("bce", "asa")
        for seed in (1, 2)
    }
    for case in ("gaussian", "student-t"):
        cells = find_plan(case, "committed").cells(case)
        first = [c for c in cells if c.network != OURS and not c.seed]
        of_sizes = {
            (network, n)
            for n, networks in {
                30_000: ("30k", "100k", "300k", "1m"),
                100_000: ("30k", "100k", "300k"),
                300_000: ("30k", "100k"),
            }.items()
            for network in networks
        }
        assert set(first) == {Cell(case, *of, loss) for of in of_sizes for loss in ("bce", "asa")}
        more = {(c.network, c.n, c.loss, c.seed) for c in cells if c.network != OURS and c.seed}
        assert more == {("30k", 30_000, loss, seed) for loss in ("bce", "asa") for seed in (1, 2)}


def test_what_we_advise_stands_beside_the_paper():
    for case in cases.CASES:
        ours = [c for c in find_plan(case, "committed").cells(case) if c.network == OURS]
        assert {(c.n, c.loss, c.seed) for c in ours} == {(30_000, "asa", s) for s in (0, 1, 2)}
        assert not [c for c in find_plan(case, "paper").cells(case) if c.network == OURS]


def test_a_cell_of_ours_is_trained_as_advised(tmp_path):
    small = find_plan("sis", "smoke")
    result = run_cell(Cell("sis", OURS, 256, "asa"), small, tmp_path)
    history = tmp_path / ".work" / "sis" / "cells" / result.cell.key / "checkpoint.json"
    settings = json.loads(history.read_text())["settings"]
    assert settings["network"]["family"] == "graph"
    assert settings["config"]["schedule"] == "cosine"
    assert settings["config"]["symmetries"]
    assert [r.cell for r in load_results(tmp_path, "sis")] == [result.cell]


def test_exact_results_are_kept_and_taken_from_where_they_are_kept(tmp_path, monkeypatch):
    """Computed once; a new working folder takes them from beside the cells, and computes nothing.
    Those of other settings are refused."""
    plan, workspace = find_plan("sis", "smoke"), Workspace(tmp_path, "sis")
    workspace.make()
    first = workspace.etest(plan)
    assert (tmp_path / "sis" / "exact-etest.npz").exists()
    shutil.rmtree(tmp_path / ".work")
    with monkeypatch.context() as patch:
        patch.setattr(sys.modules["keepscore.evaluation.etest"], "infer", None)
        again = workspace.etest(plan)
    np.testing.assert_array_equal(first.exact.statistic, again.exact.statistic)
    shutil.rmtree(tmp_path / ".work")
    other = replace(plan, evaluation=replace(plan.evaluation, groups=plan.evaluation.groups + 1))
    with pytest.raises(MismatchError):
        workspace.etest(other)


def test_committed_and_paper_share_their_test_sizes():
    for case in cases.CASES:
        assert find_plan(case, "committed").settings() == find_plan(case, "paper").settings()


def test_settings_are_plain_data_and_keys_are_unique():
    for plans in PROFILES.values():
        for case, plan in plans.items():
            assert json.loads(json.dumps(plan.settings())) == plan.settings()
            keys = [c.key for c in plan.cells(case)]
            assert len(set(keys)) == len(keys)


def test_unknown_names():
    with pytest.raises(UnknownNameError, match="Did you mean 'gaussian'"):
        find_cases("gausian")
    with pytest.raises(UnknownNameError, match="Did you mean 'laptop'"):
        find_plan("sis", "labtop")
    assert find_cases("all") == ("sis", "gaussian", "student-t")


def test_the_command_lists_every_case_and_starts_none_by_itself(monkeypatch, capsys):
    def told(*words):
        monkeypatch.setattr(sys, "argv", ["reproduction", *words])
        with pytest.raises(SystemExit) as ended:
            shell.run(shell.reproduce, "reproduction")
        said = capsys.readouterr()
        return ended.value.code, said.out + said.err

    code, wrong = told("nonsense")
    assert code == 2
    _, helped = told()
    assert "Usage: python -m reproduction" in helped
    for case in ("sis", "gaussian", "student-t", "all", "sis-large"):
        assert case in wrong
        assert case in helped


def test_a_plane_of_a_likelihood_is_the_likelihood_there():
    from keepscore.models import GaussianField

    model = GaussianField()
    theta = np.array([0.1, 0.4, -2.2])
    like = model.given(model.simulate(theta[None], np.random.default_rng(0)))
    flat = plane(like, theta)
    value, slope = like.pairs_gradient(theta[None], np.array([0]))
    on_plane, slope_on_plane = flat.pairs_gradient(theta[None, 1:], np.array([0]))
    assert on_plane == pytest.approx(value)
    np.testing.assert_allclose(slope_on_plane, slope[:, 1:])
    assert flat.surface(theta[None, 1:])[0, 0] == pytest.approx(value[0])
    assert flat.space.names == ("l_y", "eps")


# --- the sweep, for real but tiny ---------------------------------------------------------------


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    """`python -m reproduction sis --profile smoke`."""
    path, lines = tmp_path_factory.mktemp("smoke"), []
    results = reproduce("sis", "smoke", path, report=lines.append)
    return path, results, lines


@pytest.fixture(scope="module")
def smoke_of_all(tmp_path_factory):
    """`python -m reproduction all --profile smoke`."""
    path, lines = tmp_path_factory.mktemp("smoke-of-all"), []
    results = reproduce("all", "smoke", path, report=lines.append)
    return path, results, lines


def numbers(path):
    """Everything a sweep wrote but the times."""
    found = {}
    for file in sorted(path.glob("*/*.json")):
        content = json.loads(file.read_text())
        for name in TIMES:
            content.pop(name, None)
        for name in ("seconds_per_step", "seconds_total", "seconds_to_best"):
            content.get("training", {}).pop(name, None)
        content.get("training", {}).get("curve", {}).pop("seconds", None)
        found[f"{file.parent.name}/{file.name}"] = content
    return found


def each_case_is_whole(smoke, cases):
    path, results, lines = smoke
    for case in cases:
        assert {r.cell for r in results[case]} == set(PROFILES["smoke"][case].cells(case))
        exact = load_exact(path, case)
        assert len(exact["null"]) == len(results[case][0].content["etest"]["null"])
        for result in results[case]:
            training = result.content["training"]
            assert training["epochs"] == 6
            assert 0 < training["seconds_to_best"] <= training["seconds_total"]
            assert result.content["environment"]["jax"]
            assert result.metric("bce").value < 1.5
        # Six epochs of 16 steps: alpha has had its first value, so ASA is no longer BCE.
        bce, asa = (next(r for r in results[case] if r.cell.loss == k) for k in ("bce", "asa"))
        assert bce.cell.n == asa.cell.n
        assert asa.metric("bce").value != bce.metric("bce").value
        assert max(asa.content["training"]["alpha"]) > 0
    assert sum(line.startswith("[") for line in lines) == sum(len(results[c]) for c in cases)
    assert "test BCE" in lines[-1]


def test_smoke_runs_a_case(smoke):
    each_case_is_whole(smoke, ["sis"])


@pytest.mark.slow
def test_smoke_runs_all_cases(smoke_of_all, tmp_path):
    each_case_is_whole(smoke_of_all, list(PROFILES["smoke"]))
    assert len(figures_from(smoke_of_all[0], tmp_path)) == 29  # no equivalence of one N


def test_figures_and_tables_of_a_smoke_run(smoke, tmp_path):
    path, results, _ = smoke
    assert 5 < len(figures_from(path, tmp_path)) < 29
    frame = summary_frame(results["sis"])
    assert len(frame) == 3
    assert frame["bce"].tolist() == [r.metric("bce").value for r in results["sis"]]
    assert len(summary_text(results["sis"]).splitlines()) == 4
    judged = sections(path)["claims"].split("\n")[2].split("|")  # claim, SIS, two fields
    assert ["not yet run" in part for part in judged[2:5]] == [False, True, True]


def test_a_second_run_does_nothing_and_a_deleted_cell_alone_is_redone(smoke):
    path = smoke[0]
    before, stamps = numbers(path), {f: f.stat().st_mtime_ns for f in path.glob("*/*.json")}
    lines = []
    reproduce("sis", "smoke", path, report=lines.append)
    assert lines[0] == "sis: 3 cells, 3 of them done already"
    cell = Cell("sis", "3k", 256, "asa")
    deleted = cell_file(path, cell)
    deleted.unlink()
    assert missing_cells("sis", find_plan("sis", "smoke"), path) == [cell]
    reproduce("sis", "smoke", path, report=lines.append)
    changed = [f for f, stamp in stamps.items() if f.stat().st_mtime_ns != stamp]
    assert changed == [deleted]
    assert numbers(path) == before


TINY = """
import sys
from pathlib import Path
from reproduction import cases
from reproduction.sweep import reproduce
sizes = cases.Evaluation(64, 8, 4, 4, (2, 2), 2, 2, 5, points=6)
blocks = (cases.CellBlock(("3k",), (256,), ("asa",)),)
short = {"min_epochs": 40, "max_epochs": 40, "batch_size": 16}
cases.PROFILES["tiny"] = {"sis": cases.SweepPlan(blocks, sizes, short)}
reproduce("sis", "tiny", Path(sys.argv[1]))
"""


def run_tiny(path, wait=True):
    command = [sys.executable, "-c", TINY, str(path)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT
    )
    if wait:
        output = process.communicate(timeout=240)[0]
        assert process.returncode == 0, output
    return process


@pytest.mark.slow
def test_killed_anywhere_it_ends_with_the_same_numbers(tmp_path):
    """kill -9 while training, and again a little later; the numbers are an undisturbed run's."""
    run_tiny(tmp_path / "whole")
    killed = tmp_path / "killed"
    checkpoints = killed / ".work" / "sis" / "cells"
    kills = 0
    for pause in (0.0, 0.3):
        process = run_tiny(killed, wait=False)
        deadline = time.monotonic() + 200
        while process.poll() is None and time.monotonic() < deadline:
            if list(checkpoints.glob("*/history.jsonl")):
                time.sleep(pause)
                os.kill(process.pid, signal.SIGKILL)
                kills += process.wait() == -signal.SIGKILL
            time.sleep(0.02)
    assert kills >= 1
    assert not list(killed.glob("sis/*-s0.json"))
    run_tiny(killed)
    assert numbers(killed) == numbers(tmp_path / "whole")


@pytest.mark.slow
def test_cells_run_on_a_dask_cluster(tmp_path, smoke):
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        reproduce("sis", "smoke", tmp_path, cluster=client, report=lambda line: None)
    here = {k: v for k, v in numbers(smoke[0]).items() if k.startswith("sis/")}
    assert numbers(tmp_path) == here


@pytest.mark.slow
def test_a_cluster_that_is_not_there_is_said(tmp_path):
    pytest.importorskip("distributed")
    with pytest.raises(MissingError, match="No Dask cluster answers"):
        reproduce("sis", "smoke", tmp_path, cluster="tcp://127.0.0.1:9", report=lambda line: None)


def test_results_of_other_settings_are_not_mixed(smoke):
    path, plan = smoke[0], find_plan("sis", "smoke")
    other = SweepPlan(plan.blocks, Evaluation(512, 64, 16, 8, (2, 2), 4, 4, 9, 12), plan.training)
    with pytest.raises(MismatchError, match=r"evaluation\.pairs: 256 there, 512 here"):
        missing_cells("sis", other, path)


def test_a_damaged_cell_is_named(tmp_path):
    invent(tmp_path, cases=("sis",), examples=False)
    file = cell_file(tmp_path, Cell("sis", "3k", 30_000, "bce"))
    for text, error in (("{", "not valid JSON"), ('{"format": 99}', "format 99"), ("{}", "None")):
        file.write_text(text)
        with pytest.raises(FormatError, match=error):
            load_results(tmp_path, "sis")
    file.write_text('{"format": 1, "cell": {"case": "sis"}}')
    with pytest.raises(FormatError, match="not the result of a cell"):
        read_result(file)


# --- claims and the page ------------------------------------------------------------------------


def verdicts(path, case="sis"):
    return {claim.key: judge(claim, load_results(path, case)).verdict for claim in CLAIMS}


def test_verdicts_follow_the_results(tmp_path):
    invent(tmp_path / "good", gain=4.0, cases=("sis",), examples=False)
    invent(tmp_path / "bad", gain=0.5, cases=("sis",), examples=False)
    invent(tmp_path / "great", gain=40.0, cases=("sis",), examples=False)
    good, bad, great = (verdicts(tmp_path / k) for k in ("good", "bad", "great"))
    keys = ("improves", "scores", "worth", "volume", "estimates", "null")
    assert {key: good[key] for key in keys} == dict.fromkeys(keys, "same")
    assert {key: bad[key] for key in keys} == dict.fromkeys(keys, "not seen")
    # A gain of 4 closes less than half of the gap to the exact coverage, one of 40 more.
    assert [k["coverage"] for k in (bad, good, great)] == ["not seen", "partly", "same"]
    assert good["cheaper"] == "same"
    assert great["worth"] == "better"
    assert set(verdicts(tmp_path / "nothing").values()) == {"not yet run"}


def test_a_coverage_that_is_merely_higher_is_not_repaired(tmp_path):
    invent(tmp_path, gain=40.0, cases=("sis",), examples=False)
    assert verdicts(tmp_path)["coverage"] == "same"
    for file in (tmp_path / "sis").glob("*-asa-*.json"):
        without = tmp_path / "sis" / file.name.replace("-asa-", "-bce-")
        if without.exists():
            content = read_json(file)
            before = read_json(without)["etest"]["metrics"]["coverage"]["value"]
            content["etest"]["metrics"]["coverage"]["value"] = before + 0.001
            file.write_text(json.dumps(content))
    assert verdicts(tmp_path)["coverage"] == "not seen"


@pytest.mark.parametrize(("more", "verdict"), [(0.03, "not seen"), (0.08, "same")])
def test_a_gain_is_larger_only_beyond_the_noise_between_seeds(tmp_path, more, verdict):
    invent(tmp_path, cases=("gaussian",), examples=False)
    for file in (tmp_path / "gaussian").glob("[0-9]*-asa-*.json"):
        content = read_json(file)
        before = read_json(file.with_name(file.name.replace("-asa-", "-bce-")))["ltest"]["metrics"]
        share = 0.2 + (0 if file.name.startswith("30k") else more)
        bce = before["bce"]["value"] - share * before["bce_excess"]["value"]
        content["ltest"]["metrics"]["bce"]["value"] = bce
        file.write_text(json.dumps(content))
    assert verdicts(tmp_path, "gaussian")["larger"] == verdict


def test_equivalence_of_an_invented_gain_is_found(tmp_path):
    invent(tmp_path, gain=4.0, cases=("sis",), examples=False)
    table = worth_table(load_results(tmp_path, "sis"))
    inside = [w.found for w in table if w.found.beyond is None]
    assert np.median([f.factor for f in inside]) == pytest.approx(4, rel=0.15)
    assert {w.metric for w in table} >= {"bce", "rmse_far", "lrt_mse", "score_mse[mu]"}
    # 30k and 100k have three seeds, hence intervals; 3k has one.
    assert all((w.found.interval[0] is None) == (w.network in ("3k", "10k")) for w in table)


def test_the_page_agrees_with_the_results():
    """docs/reproduction.md says what the files in results/ say; if not:
    python -m reproduction.document"""
    text = (ROOT / "docs" / "reproduction.md").read_text()
    for part, content in sections(ROOT / "results").items():
        assert cut(text, part, "page")[1] == content


PAGE = """# Before
<!-- claims: begin -->
old
<!-- claims: end -->
between
<!-- cells: begin -->
<!-- cells: end -->
<!-- rate: begin -->
<!-- rate: end -->
after
"""


def test_the_page_is_filled_and_changes_with_a_number(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    assert fill(tmp_path / "none", page)
    assert "not yet run" in page.read_text()
    invent(tmp_path / "results", cases=("sis",), examples=False)
    assert fill(tmp_path / "results", page)
    assert not fill(tmp_path / "results", page)
    text = page.read_text()
    assert text.startswith("# Before\n")
    assert "\nbetween\n" in text
    assert text.endswith("<!-- rate: end -->\nafter\n")
    assert "47 cells" in text
    assert "ours, ASA, N = 30,000 (3)" in text
    file = cell_file(tmp_path / "results", Cell("sis", "3k", 30_000, "bce"))
    content = json.loads(file.read_text())
    content["ltest"]["metrics"]["bce"]["value"] += 0.01
    file.write_text(json.dumps(content))
    assert fill(tmp_path / "results", page)


def test_cells_at_another_rate_stand_beside_the_same_at_the_papers(tmp_path):
    results = tmp_path / "results"
    invent(results, cases=("sis",), examples=False)
    assert sections(results)["rate"] == ""
    cells = [Cell("sis", "30k", 30_000, loss, seed) for loss in ("bce", "asa") for seed in (0, 1)]
    for cell in cells:
        content = json.loads(cell_file(results, cell).read_text())
        content["ltest"]["metrics"]["bce"]["value"] = 0.125 if cell.loss == "asa" else 0.25
        other = cell_file(results / "falling", cell)
        other.parent.mkdir(parents=True, exist_ok=True)
        other.write_text(json.dumps(content))
    lines = sections(results)["rate"].split("\n")
    assert lines[0].count("paper's rate (2)") == lines[0].count("falling rate (2)") == 2
    order = [part.strip() for part in lines[0].split("|")]
    row = next(line for line in lines if "0.125" in line)
    values = [part.strip() for part in row.split("|")]
    assert values[order.index("ASA, falling rate (2)")] == "0.125 (0.125 to 0.125)"
    assert values[order.index("BCE, falling rate (2)")] == "0.25 (0.25 to 0.25)"


def test_a_page_without_markers_is_refused(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(PAGE.replace("cells: begin", "cells: end"))
    with pytest.raises(FormatError, match="needs the line <!-- cells: begin -->"):
        fill(tmp_path, page)
    assert "old" in page.read_text()  # nothing half-filled
    with pytest.raises(StorageError, match="Cannot read"):
        fill(tmp_path, tmp_path / "absent.md")


def test_files_beside_the_cells_are_left_out(tmp_path):
    invent(tmp_path, cases=("sis",), examples=False)
    assert (tmp_path / "sis" / EXACT).exists()
    assert len(load_results(tmp_path, "sis")) == 47
    assert CellBlock(("3k",), (10,)).cells("sis") == [
        Cell("sis", "3k", 10, "bce"),
        Cell("sis", "3k", 10, "asa"),
    ]


def test_times_measured_apart_replace_those_of_the_cells(tmp_path):
    cell, plan = Cell("sis", "3k", 30_000, "asa"), find_plan("sis", "committed")
    whole = invented.content("sis", cell, plan.settings(), 4.0)
    whole["training"]["batches"] = 2000
    write_result(tmp_path, cell, whole)
    before = load_results(tmp_path, "sis")[0]
    measure_times("sis", ["3k"], tmp_path, rounds=1, batches=2, report=lambda line: None)
    record = read_json(tmp_path / "sis" / TIMING)
    assert all(0 < ms < 1e3 for rounds in record["milliseconds"]["3k"].values() for ms in rounds)
    record["milliseconds"]["3k"]["asa"] = [9.0, 2.0, 1.0]  # the median counts
    write_record(tmp_path / "sis" / TIMING, record)
    after = load_results(tmp_path, "sis")[0]
    assert after.metric("seconds_per_step").value == pytest.approx(2e-3)
    assert after.metric("seconds_total").value == pytest.approx(4.0)
    assert after.metric("seconds_to_best").value == pytest.approx(4.0 * 32 / 40)
    curve = after.content["training"]["curve"]
    assert curve["seconds"][-1] == pytest.approx(4.0)
    assert len(curve["seconds"]) == len(curve["bce"])
    assert after.metric("bce") == before.metric("bce")
    # A network that was not measured keeps its own; what is no record of times is refused.
    del record["milliseconds"]["3k"]
    write_record(tmp_path / "sis" / TIMING, record)
    assert load_results(tmp_path, "sis")[0].metrics() == before.metrics()
    write_record(tmp_path / "sis" / TIMING, {"format": 1, "case": "sis"})
    with pytest.raises(FormatError, match="times"):
        load_results(tmp_path, "sis")


def command(*words, code=0):
    done = subprocess.run(
        [sys.executable, "-m", *words], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == code, done.stderr
    return done


def test_the_command_says_what_is_wrong_in_a_sentence(tmp_path, monkeypatch, capsys):
    def wrong_turn(of, *words):
        monkeypatch.setattr(sys, "argv", ["reproduction", *words])
        with pytest.raises(SystemExit) as ended:
            shell.run(of, "reproduction")
        assert ended.value.code == 2
        return capsys.readouterr().err

    (tmp_path / "file").write_text("")
    wrong = {
        ("sys",): "Did you mean 'sis'",
        ("sis", "--profile", "smok"): "Did you mean 'smoke'",
        ("sis", "--profile", "smoke", "-o", str(tmp_path / "file")): "Cannot create",
    }
    for words, said in wrong.items():
        told = wrong_turn(shell.reproduce, *words)
        assert said in told
        assert told.count("\n") == 1
    assert "No results" in wrong_turn(pages, str(tmp_path))
    by_process = command("reproduction.pages", str(tmp_path), code=2).stderr
    assert by_process.startswith("reproduction.pages: No results")
