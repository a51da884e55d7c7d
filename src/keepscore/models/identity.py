"""Which code is behind a model of functions: a fingerprint that changes when an edit could matter.

    fingerprint(f) = {"body": digest, "default.k": digest, "closure.name": ..., "global.name": ...}

The body is the bytecode with its constants and names. Beside it stand the values that the function
takes from elsewhere: defaults, closure, `self`, and globals that are data, or functions and classes
of the same package (functions of other packages count by name). So editing a simulator, or a
constant that it reads, is noticed although its name stays. Values that the code itself changes (a
counter, a cache) are its state and left out.

Nothing here depends on addresses, hash seeds, file names or line numbers, so another process finds
the same; another version of Python compiles to other bytecode and does not. Where there is no code
to look at (a function in C), the answer is "unknown".
"""

from __future__ import annotations

import dis
import functools
import hashlib
import inspect
import types
from collections.abc import Iterator
from typing import Any

import numpy as np

UNKNOWN = "unknown"
MOST_PARTS = 20_000  # beyond this, the values behind a function are too many to look at
MOST_CODES = 4_096  # whose instructions are remembered: a fingerprint is taken at every call
PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis))
OURS = __name__.partition(".")[0]  # known by its version instead
CHANGING_CALLS = {"append", "add", "update", "setdefault", "extend", "insert", "pop", "clear"}
MAKING = ("__init__", "__post_init__", "__new__")
WRAPPED = ("__wrapped__", "py_func")  # by functools, jax.jit and numba


def fingerprint(function: object) -> dict[str, str] | str:
    """Digests of a function's parts, by name; or "unknown" where there is no code to look at."""
    try:
        home = _package(function)
        return _Reader("" if home == OURS else home).parts(function) or UNKNOWN
    except Exception:  # anything may hide behind an attribute of a foreign object
        return UNKNOWN


