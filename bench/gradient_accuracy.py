"""The error of gradients next to that of torch, in every dtype: `python bench/gradient_accuracy.py [--seeds N]`.

Each case is computed on the same rounded inputs by regard, by torch's SDPA (its fused and its plain form) and by torch
eager: product, scale, score, mask, softmax, product, each rounded to the dtype. The error of a gradient is the largest,
and the root of the mean square, of its difference from the law in float64, relative to the largest entry of the law.
Printed are regard's errors, and how many times those of each peer they are; below 1, regard is more accurate.
"""

from __future__ import annotations

import argparse
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

import regard as rg
from regard.engines.jit.code.target import host
from regard.engines.reference import attention as reference
from regard.language.problem import Problem

HEADS = 4
DTYPES: dict[str, tuple[Any, torch.dtype]] = {
    "float32": (np.float32, torch.float32),
    "float16": (np.float16, torch.float16),
    "bfloat16": (ml_dtypes.bfloat16, torch.bfloat16),
}
PEERS = ("flash", "math", "eager")
CAPS = {"softcap": 20.0, "saturated": 1.0}


class Case(NamedTuple):
    """A problem: its rule in regard's words, and what torch adds to the scores. sharp: the factor of q and k."""

    name: str
    rows: int
    depth: int
    groups: int = HEADS
    sharp: float = 1.0

    @property
    def rule(self) -> dict:
        slopes = np.array([2.0 ** -(head + 1) for head in range(HEADS)], np.float32)
        return {
            "dense": {},
            "grouped": {"mask": rg.causal()},
            "causal": {"mask": rg.causal()},
            "window": {"mask": rg.causal() & rg.window(64)},
            **{name: {"score": rg.softcap(cap), "mask": rg.causal()} for name, cap in CAPS.items()},
            "alibi": {"score": rg.alibi(slopes), "mask": rg.causal()},
            "sinks": {"sinks": np.linspace(-1, 2, HEADS, dtype=np.float32), "mask": rg.causal()},
        }[self.name]


CASES = [
    *(Case(name, rows, depth) for name in ("dense", "causal") for rows in (64, 512, 2048) for depth in (32, 64, 128)),
    *(Case(name, rows, 64) for name in ("window", "alibi", "sinks", "softcap") for rows in (64, 512, 2048)),
    *(Case("grouped", rows, 64, groups=1) for rows in (64, 512, 2048)),
    *(Case(name, 512, 64, sharp=2.0) for name in ("dense", "causal", "softcap")),
    *(Case("softcap", 512, 64, sharp=sharp) for sharp in (4.0, 6.0)),
    *(Case("saturated", rows, 64, sharp=sharp) for rows in (2, 64, 512) for sharp in (1.0, 2.0)),
]


def arrays(case: Case, dtype, seed: int) -> list[np.ndarray]:
    """q, k, v and dout: normal numbers, rounded to the dtype."""
    random = np.random.default_rng(seed)
    shapes = [(1, heads, case.rows, case.depth) for heads in (HEADS, case.groups, case.groups, HEADS)]
    factors = (case.sharp, case.sharp, 1.0, 1.0)
    return [(random.standard_normal(shape) * by).astype(dtype) for shape, by in zip(shapes, factors, strict=True)]


def of_torch(case: Case, parts: list[np.ndarray], dtype: torch.dtype, peer: str) -> list[np.ndarray] | None:
    """The gradients of a peer, or None where it cannot compute the case."""
    q, k, v, dout = (torch.from_numpy(part.astype(np.float32)).to(dtype) for part in parts)
    leaves = [part.requires_grad_() for part in (q, k, v)]
    added = added_to_scores(case)
    if peer == "eager":
        out = eager(case, q, k, v, None if added is None else added.to(dtype))
    elif case.name in (*CAPS, "sinks"):
        return None
    else:
        backend = {"flash": SDPBackend.FLASH_ATTENTION, "math": SDPBackend.MATH}[peer]
        plain = case.name in ("dense", "causal", "grouped")
        rule: dict[str, Any] = {"is_causal": case.name != "dense"} if plain else {"attn_mask": added.to(dtype)}
        with sdpa_kernel(backend):
            out = scaled_dot_product_attention(q, k, v, enable_gqa=case.groups != HEADS, **rule)
    out.backward(dout)
    return [leaf.grad.double().numpy() for leaf in leaves]


