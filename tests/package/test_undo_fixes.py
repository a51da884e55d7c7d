"""The list of fixes that can be undone (tests/helpers/undo_fixes.py) fits the code."""

import re

from undo_fixes import FIXES, ROOT, place


def test_every_fix_is_still_there_and_its_tests_too():
    """The list itself takes long to run; that it has not gone stale is seen at a glance."""
    for what, file, fix, without, tests in FIXES:
        assert place(ROOT, file).read_text().count(fix) > 0, what
        assert fix != without, what
        files = [word for word in tests.split() if word.startswith("tests/")]
        assert files, what
        content = "".join((ROOT / name).read_text() for name in files)
        if " -k " in tests:
            words = tests.split(" -k ")[1]
            assert re.search(rf"def test_\w*{words}", content), what


def test_no_fix_is_listed_twice():
    assert len({entry[0] for entry in FIXES}) == len(FIXES) > 40
