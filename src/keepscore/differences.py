"""Where two pieces of plain data differ, by name.

Settings of runs, plans of data sets, identities of cached results and descriptions of machines are
plain data: nested dictionaries and lists, as JSON holds them. A difference is
always told in the same words: "model.settings.m: 4 there, 5 here".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeGuard

Plain = object  # what JSON can hold
SHORT = 8  # a list of so many numbers or words is shown whole
WIDEST = 100  # characters of one value
NOTHING = "nothing"


def differences(
    there: Plain, here: Plain, name: str = "", words: tuple[str, str] = ("there", "here")
) -> Iterator[str]:
    """Each difference as 'name: one value there, another here'; `words` stand after the values."""
    if isinstance(there, Mapping) and isinstance(here, Mapping):
        for key in sorted({*there, *here}, key=str):
            inner = f"{name}.{key}" if name else str(key)
            if key in there and key in here:
                yield from differences(there[key], here[key], inner, words)
            elif (there if key in there else here)[key] is not None:  # None is as good as absent
                was = _shown(there[key]) if key in there else NOTHING
                now = _shown(here[key]) if key in here else NOTHING
                yield _sentence(inner, was, now, words)
    elif _are_long(there) and _are_long(here) and len(there) == len(here):
        for k, (a, b) in enumerate(zip(there, here, strict=True)):
            yield from differences(a, b, f"{name}[{k}]", words)
    elif there != here:
        yield _sentence(name, _shown(there), _shown(here), words)


def _sentence(name: str, there: str, here: str, words: tuple[str, str]) -> str:
    return f"{name or 'value'}: {there} {words[0]}, {here} {words[1]}"


def _shown(value: Plain) -> str:
    text = repr(value)
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 3]}..."


def _are_long(values: Plain) -> TypeGuard[Sequence[Plain]]:
    """Whether values are better compared one by one: many of them, or lists and such within."""
    if not isinstance(values, (list, tuple)):
        return False
    return len(values) > SHORT or any(isinstance(v, (Mapping, list, tuple)) for v in values)
