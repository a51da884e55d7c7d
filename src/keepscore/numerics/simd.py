"""Four, eight or twelve doubles at once inside Numba functions.

Numba leaves short inner loops over columns scalar (its compiler vectorises long loops only), which
costs a factor of four in `ctmc`. Here neighbouring columns are one value, one to three of LLVM's
vectors of four doubles, so that a matrix-vector product reads as it does on paper and compiles to
packed fused multiply-adds on any processor. Columns side by side share each rate that is loaded;
more than twelve would not fit the registers. A tuple of one, two or three numbers, `shape`, says by
its length how many vectors; (0, 0) means eight doubles.

    load(a, i, shape) a[i : i + 4 len(shape)] of a contiguous float64 array (no bounds check)
    store(a, i, v)    the reverse
    zeros(shape)      0 everywhere
    axpy(r, x, y)     r * x + y, r a scalar
    fma(x, y, z)      x * y + z
    total(v)          the sum of all
    swap_neighbours(v), swap_pairs(v)    (v1, v0, v3, v2) and (v2, v3, v0, v1) of each vector

An edit here does not by itself refresh the compiled kernels of `ctmc` and `hidden_chain` on
disk: touch those files too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, no_type_check

from llvmlite import ir
from numba import types
from numba.extending import intrinsic, models, register_model

if TYPE_CHECKING:
    from numba.core.datamodel.manager import DataModelManager

LANE = 4
WIDEST = 3 * LANE
_VECTOR = ir.VectorType(ir.DoubleType(), LANE)
_INDEX = ir.IntType(32)
_FUSE = ("contract",)  # allow multiply and add to become one rounding


@no_type_check
class LanesType(types.Type):
    """The Numba type of `vectors` times four doubles."""

    def __init__(self, vectors: int) -> None:
        self.vectors = vectors
        super().__init__(name=f"Lanes{LANE * vectors}")


@register_model(LanesType)
@no_type_check
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: DataModelManager, kind: LanesType) -> None:
        super().__init__(manager, kind, ir.LiteralStructType([_VECTOR] * kind.vectors))


@no_type_check
def _pack(builder, vectors):
    value = ir.Constant(ir.LiteralStructType([_VECTOR] * len(vectors)), ir.Undefined)
    for j, vector in enumerate(vectors):
        value = builder.insert_value(value, vector, j)
    return value


@no_type_check
def _unpack(builder, value):
    return [builder.extract_value(value, j) for j in range(len(value.type.elements))]


@no_type_check
def _addresses(context, builder, signature, args, vectors):
    """Of the vectors that start at args[1] in the array args[0]."""
    array = context.make_array(signature.args[0])(context, builder, args[0])
    first = builder.bitcast(builder.gep(array.data, [args[1]]), _VECTOR.as_pointer())
    return [builder.gep(first, [ir.Constant(_INDEX, j)]) for j in range(vectors)]


@no_type_check
def _splat(builder, scalar):
    undefined = ir.Constant(_VECTOR, ir.Undefined)
    first = builder.insert_element(undefined, scalar, ir.Constant(_INDEX, 0))
    mask = ir.Constant(ir.VectorType(_INDEX, LANE), [0] * LANE)
    return builder.shuffle_vector(first, undefined, mask)


@no_type_check
def _multiply_add(builder, x, y, z):
    return builder.fadd(builder.fmul(x, y, flags=_FUSE), z, flags=_FUSE)


@intrinsic
@no_type_check
def load(typing_context, array, index, shape):
    kind = LanesType(len(shape))

    def generate(context, builder, signature, args):
        places = _addresses(context, builder, signature, args, kind.vectors)
        return _pack(builder, [builder.load(place, align=8) for place in places])

    return kind(array, types.intp, shape), generate


@intrinsic
@no_type_check
def store(typing_context, array, index, value):
    def generate(context, builder, signature, args):
        places = _addresses(context, builder, signature, args, value.vectors)
        for place, vector in zip(places, _unpack(builder, args[2]), strict=True):
            builder.store(vector, place, align=8)
        return context.get_dummy_value()

    return types.void(array, types.intp, value), generate


@intrinsic
@no_type_check
def zeros(typing_context, shape):
    def generate(context, builder, signature, args):
        return _pack(builder, [ir.Constant(_VECTOR, [0.0] * LANE)] * len(shape))

    return LanesType(len(shape))(shape), generate


@intrinsic
@no_type_check
def axpy(typing_context, scalar, x, y):
    def generate(context, builder, signature, args):
        r = _splat(builder, args[0])
        both = zip(_unpack(builder, args[1]), _unpack(builder, args[2]), strict=True)
        return _pack(builder, [_multiply_add(builder, r, a, b) for a, b in both])

    return x(types.float64, x, x), generate


@intrinsic
@no_type_check
def fma(typing_context, x, y, z):
    def generate(context, builder, signature, args):
        parts = zip(*(_unpack(builder, value) for value in args), strict=True)
        return _pack(builder, [_multiply_add(builder, *part) for part in parts])

    return x(x, x, x), generate


@intrinsic
@no_type_check
def total(typing_context, value):
    def generate(context, builder, signature, args):
        result = ir.Constant(ir.DoubleType(), 0.0)
        for vector in _unpack(builder, args[0]):
            for j in range(LANE):
                lane = builder.extract_element(vector, ir.Constant(_INDEX, j))
                result = builder.fadd(result, lane)
        return result

    return types.float64(value), generate


@no_type_check
def _shuffled(order):
    """An intrinsic that puts the doubles of each vector into another order."""

    @intrinsic
    def shuffle(typing_context, value):
        def generate(context, builder, signature, args):
            mask = ir.Constant(ir.VectorType(_INDEX, LANE), list(order))
            undefined = ir.Constant(_VECTOR, ir.Undefined)
            moved = [builder.shuffle_vector(v, undefined, mask) for v in _unpack(builder, args[0])]
            return _pack(builder, moved)

        return value(value), generate

    return shuffle


swap_neighbours = _shuffled((1, 0, 3, 2))
swap_pairs = _shuffled((2, 3, 0, 1))
