"""What a release rests on: one version, a whole sdist, links that work elsewhere, and workflows."""

import importlib.util
import re
import shutil
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

import keepscore as ks

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def script(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_version_has_one_source():
    assert "version" not in PROJECT["project"]
    assert "version" in PROJECT["project"]["dynamic"]
    source = ROOT / PROJECT["tool"]["hatch"]["version"]["path"]
    assert f'__version__ = "{ks.__version__}"' in source.read_text()


def test_the_release_script_finds_every_place_that_says_otherwise(tmp_path, monkeypatch):
    checker = script(ROOT / ".ci" / "release_version.py")
    version = ks.__version__
    assert checker.source() == version
    assert not any("CITATION" in fault for fault in checker.faults(f"v{version}"))
    for name in ("CITATION.cff", "src/keepscore/__init__.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n## {version} (2030-01-01)\n")
    monkeypatch.setattr(checker, "ROOT", tmp_path)
    assert checker.faults(f"v{version}") == []
    assert checker.faults(version) == [f"The tag is {version}, the package says {version}."]
    (tmp_path / "CITATION.cff").write_text("version: 9.9\n")
    (tmp_path / "CHANGELOG.md").write_text("## Unreleased\n")
    assert len(checker.faults("v9.9")) == 3


def test_the_sdist_holds_what_the_tests_read():
    included = {
        entry.strip("/").split("/")[0]
        for entry in PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    } | {"pyproject.toml"}  # always there
    read = set()
    for path in (ROOT / "tests").rglob("*.py"):
        read |= set(re.findall(r'(?:ROOT|parents\[2\]) / f?"([^"/]+)', path.read_text()))
    assert len(read) > 8
    assert sorted(read - included) == []
    makefile = (ROOT / "Makefile").read_text()
    assert set(re.findall(r"(?<=\s)(\.ci)/", makefile)) <= included
    assert "LICENSE" in included


def test_links_of_the_readme_become_addresses(monkeypatch):
    for name in ("hatchling", "hatchling.metadata", "hatchling.metadata.plugin"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    interface = ModuleType("interface")
    interface.MetadataHookInterface = object
    monkeypatch.setitem(sys.modules, "hatchling.metadata.plugin.interface", interface)
    hook_file = script(ROOT / "hatch_build.py")
    assert hook_file.with_addresses(
        "![p](docs/a.png) [t](docs/b.md#c) [w](https://w.org) [h](#here)", "https://r", "v1"
    ) == (
        "![p](https://r/raw/v1/docs/a.png) [t](https://r/blob/v1/docs/b.md#c) "
        "[w](https://w.org) [h](#here)"
    )
    hook = hook_file.ReadmeHook()
    hook.root = str(ROOT)
    metadata = {"urls": PROJECT["project"]["urls"]}
    hook.update(metadata)
    text = metadata["readme"]["text"]
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert len(links) > 8
    assert [link for link in links if "://" not in link and not link.startswith("#")] == []
    start = f"{PROJECT['project']['urls']['Source']}/(?:blob|raw)/v{ks.__version__}/"
    ours = [re.sub(start, "", link) for link in links if re.match(start, link)]
    assert len(ours) > 5
    assert [path for path in ours if not (ROOT / path.split("#")[0]).exists()] == []


def test_the_workflows_test_what_the_classifiers_promise():
    yaml = pytest.importorskip("yaml")
    flows = {path.stem: yaml.safe_load(path.read_text()) for path in WORKFLOWS}
    assert set(flows) == {"tests", "docs", "release"}
    promised = {
        words.rsplit(" ", 1)[1]
        for words in PROJECT["project"]["classifiers"]
        if re.fullmatch(r"Programming Language :: Python :: 3\.\d+", words)
    }
    assert promised == {"3.11", "3.12", "3.13"}
    jobs = flows["tests"]["jobs"]
    assert {"lint", "pinned", "newest", "lowest"} <= set(jobs)
    for job in (jobs["newest"], flows["release"]["jobs"]["test"]):
        assert set(job["strategy"]["matrix"]["python"]) == promised
    assert flows["release"]["jobs"]["publish"]["needs"] == "test"
    assert flows["release"]["jobs"]["test"]["needs"] == "build"
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
    asked = {word for path in WORKFLOWS for word in re.findall(r"make ([\w-]+)", path.read_text())}
    assert asked >= {"lint", "docs", "test-newest", "test-lowest"}
    assert asked <= targets
    for path in re.findall(r"\.ci/[\w.]+", "".join(p.read_text() for p in WORKFLOWS)):
        assert (ROOT / path).exists()


def test_workflows_may_only_read_except_to_publish():
    """What a job may do is written down, and only the last one may speak to the index."""
    yaml = pytest.importorskip("yaml")
    for path in WORKFLOWS:
        flow = yaml.safe_load(path.read_text())
        assert flow["permissions"] == {"contents": "read"}
        for name, job in flow["jobs"].items():
            wanted = {"id-token": "write"} if name == "publish" else None
            assert job.get("permissions") == wanted
            assert job["timeout-minutes"] <= (180 if name == "slow" else 60)
            # Words from outside (a tag, a branch, a title) never become part of a command.
            commands = [step.get("run", "") for step in job["steps"]]
            assert not any("github." in command for command in commands)
    publish = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())
    assert publish["jobs"]["publish"]["environment"] == "release"


def test_forms_of_the_repository_can_be_read():
    yaml = pytest.importorskip("yaml")
    forms = ROOT / ".github" / "ISSUE_TEMPLATE"
    for name in ("bug", "idea"):
        form = yaml.safe_load((forms / f"{name}.yml").read_text())
        assert form["name"]
        assert form["description"]
        fields = [part for part in form["body"] if part["type"] != "markdown"]
        assert len({part["id"] for part in fields}) == len(fields) >= 3
        assert all(part["attributes"]["label"] for part in fields)
    contact = yaml.safe_load((forms / "config.yml").read_text())["contact_links"][0]["url"]
    assert contact in (ROOT / "SECURITY.md").read_text()
    assert contact.startswith(PROJECT["project"]["urls"]["Source"])


def test_no_lower_bound_is_one_that_was_found_false():
    """With these versions training or sampling fails, though they install; `make test-lowest`
    runs all tests on the bounds themselves."""
    false = {"equinox": (0, 12), "blackjax": (1, 2, 4), "pandas": (2, 2, 1)}
    every = [
        *PROJECT["project"]["dependencies"],
        *PROJECT["project"]["optional-dependencies"]["pandas"],
    ]
    bounds = dict(re.fullmatch(r"([\w-]+)>=([\d.]+)", wanted).groups() for wanted in every)
    for name, version in false.items():
        assert tuple(int(part) for part in bounds[name].split(".")) > version
