"""Notebooks say what their pages say."""

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs"))
from make_notebooks import notebook, notebooks  # noqa: E402


@pytest.mark.parametrize("file", notebooks(), ids=lambda file: file.name)
def test_notebooks_are_in_step_with_their_pages(file):
    assert file.read_text() == notebooks()[file], "run python docs/make_notebooks.py"


@pytest.mark.parametrize("file", notebooks(), ids=lambda file: file.name)
def test_their_code_compiles_and_has_outputs(file):
    content = json.loads(file.read_text())
    code = [c for c in content["cells"] if c["cell_type"] == "code"]
    assert code
    for cell in code:
        compile("".join(cell["source"]), file.name, "exec")
    assert any(cell["outputs"] for cell in code)


def test_a_page_becomes_text_code_and_outputs():
    page = "# A page\n\n```python\nprint(1)\n```\n\n<!-- output 1 -->\n\n```text\n1\n```\n\nEnd.\n"
    cells = notebook(page)["cells"]
    assert [c["cell_type"] for c in cells] == ["markdown", "code", "markdown"]
    assert cells[1]["source"] == ["print(1)"]
    assert cells[1]["outputs"][0]["text"] == ["1\n"]
