"""Keys and values in 8 bits: an element is a signed integer times the float32 scale of its row, rounded to the dtype.

These are the numbers that the cache shows (`KVCache.keys`), so a kernel that reads them has the results of one that
reads copies of them in the dtype, from a quarter or half of the bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...code.formats import Format
from ...code.ir import BYTE, F32, F64, Code, vector

SCALES = {"k": "k_scales", "v": "v_scales"}  # the arguments that hold them


def elements(code: Code, form: Format, row, scale_at) -> Callable[[Any, int], Any]:
    """read(depth, lanes): adjacent elements of a row, in the type in which its dtype is stored.

    row, scale_at: the addresses of its integers and of its scale.
    """
    scale = code.get(scale_at, F32)

    def read(depth, lanes: int = 1):
        integers = code.get(code.at(row, depth), vector(BYTE, lanes))
        value = code.fmul(code.sitofp(integers, vector(F32, lanes)), code.splat(scale, lanes))
        if form.wide:
            return code.fpext(value, vector(F64, lanes)) if form.real == F64 else value
        # One instruction instead of ten; it makes denormals 0, as the products of pairs do with what they read.
        return code.brain(value) if form.pairs and lanes > 1 else form.rounded(code, value)

    return read
