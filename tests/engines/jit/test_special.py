"""Special functions of compiled code: each within its stated bound of the exact value, and right at the ends."""

import ctypes
import math

import numpy as np
import pytest
from llvmlite import ir

from regard.engines.jit.code import build, special
from regard.engines.jit.code.ir import F32, PTR, Code, vector
from regard.engines.jit.code.target import host, limited
from tests.support.machine import each_isa

INF, NAN = math.inf, math.nan
LANES = 4


def compiled(name: str):
    """The function over arrays whose length is a multiple of LANES."""
    module = ir.Module(name)
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [PTR, PTR]), name)
    code = Code(function.append_basic_block("entry"))
    count = code.get(function.args[1], code.index(0).type)
    with code.loop(code.index(0), count, LANES) as loop:
        place = code.at(function.args[0], code.mul(loop.index, code.index(4)))
        x = code.get(place, vector(F32, LANES))
        more = (code.number(1.0, x), code.number(-127.0, x)) if name == "softmax_exp2" else ()
        code.put(getattr(special, name)(code, x, *more), place)
    code.ret_void()
    kernel = build.compiled(f"test {name} {special.__file__}", host(), lambda: module, name)

    def call(x):
        padded = np.pad(x, (0, -x.size % LANES))
        length = ctypes.c_int64(padded.size)
        kernel.call(padded.ctypes.data, ctypes.addressof(length), 1)
        return padded[: x.size]

    return call


def ulps(found, exact):
    """The distance in units in the last place of the exact value."""
    exact = np.asarray(exact, np.float64)
    rounded = np.abs(exact).astype(np.float32)
    unit = np.spacing(np.maximum(rounded, np.float32(1.2e-38))).astype(np.float64)
    return np.abs(found.astype(np.float64) - exact) / unit


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


# name, and which part of its domain: (exact, domain, units in the last place)
BOUNDS = {
    "softmax_exp2": (np.exp2, (-126.0, 0.0), 2),
    "exp2": (np.exp2, (-126.0, 127.9), 2),
    "exp": (np.exp, (-87.0, 88.7), 2),
    "expm1": (np.expm1, (-20.0, 88.7), 4),
    "tanh": (np.tanh, (-12.0, 12.0), 4),
    # Derivatives multiply by the distance from 1, so near 1 half a unit is as much as rounding must lose.
    "tanh, near -1": (np.tanh, (-12.0, -2.0), 0.6),
    "tanh, near 1": (np.tanh, (2.0, 12.0), 0.6),
    "sigmoid": (sigmoid, (-80.0, 80.0), 4),
    "sigmoid, near 1": (sigmoid, (3.0, 20.0), 0.6),
    "log2": (np.log2, (1e-38, 1e38), 3),
    "log": (np.log, (1e-38, 1e38), 3),
    "log1p": (np.log1p, (-0.999, 1e6), 4),
}


@each_isa
@pytest.mark.parametrize("name", BOUNDS)
def test_bound(name, isa):
    """The stated bound holds over the domain, near zero, and on every kind of vector unit."""
    exact, (lo, hi), bound = BOUNDS[name]
    rng = np.random.default_rng(0)
    points = [rng.uniform(lo, hi, 100_000)]
    points += [sign * np.geomspace(1e-30, min(abs(lo) or hi, abs(hi) or abs(lo)), 20_000) for sign in (-1, 1)]
    name = name.partition(",")[0]
    if "log" in name:
        points = [np.exp(rng.uniform(math.log(max(lo, 1e-38)), math.log(hi), 100_000)), rng.uniform(0.5, 2.0, 100_000)]
        points += [rng.uniform(-0.9, 1.0, 100_000), np.geomspace(1e-30, 1, 10_000)] if name == "log1p" else []
    x = np.concatenate(points).astype(np.float32)
    x = x[(x >= lo) & (x <= hi)]
    with limited(isa):
        worst = ulps(compiled(name)(x), exact(x.astype(np.float64))).max()

    assert worst <= bound


@pytest.mark.parametrize("name", sorted({name.partition(",")[0] for name in BOUNDS}))
def test_ends(name):
    """Zeros, infinities and NaN, and numbers beyond both ends of float32, come out as mathematics has them."""
    x = [0, -127, -1e9, -INF, NAN]
    x += [] if name == "softmax_exp2" else [1, -1, -2, 1e-30, 2.0**-140, 89, -110, 128, -200, INF]
    with np.errstate(all="ignore"):
        wanted = BOUNDS[name][0](np.array(x, float)).astype(np.float32)
    np.testing.assert_allclose(compiled(name)(np.array(x, np.float32)), wanted, rtol=4e-7, atol=1e-38)
