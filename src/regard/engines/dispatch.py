"""The engines by name: which of them takes a problem, and solving it with one of them."""

from __future__ import annotations

import importlib.util
from typing import NamedTuple

import numpy as np

from ..common.errors import Reason, Refused, did_you_mean, refuse
from ..language.expr import Table
from ..language.problem import Gradients, Problem

__all__ = ["ENGINES", "Saved", "choose", "keep", "pull_back", "solve", "why_not"]

ENGINES = ("jit", "reference", "sdpa")


class Saved(NamedTuple):
    """A forward pass, and what the engine wants to know about it when it goes back.

    out (B, H, Q, E) · sums (3, B, H, Q): lse first, then two that are the engine's own.
    """

    engine: str
    out: np.ndarray
    sums: np.ndarray


def choose(problem: Problem, engine: str = "auto") -> tuple[str, list[str]]:
    """The engine that will run and why; a named engine that cannot is refused with all its reasons."""
    if not isinstance(engine, str) or engine not in ("auto", *ENGINES):
        raise refuse(
            "attention",
            "no such engine",
            given=f"engine={engine!r}",
            expected=f"one of auto, {', '.join(ENGINES)}",
            fix=did_you_mean(str(engine), ("auto", *ENGINES)),
        )
    against = why_not(problem, "jit" if engine == "auto" else engine)
    if engine == "auto":
        return ("reference", against) if against else ("jit", ["the compiled engine takes every part of this problem"])
    if against:
        raise Refused(
            "attention",
            [
                Reason(
                    f"engine {engine!r} cannot do this",
                    given=reason,
                    expected="a problem that this engine takes",
                    fix='use engine="auto"',
                )
                for reason in against
            ],
        )
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
        from .reference import attention as reference

        found, lse = reference.forward(problem)
    if out is None:
        return found.astype(problem.dtype), lse.astype(problem.real)
    out[...] = found
    return out, lse.astype(problem.real)


def keep(problem: Problem, engine: str = "auto", found: tuple[np.ndarray, np.ndarray] | None = None) -> Saved:
    """`solve`, for a backward pass to follow; `found` is (out, lse) of an earlier one, which is then not computed
    again.
    """
    name, _ = choose(problem, engine)
    if name == "sdpa":
        raise refuse(
            "attention",
            "engine 'sdpa' has no backward pass",
            given='engine="sdpa"',
            expected="jit or reference",
            fix='use engine="auto"',
        )
    if name == "jit":
        from . import jit

        return Saved(name, *(jit.keep(problem) if found is None else jit.kept(problem, *found)))
    out, lse = solve(problem, name) if found is None else found
    return Saved(name, out, np.stack([lse] * 3))


def pull_back(
    problem: Problem, saved: Saved, dout: np.ndarray, dlse: np.ndarray | None, wanted: list[Table]
) -> Gradients:
    """The gradients of Σ out · dout + Σ lse · dlse by the engine that went forward; of tables, the wanted ones."""
    if saved.engine == "jit":
        from . import jit

        return jit.pull_back(problem, jit.Saved(*saved[1:]), dout, dlse, wanted)
    from .reference import attention as reference

    found = reference.backward(problem, dout, dlse)
    return found._replace(tables={table: found.tables[table] for table in wanted})
