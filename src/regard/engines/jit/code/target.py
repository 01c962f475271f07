"""Compilation target: the instruction sets of this machine, and the register tile for each.

The environment variable REGARD_TARGET restricts it: kernels are then compiled as if the machine had no wider vectors.
"""

from __future__ import annotations

import functools
import os
import platform
from dataclasses import dataclass
from typing import NamedTuple

import llvmlite.binding as llvm

from ....common.errors import did_you_mean, refuse

VARIABLE = "REGARD_TARGET"
ARM = ("aarch64", "arm64")


class Isa(NamedTuple):
    """An instruction set, and the register tile of an inner loop on it.

    needs: CPU features. vector: bytes in a register. key_tile x query_vectors accumulators (depth_tile x query_vectors
    for the output): enough independent multiply-adds to hide their latency (4 cycles on two ports), with registers left
    for operands. query_vectors · lanes queries are multiplied with one broadcast key element. pairs: there is a
    dot-product instruction, which multiplies pairs of bfloat16 and adds both products to a float32. tall: whether calls
    with many rows have tiles of TALL vectors of queries and 4 keys (or depths), ACCUMULATORS in all: each key that is
    loaded, and widened, then serves more rows.
    """

    needs: tuple[str, ...]
    vector: int
    key_tile: int
    depth_tile: int
    query_vectors: int
    pairs: bool = False
    tall: bool = False


TALL, ACCUMULATORS = 3, 12

# Best first.
ISAS = {
    # the registers and tiles of avx512; two bfloat16 multiply-adds per lane and instruction
    "avx512bf16": Isa(("avx512f", "avx512dq", "avx512bw", "avx512vl", "avx512bf16"), 64, 4, 4, 4, pairs=True),
    # 32 registers of 64 bytes: 16 accumulators and 4 queries; 24 accumulators are equally fast
    "avx512": Isa(("avx512f", "avx512dq", "avx512bw", "avx512vl"), 64, 4, 4, 4),
    # 16 registers of 32 bytes: 10 accumulators and 2 queries. Tall tiles: 12 accumulators, 3 queries and a key are all
    "avx2": Isa(("avx2", "fma"), 32, 5, 5, 2, tall=True),
    # 32 registers of 16 bytes: 16 accumulators and 4 queries, for four ports
    "neon": Isa(("neon",), 16, 4, 4, 4),
    # the 16 registers of 16 bytes that every machine with vectors has (SSE2)
    "portable": Isa((), 16, 5, 5, 2),
}


@dataclass(frozen=True)
class Target:
    """The target of code generation: an ISA, and LLVM's description of the processor."""

    isa: str
    triple: str
    cpu: str
    features: str

    @property
    def tile(self) -> Isa:
        return ISAS[self.isa]

    def lanes(self, itemsize: int) -> int:
        return self.tile.vector // itemsize

    @property
    def halves(self) -> bool:
        """Whether it has instructions that convert between float16 and float32."""
        return "+f16c" in self.features or self.triple.startswith(ARM)


_forced: str | None = None


@functools.cache
def _features() -> dict[str, bool]:
    found = dict(llvm.get_host_cpu_features())
    # Every 64-bit ARM has NEON; LLVM does not name it where it cannot read features (macOS, emulators).
    return found | {"neon": True} if platform.machine() in ARM else found


@functools.cache
def _available() -> tuple[str, ...]:
    """The names in ISAS that this machine supports, widest first."""
    return tuple(name for name, isa in ISAS.items() if all(_features().get(need) for need in isa.needs))


@functools.cache  # an exception is not cached: it is raised in every call
def _requested() -> str | None:
    """The name in REGARD_TARGET, read once per process; None where it is unset or empty."""
    given = os.environ.get(VARIABLE, "")
    name = given.strip().lower()
    if not name:
        return None
    if name not in ISAS:
        raise refuse(
            VARIABLE,
            "no such target",
            f"{VARIABLE}={given}",
            f"one of {', '.join(ISAS)}",
            f"{did_you_mean(name, _available())}, or unset it",
        )
    if name not in _available():
        raise refuse(
            VARIABLE,
            f"this machine has no {name}",
            f"{VARIABLE}={given}",
            f"what this machine offers: {', '.join(_available())}",
            f"set one of these, or unset it for {_available()[0]}",
        )
    return name


@functools.cache
def offered() -> tuple[str, ...]:
    """The names in ISAS that kernels may be compiled for, widest first: from the one in REGARD_TARGET downwards."""
    requested = _requested()
    return _available() if requested is None else _available()[_available().index(requested) :]


def description() -> str:
    """The target in use and, if REGARD_TARGET restricts it, all that this machine supports."""
    if _requested() is None:
        return host().isa
    return f"{host().isa} ({VARIABLE}; this machine offers {', '.join(_available())})"


@functools.cache
def _target(name: str) -> Target:
    if name == "portable" and platform.machine() in ("x86_64", "AMD64"):
        # Baseline x86-64, so that the machine code contains no newer instructions.
        return Target(name, llvm.get_default_triple(), "x86-64", "")
    # A narrower ISA: the features of this machine without those of wider ISAs.
    banned = {
        "avx2": ("avx512", "evex512", "avx10", "amx"),
        "avx512": ("avx512bf16", "avx512fp16", "avx10", "amx"),
    }.get(name, ())
    kept = (
        {feature: on and not feature.startswith(banned) for feature, on in _features().items()}
        if banned
        else _features()
    )
    features = ",".join(f"{'+' if on else '-'}{feature}" for feature, on in sorted(kept.items()))
    return Target(name, llvm.get_default_triple(), llvm.get_host_cpu_name(), features)


def host() -> Target:
    """The target that kernels are compiled for: the widest of `offered()`, or the one set by `limited`."""
    return _target(_forced or offered()[0])


def is_forced() -> bool:
    """Whether `limited` is in force."""
    return _forced is not None


class limited:
    """`with limited("avx2"):` compiles as if the machine had nothing wider; ValueError if it does not have it."""

    def __init__(self, isa: str):
        if isa not in offered():
            raise ValueError(f"this machine has no {isa}: it offers {', '.join(offered())}")
        self.isa = isa

    def __enter__(self):
        global _forced
        self.before, _forced = _forced, self.isa

    def __exit__(self, *exc):
        global _forced
        _forced = self.before