def added_to_scores(case: Case) -> torch.Tensor | None:
    """The mask (and ALiBi) of a case as numbers that are added to its scores."""
    if case.name == "dense":
        return None
    distance = torch.arange(case.rows)[:, None] - torch.arange(case.rows)
    allowed = distance >= 0
    if case.name == "window":
        allowed &= distance < 64
    added = torch.zeros(1, HEADS, case.rows, case.rows)
    if case.name == "alibi":
        added = added - torch.tensor([2.0 ** -(head + 1) for head in range(HEADS)])[:, None, None] * distance
    return added.masked_fill(~allowed, -torch.inf)


def eager(case: Case, q, k, v, added) -> torch.Tensor:
    """Attention step by step, as models write it: each result is rounded to the dtype, the softmax is in float32."""
    k, v = (part.repeat_interleave(HEADS // case.groups, 1) for part in (k, v))
    scores = q @ k.transpose(-1, -2) * case.depth**-0.5
    if case.name in CAPS:
        scores = torch.tanh(scores / CAPS[case.name]) * CAPS[case.name]
    if added is not None:
        scores = scores + added
    if case.name == "sinks":
        sinks = torch.linspace(-1, 2, HEADS, dtype=q.dtype)[None, :, None, None]
        scores = torch.cat([scores, sinks.expand(1, HEADS, case.rows, 1)], -1)
    weights = torch.softmax(scores, -1, dtype=torch.float32).to(q.dtype)
    return weights[..., : case.rows] @ v


def errors(found, exact) -> np.ndarray:
    """(largest, root mean square) of the errors of dq, dk and dv, relative to the largest entry."""
    apart = [(np.asarray(x, np.float64) - y) / np.abs(y).max() for x, y in zip(found, exact, strict=True)]
    return np.array([(np.abs(part).max(), np.sqrt((part**2).mean())) for part in apart])


def measured(case: Case, name: str, seeds: int) -> dict[str, np.ndarray]:
    """The errors of regard and of every peer: the median over seeds."""
    found: dict[str, list] = {}
    for seed in range(seeds):
        parts = arrays(case, DTYPES[name][0], seed)
        q, k, v, dout = parts
        exact = reference.backward(Problem.of(*(part.astype(np.float64) for part in (q, k, v)), **case.rule), dout)
        ours = rg.attention_backward(dout, q, k, v, engine="jit", **case.rule)
        found.setdefault("regard", []).append(errors(ours[:3], exact[:3]))
        for peer in PEERS:
            theirs = of_torch(case, parts, DTYPES[name][1], peer)
            if theirs is not None:
                found.setdefault(peer, []).append(errors(theirs, exact[:3]))
    return {engine: np.median(each, 0) for engine, each in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtypes", default="float32,float16,bfloat16")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=2048, help="the longest case")
    given = parser.parse_args()
    print(f"regard {rg.__version__}, torch {torch.__version__}, {host().isa}")
    for name in given.dtypes.split(","):
        ratios: dict[str, list] = {}
        print(f"\n{name}: largest error of dq, dk, dv | ratios of largest errors | of root mean squares")
        for case in CASES:
            if case.rows > given.rows:
                continue
            found = measured(case, name, given.seeds)
            ours = found.pop("regard")
            line = f"{case.name:9} {case.rows:5} x {case.depth:3}, sharp {case.sharp:.0f}: "
            line += " ".join(f"{error:.1e}" for error in ours[:, 0])
            for peer, theirs in found.items():
                ratio = ours / theirs
                ratios.setdefault(peer, []).append(ratio)
                line += f" | {peer} " + " ".join(f"{x:.2f}" for x in ratio[:, 0])
                line += " , " + " ".join(f"{x:.2f}" for x in ratio[:, 1])
            print(line, flush=True)
        for peer, each in ratios.items():
            middle, most = np.median(each, 0), np.max(each, 0)
            for place, kind in enumerate(("largest", "rms")):
                figures = ", ".join(
                    f"{m:.2f} (≤ {x:.2f})" for m, x in zip(middle[:, place], most[:, place], strict=True)
                )
                print(f"  ÷ {peer}, {kind}: dq, dk, dv median {figures}")


if __name__ == "__main__":
    main()
