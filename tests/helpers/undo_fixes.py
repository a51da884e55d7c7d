"""Undo fixes one at a time, in a copy of the repository: a test must fail for each.

    python tests/helpers/undo_fixes.py [--control] [numbers]    (from the root of the repository)

Each entry: what was wrong, the file, the text of the fix, what stands there without it, the tests
that must notice. Exit status 1 if a fix can be undone unnoticed. With --control nothing is undone:
then no test may fail, or what the others find means nothing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
LEFT_OUT = (".git", ".venv*", "__pycache__", ".*_cache", ".hypothesis", "runs", "site", "dist")
FIXES = (
    ("a surrogate that is too sure says nothing", "training/guard.py",
     "    if not sure or not quality.whole:", "    if True:",
     "tests/training/test_information.py -k said_where"),
    ("a step out of the box counts as none", "training/information.py",
     "        counts &= inside\n", "",
     "tests/training/test_information.py -k cannot_be_told"),
    ("shares next to 0 and 1 have an edge", "networks/views.py",
     "found := bounds_of(rows[:, j])) is not None", "found := None) is not None",
     "tests/networks/test_networks_views.py -k nearly_exact"),
    ("rows on a surface have a density", "training/candidates.py",
     "return {RATIO: RATIO} if dense and _are_thin(sample) else {}", "return {}",
     "tests/networks/test_networks_views.py -k where_none_is_known"),
    ("a narrow cloud is a surface", "numerics/dimension.py",
     "np.where(variances > FLAT, variances, 1.0)", "1.0",
     "tests/numerics/test_dimension.py -k correlated"),
    ("shares of a whole have no density", "training/train.py",
     "networks.view_of(sample) if ours else networks.AS_IT_IS", "networks.AS_IT_IS",
     "tests/networks/test_networks_views.py -k nearly_exact"),
    ("shares beside other numbers lie on a plane", "networks/views.py",
     "for parts, whole in wholes_in(rows)]", "for parts, whole in []]",
     "tests/networks/test_networks_views.py -k nearly_exact"),
    ("two wholes are one", "numerics/redundancy.py",
     "whole_of(rows) if left_out.sum() <= 1 else None", "whole_of(rows)",
     "tests/numerics/test_redundancy.py -k wholes_are_found"),
    ("a total that does not fit its parts is dropped without a word", "surrogate.py",
     "    if unlike.any():\n", "    if False:\n",
     "tests/networks/test_networks_views.py -k told_where"),
    ("few held-out rows do not show which network is right", "training/candidates.py",
     "PAIRS, MOST_OTHERS = 4096, 32", "PAIRS, MOST_OTHERS = 4096, 1",
     "tests/training/test_candidates.py -k hundred"),
    ("an entry that never varied sets the scale by rounding", "networks/catalogue.py",
     "        sd = np.where(alike, np.inf, sd)", "        pass",
     "tests/networks/test_constant_entries.py"),
    ("a count that never varied sets the scale by rounding", "networks/counts.py",
     "np.where(all_alike(y), 1.0, y.std(axis=0))",
     "np.where(y.std(axis=0) > 0, y.std(axis=0), 1.0)",
     "tests/networks/test_constant_entries.py -k always_zero"),
    ("what float32 rounds away is lost without a word", "training/train.py",
     "    require_resolved_x(raw_sample(rows, RESOLUTION_ROWS))\n", "",
     "tests/training/test_resolution.py -k 1970"),
    ("many rows have a density that is too small", "networks/catalogue.py",
     " if name == AUTO_ROWS else name\n", " if False else name\n",
     "tests/networks/test_networks_mixture.py -k larger_density"),
    ("rounds cut as if every surrogate were right", "fitting/truncation.py",
     "observations * max(0.0, most - usual)", "0.0",
     "tests/fitting/test_truncation.py -k larger_drop"),
    ("a posterior that was cut away stays away", "fitting/focus.py",
     "        if not faces.any():\n", "        if True:\n",
     "tests/fitting/test_truncation.py -k cut_away"),
    ("whole bounds make an integer box", "space.py",
     "object.__setattr__(self, field_name, number)", "pass",
     "tests/package/test_input_kinds.py tests/package/test_space.py"),
    ("x is cast behind the user's back", "checks.py",
     "    if changed.any():\n", "    if False:\n", "tests/models/test_given_values.py"),
    ("user code works in place on stored arrays", "models/from_functions.py",
     "return function(theta.copy(), x.copy())", "return function(theta, x)",
     "tests/models/test_given_values.py"),
    ("a header claims more than its file holds", "npy.py",
     "    if math.prod(shape) * dtype.itemsize != size:\n", "    if False:\n",
     "tests/data/test_data_hostile.py tests/package/test_files.py"),
    ("a pipe in place of a file hangs", "files.py",
     "    if not stat.S_ISREG(os.fstat(handle).st_mode):\n", "    if False:\n",
     "tests/package/test_files.py"),
    ("no folder for compiled code", "numerics/jit.py",
     'if "cannot cache function" not in str(error):', "if True:",
     "tests/package/test_read_only.py"),
    ("laws that were not checked are said to hold", "models/laws.py",
     'return f"{found}; not checked: {\', \'.join(open_)}" if open_ else found', "return found",
     "tests/models/test_laws.py -k not_checked"),
    ("a sharp likelihood is convicted", "models/from_functions.py",
     "GOOD_DIFFERENCE, SHORTER_STEPS = 1e-4, 7", "GOOD_DIFFERENCE, SHORTER_STEPS = 1e-4, 1",
     "tests/models/test_from_functions.py -k sharp"),
    ("signs of a symmetry are ignored", "models/base.py",
     "return moved if self.theta_sign is None else", "return moved if True else",
     "tests/models/test_laws.py -k signs"),
    ("the default margin does not shrink", "space.py",
     "return 0.2 if d <= 3 else 2 * (1.1 ** (3 / d) - 1)", "return 0.2",
     "tests/package/test_space.py -k margin"),
    ("an unknown choice is compared with arrays", "checks.py",
     "if not isinstance(value, str) or value not in names:", "if value not in names:",
     "tests/package/test_checks.py"),
    ("one theta for all observations is not said", "likelihood.py",
     'f"one theta for all {n} observations (given(X, each=True): one per observation)"',
     'f"{n} observations"', "tests/models/test_grouping.py -k say_what"),
    ("standard errors of a search that did not converge", "inference/mle.py",
     "    errors = np.where(found.converged[:, None], errors, np.nan)\n", "",
     "tests/inference/test_invariants.py -k converge"),
    ("a calibrated interval beside a test that is not", "cli/infer.py",
     "if calibrated is None and (joint", "if False and (joint",
     "tests/cli/test_cli.py -k calibrated_test_agrees"),
    ("chi-square and calibrated p-values look alike", "cli/infer.py",
     'return "not calibrated"', 'return "calibrated"', "tests/cli/test_cli.py -k which_p_values"),
    ("sets cut off by the box are not told", "reports/notices.py",
     "        *_surface_edges(content),\n", "", "tests/report/test_report.py -k cut_off"),
    ("test sets cut off are not told", "reports/notices.py",
     "        *_cut_test_sets(content),\n", "", "tests/report/test_report.py -k cut_test_sets"),
    ("ArviZ 1.x is asked as 0.x", "inference/draws.py",
     'by_keyword = "posterior" in inspect.signature(make).parameters',
     'by_keyword = hasattr(_arviz(), "InferenceData")',
     "tests/inference/test_posterior.py -k both_generations"),
    ("workers cannot import a model of the current folder", "cli/own_model.py",
     "        return importlib.import_module(module)\n",
     "        found = importlib.import_module(module)\n        sys.path.remove(str(folder))\n"
     "        return found\n", "tests/cli/test_own_model.py -k worker_processes"),
    ("an import error in a worker is called out of memory", "processes.py",
     "    except ImportError as error:\n", "    except ZeroDivisionError as error:\n",
     "tests/cli/test_own_model.py -k cannot_import"),
    ("a lower bound that cannot sample", "pyproject.toml",
     '"blackjax>=1.2.5"', '"blackjax>=1.2.0"', "tests/package/test_release.py -k false"),
    ("arrays of a report under NumPy 2.5", "reports/codec.py",
     'return typing.get_origin(getattr(origin, "__value__", None)) or origin', "return origin",
     "tests/report/test_report.py -k every_numpy"),
    ("formulas are not set", "docs/site_hooks.py",
     'return INLINE.sub(lambda m: mathml(m[1], "inline"), content)', "return content",
     "tests/docs/test_site.py -k offline"),
    ("a type checker does not know ks.mle", "__init__.pyi",
     "from keepscore.inference.mle import mle as mle\n", "",
     "tests/package/test_types.py -k stub"),
    ("a surrogate of a long axis is saved and cannot be loaded", "networks/catalogue.py",
     "LARGEST_AXIS = 1 << 48", "LARGEST_AXIS = 1 << 16",
     "tests/surrogate/test_surrogate_files.py -k whatever_is_saved"),
    ("a fresh start leaves the old surrogate", "training/train.py",
     "                _forget(folder)\n", "                remove_checkpoints(folder)\n",
     "tests/training/test_another_question.py -k could_not_be_saved"),
    ("the surrogate of another run is returned", "training/train.py",
     'return kept if same_settings(settings, kept.provenance.get("training")) else None',
     "return kept", "tests/training/test_another_question.py -k another_run"),
    ("a run goes on with other data", "training/train.py",
     '"data": fingerprint(rows),\n        "validation": fingerprint(held),', '"data": len(rows),',
     "tests/training/test_another_question.py -k other_data"),
    ("an edited simulator fills up an old set", "models/identity.py",
     "return self._joined(\"code\", *(self.digest(part) for part in _of_code(value)))",
     "return \"code\"", "tests/models/test_identity.py -k edited_under"),
    ("two writers at once", "locks.py",
     "        if locked is False:\n", "        if False:\n",
     "tests/package/test_files.py -k one_writer"),
    ("two trainings in one folder", "training/train.py",
     'with only_writer(folder, "training") if folder and writes else nullcontext():',
     "with nullcontext():", "tests/training/test_another_question.py -k one_training"),
    ("shards stay open", "data/reading.py",
     "            with open_regular(path) as file:\n",
     "            with open_regular(path) as file:\n"
     "                self.checked.setdefault(-1, []).append(os.dup(file.fileno()))\n",
     "tests/data/test_data_hostile.py -k sixty_four"),
    ("a sealed file is believed whatever it holds", "files.py",
     "    if not same:\n", "    if False:\n", "tests/package/test_files.py -k sealed"),
    ("an edited best of a checkpoint is believed", "training/progress_record.py",
     '    _require(position.best == best, "best")\n', "",
     "tests/training/test_checkpoint.py -k edited_position"),
    ("a run goes on with other threads and says nothing", "training/train.py",
     "warn_of_another(engine.machine, found.machine, stacklevel=3)", "False",
     "tests/training/test_another_question.py -k number_of_threads"),
    ("live temporary files are taken for leftovers", "locks.py",
     "        if free:\n            file.unlink()\n        return free\n",
     "        file.unlink()\n        return True\n",
     "tests/package/test_files.py -k a_locked_file_stays"),
    ("damaged data are trained on", "data/reading.py",
     "rows = array.read(self.records[k].files[self.name][1])", "rows = array.read()",
     "tests/training/test_another_question.py -k flipped_bit"),
    ("a damaged shard comes out with other bytes", "data/store.py",
     "    if expected is not None and record_of(shard) != expected:\n", "    if False:\n",
     "tests/data/test_data_hostile.py -k damaged_shard"),
    ("numbers of 400 digits in JSON", "files.py",
     "parse_int=_whole_number, ", "", "tests/package/test_files.py -k not_ours"),
    ("an empty path is the current folder", "files.py",
     '    if text == "":\n', "    if False:\n", "tests/package/test_files.py -k no_path"),
    ("names move the cursor", "checks.py",
     "    if not name.isprintable():\n", "    if False:\n",
     "tests/data/test_data_hostile.py -k cursor"),
    ("a simulator that exits ends the command with 0", "data/shard.py",
     "    except (Exception, SystemExit) as error:", "    except Exception as error:",
     "tests/data/test_data_hostile.py -k that_exits"),
    ("no earlier checkpoint is kept", "training/checkpoint.py",
     "    _copy(folder / NAME, folder / PREVIOUS)\n", "",
     "tests/training/test_checkpoint.py -k one_before_used"),
    ("leftovers of a killed training stay", "training/train.py",
     "            remove_leftovers(folder)\n", "",
     "tests/training/test_another_question.py -k killed_training"),
    ("a complete set is written again", "data/store.py",
     "            if read_regular(path, LARGEST_JSON) == text:\n", "            if False:\n",
     "tests/data/test_data_hostile.py -k without_writing"),
    ("seeds that are not whole numbers", "checks.py",
     "if isinstance(n, bool) or not isinstance(n, (int, np.integer)):", "if isinstance(n, bool):",
     "tests/data/test_data_hostile.py -k wrong_arguments"),
    ("BLAS threads fight over small blocks", "numerics/threads.py",
     "    if rows > LARGE:\n", "    if True:\n", "tests/numerics/test_threads.py -k fields"),
    ("compiled programs fill a process until it dies", "networks/compilation.py",
     "    if taken <= most / 2:\n", "    if True:\n",
     "tests/training/test_shared_programs.py -k forgotten"),
    ("data without scores are refused unless a loss is named", "training/train.py",
     'loss = ASA() if getattr(data, "score", None) is not None else BCE()', "loss = ASA()",
     "tests/training/test_training.py -k follows_from"),
    ("any vector is taken for a series", "training/candidates.py",
     "if known or order_matters(np.asarray(sample, np.float64))", "if True",
     "tests/networks/test_networks_paths.py -k order_matters"),
    ("a censored time is taken for a number like any other", "networks/conditional.py",
     "    return np.append(values[again], OTHER), np.append(counts[again], others)\n",
     "    return None\n", "tests/networks/test_networks_conditional.py -k come_again"),
    ("a number beside those that come again has no density", "networks/conditional.py",
     "of_value + jnp.where(is_other, of_number, 0.0)", "of_value + 0.0 * of_number",
     "tests/networks/test_networks_conditional.py -k censored"),
)  # fmt: skip


def place(root: Path, file: str) -> Path:
    """A file of the package, or one that is named from the root of the repository."""
    inside = root / "src" / "keepscore" / file
    return inside if inside.exists() else root / file


def noticed(file: str, fix: str, without: str, tests: str) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*LEFT_OUT))
        path = place(copy, file)
        content = path.read_text()
        if fix not in content:
            raise SystemExit(f"{file} no longer holds the fix {fix!r}.")
        path.write_text(content.replace(fix, without))
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
        done = subprocess.run(
            [*command, *tests.split()],
            cwd=copy,
            env={**os.environ, "PYTHONPATH": str(copy / "src")},
            capture_output=True,
            text=True,
        )
        if done.returncode not in (0, 1):  # nothing was collected, or not even imported
            raise SystemExit(
                f"{tests} could not be run:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
            )
        return done.returncode == 1


def main() -> int:
    control = "--control" in sys.argv
    words = [word for word in sys.argv[1:] if word != "--control"]
    wrong = 0
    for number in [int(word) for word in words] or range(len(FIXES)):
        what, file, fix, without, tests = FIXES[number]
        found = noticed(file, fix, fix if control else without, tests)
        wrong += found == control
        said = {True: "noticed", False: "nothing noticed"}[found]
        print(f"{number:2d} {said}{'' if found != control else ' (WRONG)'}: {what}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
