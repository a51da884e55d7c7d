"""The examples in the docstrings of figures, scorecards and reports run as they stand."""

import doctest

import pytest

import keepscore as ks

NAMES = ("surface", "profile", "pairs", "training", "scorecard", "pilot", "save_figure")
FUNCTIONS = {f"figures.{name}": getattr(ks.figures, name) for name in NAMES} | {
    "report": ks.report,
    "scorecard": ks.scorecard,
    "worth": ks.worth,
    "equivalence": ks.equivalence,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_example_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    function = FUNCTIONS[name]
    for part in ("Args:", "Returns:", "Example:"):
        assert part in (function.__doc__ or ""), f"{name} has no {part}"
    (found,) = doctest.DocTestFinder(recurse=False).find(function, name, globs={})
    assert found.examples
    result = doctest.DocTestRunner(verbose=False).run(found)
    assert result.failed == 0
