"""Eight doubles at once inside Numba functions.

Numba leaves short inner loops over columns scalar (its compiler vectorises long loops only), which
costs a factor of three in `ctmc`. Here eight neighbouring columns are one value of LLVM's vector
type, so that a matrix-vector product reads as it does on paper and compiles to packed fused
multiply-adds on any processor:

    load(a, i)        a[i : i + 8] of a contiguous float64 array (no bounds check)
    store(a, i, v)    a[i : i + 8] = v
    zeros()           0 in all eight
    axpy(r, x, y)     r * x + y, r a scalar
    fma(x, y, z)      x * y + z
    total(v)          the sum of the eight

An edit here does not by itself refresh the compiled kernels of `ctmc` on disk: touch that file too.
"""

from __future__ import annotations

from typing import Any, no_type_check

from llvmlite import ir
from numba import types
from numba.extending import intrinsic, models, register_model

WIDTH = 8
_VECTOR = ir.VectorType(ir.DoubleType(), WIDTH)
_INDEX = ir.IntType(32)
_FUSE = ("contract",)  # allow multiply and add to become one rounding


@no_type_check
class LanesType(types.Type):
    """The Numba type of eight doubles."""

    def __init__(self) -> None:
        super().__init__(name=f"Lanes{WIDTH}")


_lanes = LanesType()


@register_model(LanesType)
@no_type_check
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _VECTOR)


@no_type_check
def _address(context, builder, signature, args):
    array = context.make_array(signature.args[0])(context, builder, args[0])
    return builder.bitcast(builder.gep(array.data, [args[1]]), _VECTOR.as_pointer())


@no_type_check
def _splat(builder, scalar):
    undefined = ir.Constant(_VECTOR, ir.Undefined)
    first = builder.insert_element(undefined, scalar, ir.Constant(_INDEX, 0))
    mask = ir.Constant(ir.VectorType(_INDEX, WIDTH), [0] * WIDTH)
    return builder.shuffle_vector(first, undefined, mask)


@no_type_check
def _multiply_add(builder, x, y, z):
    return builder.fadd(builder.fmul(x, y, flags=_FUSE), z, flags=_FUSE)


@intrinsic
@no_type_check
def load(typing_context, array, index):
    def generate(context, builder, signature, args):
        return builder.load(_address(context, builder, signature, args), align=8)

    return _lanes(array, types.intp), generate


@intrinsic
@no_type_check
def store(typing_context, array, index, value):
    def generate(context, builder, signature, args):
        builder.store(args[2], _address(context, builder, signature, args), align=8)
        return context.get_dummy_value()

    return types.void(array, types.intp, _lanes), generate


@intrinsic
@no_type_check
def zeros(typing_context):
    def generate(context, builder, signature, args):
        return ir.Constant(_VECTOR, [0.0] * WIDTH)

    return _lanes(), generate


@intrinsic
@no_type_check
def axpy(typing_context, scalar, x, y):
    def generate(context, builder, signature, args):
        return _multiply_add(builder, _splat(builder, args[0]), args[1], args[2])

    return _lanes(types.float64, _lanes, _lanes), generate


@intrinsic
@no_type_check
def fma(typing_context, x, y, z):
    def generate(context, builder, signature, args):
        return _multiply_add(builder, *args)

    return _lanes(_lanes, _lanes, _lanes), generate


@intrinsic
@no_type_check
def total(typing_context, value):
    def generate(context, builder, signature, args):
        lane = [builder.extract_element(args[0], ir.Constant(_INDEX, j)) for j in range(WIDTH)]
        result = lane[0]
        for other in lane[1:]:
            result = builder.fadd(result, other)
        return result

    return types.float64(_lanes), generate
