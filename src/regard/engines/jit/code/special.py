"""Special functions on vectors of float32: range reduction and a polynomial each, with error bounds in ulp.

Coefficients are minimax fits on the reduced range (bench/fit_polynomials.py); the bounds are tested in
tests/engines/jit/test_special.py. float64 (masks only) and rare functions call the C library, lane by lane.
"""

from __future__ import annotations

import math

from .ir import F32, F64, I32, Code, element, lane_count, vector

LOG2E = math.log2(math.e)
LN2_HI, LN2_LO = 0.693145751953125, 1.4286068203094172e-06  # their sum is ln 2; HI has 15 bits, so n·HI is exact

# Adding 1.5·2**23 rounds to an integer, which is then in the low bits: two cheap steps instead of conversions.
MAGIC = 12582912.0
FLOOR = {F32: -127.0, F64: -1023.0}  # 2 to this power counts as 0
MAGIC_64 = 6755399441055744.0  # 1.5·2**52, for float64
# 2**f on [-1/2, 1/2]: relative error 6e-9
EXP2 = [1.0, 0.6931472420692444, 0.24022653698921204, 0.055502891540527344, 0.009617680683732033, 0.0013410596875473857,
        0.0001556793285999447]  # fmt: skip
# the same for float64, where the Taylor polynomial is as good: relative error 4e-18
EXP2_64 = [math.log(2) ** n / math.factorial(n) for n in range(14)]
# (e**f - 1) / f on [-ln2/2, ln2/2]: relative error 1e-9
EXPM1 = [
    1.0,
    0.5,
    0.1666666716337204,
    0.04166648909449577,
    0.008333072997629642,
    0.0013933501904830337,
    0.00020056717039551586,
]
# 2·(atanh(s)/s - 1)/s² in powers of s², |s| <= 0.1716: absolute error 2e-8, which counts s² times
ATANH = [0.6666666865348816, 0.3999888002872467, 0.2866138517856598, 0.20852060616016388]


def power_of_two(code: Code, n):
    """2**n for an integral float n in [-127, 127]; -127 gives 0."""
    ints = code.fptosi(n, vector(I32, lane_count(n)))
    biased = code.shl(code.add(ints, 127), 23)
    return code.bitcast(biased, n.type)


def softmax_exp2(code: Code, x, factor, lowest):
    """2**(factor · x) for x <= 0, the kernel's inner loop: ≤ 2 ulp; exactly 0 at and below `lowest`, so for -inf; NaN
    for NaN. The product is never rounded separately, which matters where it is large.

    lowest: `FLOOR` of the type / factor.
    """
    # The comparison is false for NaN, so NaN passes.
    x = code.select(code.fcmp_ordered("<", x, lowest), lowest, x)
    single = element(x) == F32
    magic = code.number(MAGIC if single else MAGIC_64, x)
    shifted = code.fma(x, factor, magic)
    whole = code.fsub(shifted, magic)
    bits = code.as_bits(shifted)
    bias, place = (127, 23) if single else (1023, 52)
    scale = code.bitcast(code.shl(code.add(bits, bias), place), x.type)
    return code.fmul(code.horner(code.fma(x, factor, code.fneg(whole)), EXP2 if single else EXP2_64), scale)


def _scaled(code: Code, value, n):
    """value · 2**n in two steps, so that neither overflows before the product does."""
    half = code.intrinsic("floor", code.fmul(n, 0.5))
    return code.fmul(code.fmul(value, power_of_two(code, half)), power_of_two(code, code.fsub(n, half)))


def _clamped(code: Code, x, lo: float, hi: float):
    """x in [lo, hi]; NaN passes."""
    x = code.select(code.fcmp_ordered("<", x, lo), lo, x)
    return code.select(code.fcmp_ordered(">", x, hi), hi, x)


def _reduced(code: Code, x):
    """x = n·ln2 + f, |f| <= ln2/2: (n, f)."""
    n = code.intrinsic("roundeven", code.fmul(x, LOG2E))
    f = code.fma(n, -LN2_HI, x)
    return n, code.fma(n, -LN2_LO, f)


def exp(code: Code, x):
    """e**x: ≤ 2 ulp; 0 on underflow and inf on overflow."""
    n, f = _reduced(code, _clamped(code, x, -105.0, 89.0))
    return _scaled(code, code.fma(f, code.horner(f, EXPM1), 1.0), n)


def exp2(code: Code, x):
    """2**x: ≤ 2 ulp; 0 on underflow and inf on overflow."""
    x = _clamped(code, x, -151.0, 129.0)
    n = code.intrinsic("roundeven", x)
    return _scaled(code, code.horner(code.fsub(x, n), EXP2), n)


def expm1(code: Code, x):
    """e**x - 1, accurate near 0: 2**n·(e**f - 1) + (2**n - 1): ≤ 4 ulp."""
    # From e**20 on the -1 is lost to rounding.
    near = _expm1_near(code, _clamped(code, x, -20.0, 20.0))
    return code.select(code.fcmp_ordered(">", x, 20.0), exp(code, x), near)


