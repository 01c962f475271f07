"""The machine: which instructions it has, and the shape of the register tiles that suit them."""

from __future__ import annotations

import functools
import platform
from dataclasses import dataclass

__all__ = ["ISAS", "Target", "host", "limited"]


@dataclass(frozen=True)
class Target:
    """A kind of vector unit.

    vector: bytes in a register. key_tile x query_vectors accumulators (and as many in depth_tile x query_vectors) fill the
    registers of one inner loop: enough independent multiply-adds to hide their latency (4 cycles on two ports), with room left
    for the operands. query_vectors · lanes queries are multiplied with one broadcast key element.
    """

    isa: str
    triple: str
    cpu: str
    features: str
    vector: int
    key_tile: int
    depth_tile: int
    query_vectors: int

    def lanes(self, itemsize: int) -> int:
        return self.vector // itemsize


# Registers and blocks per vector width, widest first.
#   avx512    32 registers of 64 bytes: 4 keys x 4 vectors = 16 accumulators + 4 queries; more tiles spill or gain nothing
#   avx2      16 registers of 32 bytes: 5 x 2 = 10 accumulators + 2 queries
#   portable  any machine with 16-byte vectors (SSE2, NEON): 5 x 2 of the 16 registers that every such machine has
ISAS = {
    "avx512": {"needs": ("avx512f", "avx512dq", "avx512bw", "avx512vl"), "vector": 64, "key_tile": 4, "depth_tile": 4,
               "query_vectors": 4},
    "avx2": {"needs": ("avx2", "fma"), "vector": 32, "key_tile": 5, "depth_tile": 5, "query_vectors": 2},
    "portable": {"needs": (), "vector": 16, "key_tile": 5, "depth_tile": 5, "query_vectors": 2},
}  # fmt: skip

# What an ISA forbids, so that a wider machine can stand in for a narrower one in tests.
WITHOUT = {"avx512": (), "avx2": ("avx512",), "portable": ("avx",)}

_forced: str | None = None


def _bare(name: str) -> Target:
    import llvmlite.binding as llvm

    from .build import initialize

    initialize()
    shape = {key: value for key, value in ISAS[name].items() if key != "needs"}
    host_features = llvm.get_host_cpu_features()
    if name == "portable" and platform.machine() in ("x86_64", "AMD64"):
        # Baseline x86-64, so that the machine code holds nothing newer.
        return Target(name, llvm.get_default_triple(), "x86-64", "", **shape)
    banned = ("avx512", "evex512", "avx10", "amx") if name == "avx2" else ()
    kept = {key: on and not key.startswith(banned) for key, on in host_features.items()} if banned else host_features
    features = ",".join(f"{'+' if on else '-'}{key}" for key, on in sorted(kept.items()))
    return Target(name, llvm.get_default_triple(), llvm.get_host_cpu_name(), features, **shape)


@functools.cache
def _available() -> tuple[str, ...]:
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features()
    return tuple(name for name, row in ISAS.items() if all(features.get(need) for need in row["needs"]))


@functools.cache
def _target(name: str) -> Target:
    return _bare(name)


def host() -> Target:
    """The widest vector unit of this machine, found at run time (or the one forced by `limited`)."""
    return _target(_forced or _available()[0])


class limited:
    """`with limited("avx2"):` compile as if the machine had no more than that; refused where it has less."""

    def __init__(self, isa: str):
        if isa not in _available():
            raise ValueError(f"this machine has no {isa}: it offers {', '.join(_available())}")
        self.isa = isa

    def __enter__(self):
        global _forced
        self.before, _forced = _forced, self.isa

    def __exit__(self, *exc):
        global _forced
        _forced = self.before
