"""Every public name says what it takes, gives and raises, and its example runs as it stands."""

import doctest
import inspect
import warnings

import pytest
import training_helpers  # noqa: F401  # has XLA compile quickly, not well

import keepscore as ks

SUBPACKAGES = ("models", "figures", "priors")
NEEDS = {"ks.models.from_numpyro": "numpyro"}  # the extra without which an example cannot run


def public_names():
    own = {name: getattr(ks, name) for name in ks.__all__ if name != "__version__"}
    names = {f"ks.{name}": thing for name, thing in own.items() if not inspect.ismodule(thing)}
    for package in SUBPACKAGES:
        module = getattr(ks, package)
        for name in module.__all__:
            thing = getattr(module, name)
            if callable(thing) and thing not in names.values():  # FORMATS is a tuple of words
                names[f"ks.{package}.{name}"] = thing
    return names


PUBLIC = public_names()


def takes_nothing_of_its_own(thing):
    """Errors take a message, and a protocol is never made."""
    return inspect.isclass(thing) and (
        issubclass(thing, Exception) or getattr(thing, "_is_protocol", False)
    )


def missing_sections(thing):
    """What the docstring of a function or class lacks."""
    text = inspect.getdoc(thing) or ""
    wanted = ["Example:"]
    if inspect.isclass(thing):
        wanted += [] if takes_nothing_of_its_own(thing) else ["Args:"]
    else:
        signature = inspect.signature(thing)
        wanted += ["Args:"] if signature.parameters else []
        wanted += ["Returns:"] if signature.return_annotation not in (None, "None") else []
        wanted += ["Raises:"] if "raise " in inspect.getsource(thing) else []
    return [part for part in wanted if f"\n{part}\n" not in f"\n{text}\n"]


def missing_arguments(thing):
    """Parameters that `Args:` does not name."""
    if takes_nothing_of_its_own(thing):
        return []
    block = (inspect.getdoc(thing) or "").partition("Args:")[2].split("\n\n")[0]
    said = {
        name.strip().strip("*")
        for line in block.splitlines()
        if line.startswith("    ") and not line.startswith("     ") and ":" in line
        for name in line.partition(":")[0].split(",")
    }
    return [name for name in inspect.signature(thing).parameters if name not in said]


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_is_documented(name):
    assert not missing_sections(PUBLIC[name])
    assert not missing_arguments(PUBLIC[name])


@pytest.mark.parametrize("name", PUBLIC)
def test_its_example_runs(name, tmp_path, monkeypatch):
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    monkeypatch.chdir(tmp_path)
    finder = doctest.DocTestFinder(recurse=False)
    (found,) = finder.find(PUBLIC[name], name, globs={})
    run = [e for e in found.examples if doctest.SKIP not in e.options]
    assert run, "no line of the example runs"
    with warnings.catch_warnings():
        warnings.simplefilter("error", ks.KeepscoreWarning)
        warnings.filterwarnings("ignore", "This surrogate follows the score badly")  # moments
        result = doctest.DocTestRunner(verbose=False).run(found)
    assert result.failed == 0


def test_the_checks_see_what_is_missing():
    def undocumented(first, second=1) -> int:
        """One line.

        Args:
            first: Something.
        """
        raise ValueError

    assert missing_sections(undocumented) == ["Example:", "Returns:", "Raises:"]
    assert missing_arguments(undocumented) == ["second"]
    wrong = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "wrong", None, 0)
    failed = doctest.DocTestRunner(verbose=False).run(wrong, out=lambda text: None).failed
    assert failed == 1
