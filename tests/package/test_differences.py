"""Where two pieces of plain data differ."""

from keepscore.differences import differences


def test_each_difference_is_named_with_both_values():
    there = {"model": {"m": 4, "kind": "a"}, "n": 5, "same": [1, 2], "only": 1}
    here = {"model": {"m": 5, "kind": "a"}, "n": 5, "same": [1, 2]}
    assert list(differences(there, here)) == [
        "model.m: 4 there, 5 here",
        "only: 1 there, nothing here",
    ]
    assert list(differences(4, 5, "m", ("then", "now"))) == ["m: 4 then, 5 now"]
    assert not any(differences(there, dict(reversed(there.items()))))


def test_none_is_as_good_as_absent():
    assert not any(differences({"a": None}, {}))
    assert list(differences({"a": None}, {"a": 0})) == ["a: None there, 0 here"]


def test_short_lists_are_shown_whole_and_long_ones_by_entry():
    assert list(differences([1, 2], [1, 3], "w")) == ["w: [1, 2] there, [1, 3] here"]
    one, other = list(range(20)), [*range(19), -1]
    assert list(differences(one, other, "w")) == ["w[19]: 19 there, -1 here"]
    assert list(differences([{"a": 1}], [{"a": 2}], "p")) == ["p[0].a: 1 there, 2 here"]
    assert list(differences([1], [1, 2], "w")) == ["w: [1] there, [1, 2] here"]


def test_long_values_are_cut():
    (text,) = differences("a" * 1000, "b", "name")
    assert len(text) < 150