def _expm1_near(code: Code, x):
    """e**x - 1 for |x| <= 20, where 2**n cannot overflow."""
    magic = code.number(MAGIC, x)
    shifted = code.fma(x, LOG2E, magic)
    n = code.fsub(shifted, magic)
    f = code.fma(n, -LN2_LO, code.fma(n, -LN2_HI, x))
    bits = code.as_bits(shifted)
    top = code.bitcast(code.shl(code.add(bits, 127), 23), x.type)
    return code.fma(top, code.fmul(f, code.horner(f, EXPM1)), code.fsub(top, 1.0))


def tanh(code: Code, x):
    """(e**2|x| - 1) / (e**2|x| + 1) by expm1, with the sign of x: ≤ 4 ulp, also near 0. From 1/2 on it is
    1 - 2 / (e**2|x| + 1): ≤ 0.6 ulp from 2 on, because the derivative is the difference of tanh² from 1.
    """
    size = code.abs(x)
    m = _expm1_near(code, _clamped(code, code.fadd(size, size), -20.0, 20.0))
    far = code.fcmp_ordered(">", size, 0.5)
    ratio = code.fdiv(code.select(far, 2.0, m), code.fadd(m, 2.0))
    return code.intrinsic("copysign", code.select(far, code.fsub(1.0, ratio), ratio), x)


def sigmoid(code: Code, x):
    """r = e**-|x| / (1 + e**-|x|), or 1 - r for positive x: ≤ 4 ulp, and ≤ 0.6 ulp from 3 on, because the derivative
    has the factor 1 - sigmoid.
    """
    power = exp(code, code.fneg(code.abs(x)))
    ratio = code.fdiv(power, code.fadd(1.0, power))
    return code.select(code.fcmp_ordered(">", x, 0.0), code.fsub(1.0, ratio), ratio)


def log2(code: Code, x):
    """The logarithm to base 2: ≤ 3 ulp; -inf at 0, NaN below."""
    return _logarithm(code, x, lambda m, e: code.fma(m, LOG2E, e))


def log(code: Code, x):
    """The natural logarithm: ≤ 3 ulp; -inf at 0, NaN below."""
    if element(x) == F64:
        return library(code, "log", x)
    return _logarithm(
        code,
        x,
        lambda m, e: code.fma(e, LN2_HI, code.fma(e, LN2_LO, m)),
    )


def _logarithm(code: Code, x, combine):
    """combine(ln(mantissa), exponent), the mantissa in [√½, √2)."""
    tiny = code.fcmp_ordered("<", x, 1.1754943508222875e-38)  # denormals: scale up first
    y = code.select(tiny, code.fmul(x, 8388608.0), x)
    bits = code.as_bits(y)
    # Subtracting the bit pattern of √½ makes the exponent field count from √½ instead of from 1.
    offset = code.sub(bits, 0x3F3504F3)
    exponent = code.ashr(offset, 23)
    mantissa = code.bitcast(code.sub(bits, code.shl(exponent, 23)), x.type)
    e = code.fsub(code.sitofp(exponent, x.type), code.select(tiny, code.number(23.0, x), code.number(0.0, x)))
    d = code.fsub(mantissa, 1.0)
    s = code.fdiv(d, code.fadd(mantissa, 1.0))
    square = code.fmul(s, s)
    # ln m = 2 atanh(s) = d - s·(d - 2·(atanh(s)/s - 1)·…): the leading term d is exact.
    rest = code.fmul(square, code.horner(square, ATANH))
    found = combine(code.fsub(d, code.fmul(s, code.fsub(d, rest))), e)
    found = code.select(code.fcmp_ordered("==", x, 0.0), -math.inf, found)
    found = code.select(code.fcmp_ordered("==", x, math.inf), x, found)
    return code.select(code.fcmp_unordered("<", x, 0.0), math.nan, found)


def log1p(code: Code, x):
    """log(1 + x), accurate near 0: the logarithm of the rounded sum, corrected by the rounding error."""
    total = code.fadd(1.0, x)
    lost = code.fsub(x, code.fsub(total, 1.0))
    corrected = code.fadd(log(code, total), code.fdiv(lost, total))
    exact = code.fcmp_unordered("==", total, 1.0)  # x is below one unit in the last place of 1
    finite = code.fcmp_ordered("<", total, math.inf)
    positive = code.fcmp_ordered(">", total, 0.0)
    return code.select(exact, x, code.select(code.and_(finite, positive), corrected, log(code, total)))


LIBRARY = (
    "sin",
    "cos",
    "tan",
    "atan",
    "erf",
    "pow",
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log1p",
    "tanh",
    "sqrt",
    "fmod",
)


def library(code: Code, name: str, *args):
    """The C library's function applied lane by lane: slow, with the accuracy of the library."""
    inner = element(args[0])
    spelled = name + ("f" if inner == F32 else "")
    return code.per_lane(lambda *scalars: code.external(spelled, inner, *scalars), inner, *args)
