"""The engines by name: which of them takes a problem, and solving it with one of them."""

from __future__ import annotations

import importlib.util

import numpy as np

from .errors import Reason, Refused, did_you_mean, refuse
from .problem import Problem

__all__ = ["ENGINES", "choose", "solve", "why_not"]

ENGINES = ("jit", "reference", "sdpa")


def choose(problem: Problem, engine: str = "auto") -> tuple[str, list[str]]:
    """The engine that will run and why; a named engine that cannot is refused with all its reasons."""
    if not isinstance(engine, str) or engine not in ("auto", *ENGINES):
        raise refuse("attention", "no such engine", f"engine={engine!r}", f"one of auto, {', '.join(ENGINES)}",
                     did_you_mean(str(engine), ("auto", *ENGINES)))  # fmt: skip
    against = why_not(problem, "jit" if engine == "auto" else engine)
    if engine == "auto":
        return ("reference", against) if against else ("jit", ["the compiled engine takes every part of this problem"])
    if against:
        raise Refused("attention", [Reason(f"engine {engine!r} cannot do this", reason, "a problem that this engine takes",
                                           'use engine="auto"') for reason in against])  # fmt: skip
    return engine, ["asked for by name"]


def why_not(problem: Problem, engine: str) -> list[str]:
    """Every reason why an engine cannot solve the problem; empty if it can."""
    if engine == "jit":
        from . import jit

        return jit.why_not(problem)
    if engine == "sdpa":
        if importlib.util.find_spec("torch") is None:
            return ["torch is not installed"]
        from . import sdpa

        return sdpa.why_not(problem)
    return []


def solve(problem: Problem, engine: str = "auto", out: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """(out (B, H, Q, E), lse (B, H, Q)) of a checked problem; `out` may be given, with any strides."""
    name, _ = choose(problem, engine)
    if name == "jit":
        from . import jit

        return jit.solve(problem, out)
    if name == "sdpa":
        from . import sdpa

        found, lse = sdpa.forward(problem)
    else:
        from . import reference

        found, lse = reference.forward(problem)
    if out is None:
        return found.astype(problem.dtype), lse.astype(problem.real)
    out[...] = found
    return out, lse.astype(problem.real)
