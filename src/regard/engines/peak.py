"""Peak: the measured limits of this machine: fused multiply-adds and dot products in registers, and memory bandwidth.

The loops are generated for the vectors that kernels use (the widest of this CPU, unless REGARD_TARGET restricts them),
so that an engine is compared with a measurement and not with a data sheet.
"""

from __future__ import annotations

import ctypes
import functools
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from llvmlite import ir

from ..common.dtypes import FLOATS
from .jit.code import build
from .jit.code.ir import F32, I32, I64, PTR, Code, vector
from .jit.code.target import Target, host
from .jit.threads import count

STEPS = 4_000_000  # of the multiply-add loop: some 20 to 50 ms
BYTES = 512 << 20  # read by all threads together: far larger than any cache
TRIES = 5  # the best counts, because a peak is a limit


@dataclass(frozen=True)
class Peak:
    """Peak rates: float32 GFLOP/s with one thread and with all, bfloat16 dot-product GFLOP/s with all (NaN without an
    instruction for them), and GB/s of reading memory with all. An FMA counts as two operations.
    """

    one: float
    all: float
    dot: float
    read: float
    lanes: int
    threads: int

    def of(self, dtype: str) -> float:
        """GFLOP/s with all threads for numbers of a dtype: half for float64, dot products for bfloat16 where there are
        any.
        """
        if FLOATS[dtype].sums == "float64":
            return self.all / 2
        return self.dot if dtype == "bfloat16" and not math.isnan(self.dot) else self.all


def measure(memory: bool = True) -> Peak:
    """All peaks of this machine, in about two seconds; with memory=False `read` is NaN, and it takes half a second."""
    lanes, chains = shape(host())
    threads = count()
    found = loops(host())
    fma, dot = found.fma, found.dot
    flops = 2.0 * lanes * chains * STEPS

    def best(loop: Callable[..., float], threads: int) -> float:
        return max(threads * flops / together(lambda part: loop(STEPS), threads) for _ in range(TRIES))

    one, every = best(fma, 1), best(fma, threads)
    pairs = 2 * best(dot, threads) if dot else math.nan
    return Peak(
        one / 1e9, every / 1e9, pairs / 1e9, reading(threads, lanes) / 1e9 if memory else math.nan, lanes, threads
    )


def reading(threads: int, lanes: int, size: int = BYTES) -> float:
    """Bytes per second that all threads together read from memory; size: bytes, far more than any cache has."""
    read = loops(host()).read
    data = np.ones(size // 4, np.float32)
    share = len(data) // threads // (8 * lanes) * (8 * lanes)
    parts = [data[share * n : share * (n + 1)] for n in range(threads)]
    return max(
        4 * share * threads / together(lambda n: read(parts[n].ctypes.data, share), threads) for _ in range(TRIES)
    )


def together(work: Callable[[int], object], threads: int) -> float:
    """Seconds from the first start to the last end of `work(n)` on `threads` threads; ctypes releases the GIL."""
    gate = threading.Barrier(threads)
    spans: list[tuple[float, float]] = []

    def worker(n: int) -> None:
        gate.wait()
        start = time.perf_counter()
        work(n)
        spans.append((start, time.perf_counter()))

    crew = [threading.Thread(target=worker, args=(n,)) for n in range(threads)]
    for thread in crew:
        thread.start()
    for thread in crew:
        thread.join()
    return max(end for _, end in spans) - min(start for start, _ in spans)


def shape(target: Target) -> tuple[int, int]:
    """Lanes of a vector, and the number of independent chains that fit the registers together with two constants."""
    many = target.tile.vector == 64 or target.triple.startswith(("aarch64", "arm64"))  # 32 registers; others have 16
    return target.lanes(4), 24 if many else 12


class Loops(NamedTuple):
    """The loops as functions: fma(steps), read(address, floats) and, if the CPU has the instruction, dot(steps)."""

    fma: Callable[..., float]
    read: Callable[..., float]
    dot: Callable[..., float] | None


@functools.cache
def loops(target: Target) -> Loops:
    """The loops, compiled for the target."""
    address = build.compiled("peak", target, lambda: write(target), "fma").engine.get_function_address
    steps = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_int64)
    read = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_void_p, ctypes.c_int64)(address("read"))
    return Loops(steps(address("fma")), read, steps(address("dot")) if target.tile.pairs else None)


def write(target: Target) -> ir.Module:
    """The module with the loops, each of several independent chains of sums.

    fma(steps): x ← x · 0.5 + 0.5, each step waiting for the one before it in its own chain only. dot(steps): x ← x +
    0.5 · 0.5 + 0.5 · 0.5, of pairs of bfloat16. read(address, floats): the sum of an array.
    """
    lanes, chains = shape(target)
    module = ir.Module("regard")
    halves = ir.Constant(ir.VectorType(I32, lanes), [0x3F003F00] * lanes)  # two of bfloat16 in a word
    starts = [float(chain) for chain in range(chains)]  # different, so that no two chains can be merged

    def add_numbers(code: Code, x, place):
        return code.fadd(x, code.get(code.at(code.function.args[0], place, 4), x.type, 4))

    _loop(module, "fma", [I64], lanes, starts, lambda code, x, _: code.fma(x, code.number(0.5, x), 0.5))
    _loop(module, "read", [PTR, I64], lanes, [0.0] * 8, add_numbers, step=8 * lanes)
    if target.tile.pairs:
        _loop(module, "dot", [I64], lanes, starts, lambda code, x, _: code.dot_pairs(halves, halves, x))
    return module


def _loop(
    module: ir.Module,
    name: str,
    parameters: list,
    lanes: int,
    starts: list[float],
    following: Callable,
    *,
    step: int = 1,
) -> None:
    """A function with a counted loop over chains, which are all added at the end, so that none of them can be left out.

    following(code, x, place): the next value of a chain, whose own lanes begin `place` after the first number.
    """
    function = ir.Function(module, ir.FunctionType(F32, parameters), name)
    code = Code(function.append_basic_block("entry"))
    first = [code.number(start, vector(F32, lanes)) for start in starts]
    with code.loop(0, function.args[-1], step, first) as loop:
        places = [code.add(loop.index, chain * lanes) for chain in range(len(starts))]
        loop.carry(*(following(code, x, place) for x, place in zip(loop.carried, places, strict=True)))
    code.ret(code.lane(functools.reduce(code.fadd, loop.result), 0))
