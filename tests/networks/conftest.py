"""Networks called outside `jit` are compiled whole, as the library does, not by operation.

Every operation alone costs some thirty milliseconds to trace and compile, and a network has dozens.
Tests that change what a network reads from its module (`monkeypatch`) call it as it is: a compiled
program would not see the change.
"""

import equinox as eqx
import jax
import pytest

METHODS = ("features", "head", "log_density", "table")


def _is_traced(arguments):
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(arguments))


def _compiled(method):
    whole = eqx.filter_jit(method)

    def call(self, *arguments):
        return (
            method(self, *arguments) if _is_traced((self, arguments)) else whole(self, *arguments)
        )

    return call


def _families(cls=eqx.Module):
    for child in cls.__subclasses__():
        if child.__module__.startswith("keepscore.networks"):
            yield child
        yield from _families(child)


@pytest.fixture(scope="session")
def compiled_methods():
    """Class, name and compiled method of every network, each once for all tests."""
    import keepscore.networks.catalogue  # noqa: F401

    own = {(c, n): c.__dict__[n] for c in set(_families()) for n in METHODS if n in c.__dict__}
    return {
        key: _compiled(method)
        for key, method in own.items()
        if callable(method) and not getattr(method, "__isabstractmethod__", False)
    }


@pytest.fixture(autouse=True)
def _whole_networks_are_compiled(request, compiled_methods):
    if "monkeypatch" in request.fixturenames:
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        for (cls, name), method in compiled_methods.items():
            patch.setattr(cls, name, method)
        yield
