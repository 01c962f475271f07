"""Peak: the measured limits of this machine: fused multiply-adds and dot products in registers, and memory bandwidth.

The loops are generated for the vectors that kernels use (the widest of this CPU, unless REGARD_TARGET restricts them),
so that an engine is compared with a measurement and not with a data sheet.
"""

from __future__ import annotations

import ctypes
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from ..common.dtypes import FLOATS
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
    """The loops as functions: fma(steps), read(address, floats) and, if the CPU has the instruction, dot(steps).

    owner: the LLVM engine, which must outlive them.
    """

    fma: Callable[..., float]
    read: Callable[..., float]
    dot: Callable[..., float] | None
    owner: Any


@cache
def loops(target: Target) -> Loops:
    """The loops, compiled for the target."""
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    engine = binding.create_mcjit_compiler(binding.parse_assembly(module_text(target)), machine(target))
    engine.finalize_object()
    steps = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_int64)
    fma = steps(engine.get_function_address("fma"))
    dot = steps(engine.get_function_address("dot")) if target.tile.pairs else None
    read = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_void_p, ctypes.c_int64)(engine.get_function_address("read"))
    return Loops(fma, read, dot, engine)


def machine(target: Target):
    """LLVM's code generator for the target."""
    from llvmlite import binding

    return binding.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=target.features, opt=3
    )


def module_text(target: Target) -> str:
    """All loops, as LLVM's assembly."""
    lanes, chains = shape(target)
    return fma_text(lanes, chains) + read_text(lanes) + (dot_text(lanes, chains) if target.tile.pairs else "")


WIDE = '{ "prefer-vector-width"="512" "min-legal-vector-width"="512" }'  # some targets would halve 512-bit vectors


def fma_text(lanes: int, chains: int) -> str:
    """x ← x · 0.5 + 0.5 in every chain, each step waiting for the one before it in its own chain only."""
    vector = f"<{lanes} x float>"
    half = f"<{', '.join(['float 5.0e-1'] * lanes)}>"
    phis = [f"%x{c} = phi {vector} [ {start(lanes, c)}, %entry ], [ %y{c}, %loop ]" for c in range(chains)]
    work = [
        f"%y{c} = call {vector} @llvm.fmuladd({vector} %x{c}, {vector} {half}, {vector} {half})" for c in range(chains)
    ]
    body = loop("%steps", 1, phis, work, [f"%y{c}" for c in range(chains)], vector)
    intrinsic = f"@llvm.fmuladd.v{lanes}f32"
    text = (
        f"define float @fma(i64 %steps) #0 {{\n{body}}}\ndeclare {vector} {intrinsic}({vector}, {vector}, {vector})\n"
    )
    return text.replace("@llvm.fmuladd(", f"{intrinsic}(") + f"attributes #0 = {WIDE}\n"


def dot_text(lanes: int, chains: int) -> str:
    """x ← x + 0.5 · 0.5 + 0.5 · 0.5 in every chain: pairs of bfloat16 multiplied and added to a float32."""
    vector, pairs = f"<{lanes} x float>", f"<{2 * lanes} x bfloat>"
    half = f"{pairs} <{', '.join(['bfloat 0xR3F00'] * 2 * lanes)}>"
    intrinsic = f"@llvm.x86.avx512bf16.dpbf16ps.{32 * lanes}"
    phis = [f"%x{c} = phi {vector} [ {start(lanes, c)}, %entry ], [ %y{c}, %loop ]" for c in range(chains)]
    work = [f"%y{c} = call {vector} {intrinsic}({vector} %x{c}, {half}, {half})" for c in range(chains)]
    body = loop("%steps", 1, phis, work, [f"%y{c}" for c in range(chains)], vector)
    return f"define float @dot(i64 %steps) #0 {{\n{body}}}\ndeclare {vector} {intrinsic}({vector}, {pairs}, {pairs})\n"


def read_text(lanes: int) -> str:
    """The sum of an array, with eight independent vector accumulators."""
    vector = f"<{lanes} x float>"
    phis = [f"%x{c} = phi {vector} [ {start(lanes, 0)}, %entry ], [ %y{c}, %loop ]" for c in range(8)]
    work = []
    for c in range(8):
        work += [
            f"%at{c} = add i64 %i, {c * lanes}",
            f"%p{c} = getelementptr float, ptr %data, i64 %at{c}",
            f"%v{c} = load {vector}, ptr %p{c}, align 4",
            f"%y{c} = fadd {vector} %x{c}, %v{c}",
        ]
    body = loop("%count", 8 * lanes, phis, work, [f"%y{c}" for c in range(8)], vector)
    return f"define float @read(ptr %data, i64 %count) #0 {{\n{body}}}\n"


def start(lanes: int, chain: int) -> str:
    """A different start per chain, so that no two chains can be merged."""
    return f"<{', '.join([f'float {chain}.0'] * lanes)}>"


def loop(count: str, step: int, phis: list[str], work: list[str], results: list[str], vector: str) -> str:
    """One counted loop whose results are all used at the end, so that none of them can be left out."""
    sums = [f"%s0 = fadd {vector} {results[0]}, {results[0]}"]
    sums += [f"%s{n} = fadd {vector} %s{n - 1}, {result}" for n, result in enumerate(results[1:], 1)]
    lines = [
        "entry:",
        "br label %loop",
        "loop:",
        "%i = phi i64 [ 0, %entry ], [ %next, %loop ]",
        *phis,
        *work,
        f"%next = add i64 %i, {step}",
        f"%more = icmp slt i64 %next, {count}",
        "br i1 %more, label %loop, label %done",
        "done:",
        *sums,
        f"%result = extractelement {vector} %s{len(results) - 1}, i32 0",
        "ret float %result",
    ]
    return "\n".join(lines) + "\n"