class _Reader:
    """Walks from one function to all that it uses. `home` is the package that is looked into."""

    def __init__(self, home: str) -> None:
        self.home, self.count = home, 0
        self.path: list[int] = []  # objects on the way down, to stop at circles

    def parts(self, function: object) -> dict[str, str]:
        """The parts of a function, each with its digest."""
        function = _unwrapped(function)
        if isinstance(function, functools.partial):
            given = {f"partial.{k}": self.digest(v) for k, v in enumerate(function.args)}
            named = {f"partial.{k}": self.digest(v) for k, v in function.keywords.items()}
            return {**self.parts(function.func), **given, **named}
        if isinstance(function, types.MethodType):
            return {**self.parts(function.__func__), "self": self.digest(function.__self__)}
        if isinstance(function, types.FunctionType):
            return {name: self.digest(value) for name, value in _inputs(function)}
        if isinstance(function, type) or not callable(function):
            return {}
        call = inspect.getattr_static(type(function), "__call__")
        inside = self.parts(call) if isinstance(call, types.FunctionType) else {}
        return {**inside, "self": self.digest(function)} if inside else {}

    def digest(self, value: object) -> str:
        self.count += 1
        if self.count > MOST_PARTS:
            raise OverflowError("too many parts")
        if id(value) in self.path:
            return self._joined("circle", str(len(self.path) - self.path.index(id(value))))
        self.path.append(id(value))
        try:
            return self._digest(value)
        finally:
            self.path.pop()

    def _digest(self, value: object) -> str:
        if isinstance(value, PLAIN):
            return self._joined(type(value).__name__, repr(value))
        if isinstance(value, types.CodeType):
            return self._joined("code", *(self.digest(part) for part in _of_code(value)))
        if isinstance(value, (np.ndarray, np.generic)):
            return self._of_array(np.asarray(value))
        if isinstance(value, (list, tuple)):
            return self._joined(type(value).__name__, *(self.digest(v) for v in value))
        if isinstance(value, (set, frozenset)):
            return self._joined(type(value).__name__, *sorted(self.digest(v) for v in value))
        if isinstance(value, dict):
            return self._of_items(type(value).__name__, value)
        if isinstance(value, types.ModuleType):
            return self._joined("module", value.__name__)
        if isinstance(value, type):
            return self._of_class(value)
        if callable(value) and (_is_function(value) or not _state(value)):
            return self._of_function(value)
        if hasattr(value, "__array__"):  # arrays of other libraries
            return self._of_array(np.asarray(value))
        if _package(value) == OURS and hasattr(value, "settings"):
            state = {"settings": value.settings(), "space": getattr(value, "space", None)}
        else:
            state = _state(value)
        return self._joined("object", self.digest(type(value)), self._of_items("", state))

    def _of_function(self, function: object) -> str:
        inside = self.parts(function) if _package(function) == self.home else {}
        return self._joined("function", _name(function), self._of_items("", inside))

    def _of_class(self, kind: type) -> str:
        if _package(kind) != self.home:
            return self._joined("class", _name(kind))
        changing = _changed_by_methods(kind)
        written = {
            name: getattr(value, "__func__", getattr(value, "fget", value))
            for name, value in vars(kind).items()
            if isinstance(value, types.FunctionType)
            or not (name.startswith("__") or name in changing)
        }
        bases = [self.digest(base) for base in kind.__bases__ if base is not object]
        return self._joined("class", _name(kind), *bases, self._of_items("", written))

    def _of_items(self, kind: str, items: dict[Any, Any]) -> str:
        pairs = ((self.digest(key), self.digest(value)) for key, value in items.items())
        return self._joined(kind, *(f"{key} {value}" for key, value in sorted(pairs)))

    def _of_array(self, array: np.ndarray) -> str:
        if array.dtype.hasobject:
            return self._joined("array", *(self.digest(v) for v in array.ravel().tolist()))
        data = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
        return self._joined("array", array.dtype.str, repr(array.shape), data)

    @staticmethod
    def _joined(*texts: str) -> str:
        lengths = "".join(f"{len(text)}:{text}" for text in texts)
        return hashlib.sha256(lengths.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _inputs(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """What a function is made of and what it takes from outside, by name."""
    code = function.__code__
    changed = _changed_by(code)
    yield "body", _without_doc(code, function.__doc__)
    for k, value in enumerate(function.__defaults__ or ()):
        yield f"default.{k}", value
    for name, value in (function.__kwdefaults__ or {}).items():
        yield f"default.{name}", value
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        if name not in changed:
            yield f"closure.{name}", _content(cell)
    for name in sorted(_globals_of(code) - changed):
        if name in function.__globals__:
            yield f"global.{name}", function.__globals__[name]


def _of_code(code: types.CodeType) -> tuple[Any, ...]:
    counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    return counts, code.co_code, code.co_consts, names, code.co_exceptiontable


def _without_doc(code: types.CodeType, doc: str | None) -> types.CodeType:
    if doc is not None and code.co_consts and code.co_consts[0] == doc:
        return code.replace(co_consts=(None, *code.co_consts[1:]))
    return code


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """A code object and those of the functions defined in it."""
    yield code
    for value in code.co_consts:
        if isinstance(value, types.CodeType):
            yield from _codes(value)


@functools.lru_cache(MOST_CODES)
def _globals_of(code: types.CodeType) -> frozenset[str]:
    wanted = ("LOAD_GLOBAL", "LOAD_NAME")
    return frozenset(
        step.argval
        for inner in _codes(code)
        for step in dis.get_instructions(inner)
        if step.opname in wanted
    )


@functools.lru_cache(MOST_CODES)
def _changed_by(code: types.CodeType) -> frozenset[str]:
    """Names of outer variables and attributes that the code assigns or changes in place."""
    changed: set[str] = set()
    for inner in _codes(code):
        own = {*inner.co_cellvars}
        steps = list(dis.get_instructions(inner))
        for k, step in enumerate(steps):
            assigns = step.opname in ("STORE_GLOBAL", "STORE_ATTR", "STORE_DEREF")
            if assigns and not (step.opname == "STORE_DEREF" and step.argval in own):
                changed.add(step.argval)
            elif step.opname in ("STORE_SUBSCR", "DELETE_SUBSCR"):
                changed.add(str(_container(steps[:k])))
            elif k and step.argval in CHANGING_CALLS:
                changed.add(str(steps[k - 1].argval))
    return frozenset(changed)


def _container(before: list[dis.Instruction]) -> Any:
    """Of `container[key] = value`: the name that the container came from."""
    missing = 1  # values on the stack above the container that are not accounted for: the key
    for step in reversed(before):
        if missing == 0:
            return step.argval
        missing -= dis.stack_effect(step.opcode, step.arg)
    return None


def _state(value: object) -> dict[str, Any]:
    """The attributes of an object, without those that its methods change after it was made."""
    try:
        attributes = dict(vars(value))
    except TypeError:
        return {}
    kind: Any = type(value)
    changing = _changed_by_methods(kind)
    return {name: v for name, v in attributes.items() if name not in changing}


@functools.cache
def _changed_by_methods(kind: type) -> frozenset[str]:
    changed: set[str] = set()
    for base in kind.__mro__:
        for name, method in vars(base).items():
            if isinstance(method, functools.cached_property):
                changed.add(name)
            if isinstance(method, types.FunctionType) and name not in MAKING:
                changed |= _changed_by(method.__code__)
    return frozenset(changed)


def _unwrapped(function: object) -> Any:
    for _ in range(32):
        inner = next((getattr(function, a) for a in WRAPPED if hasattr(function, a)), None)
        if inner is None:
            return function
        function = inner
    return function


def _is_function(value: object) -> bool:
    kinds = (types.FunctionType, types.MethodType, types.BuiltinFunctionType, functools.partial)
    return isinstance(value, kinds) or any(hasattr(value, a) for a in WRAPPED)


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None


def _package(value: object) -> str:
    value = _unwrapped(value)
    if isinstance(value, functools.partial):
        return _package(value.func)
    if not isinstance(value, (type, types.FunctionType, types.MethodType)):
        value = type(value)
    return str(value.__module__ or "").partition(".")[0]


def _name(value: object) -> str:
    kind = type(value)
    module = getattr(value, "__module__", None) or kind.__module__
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", kind.__qualname__)
    return f"{module}:{name}"
