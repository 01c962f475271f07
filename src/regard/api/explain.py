"""Explain a call before it is made: what is asked, who will compute it and why, which tiles, how much work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, SupportsFloat, SupportsIndex

from ..engines import dispatch
from ..engines.cost import Cost, cost
from ..engines.plan import Plan, plan
from ..language.checks.arguments import Arguments
from ..language.problem import Problem

__all__ = ["Explanation", "explain"]


@dataclass(frozen=True, eq=False)
class Explanation:
    """What `explain` found; print it, or read its parts. why: the reasons for the engine; whole: it visits all pairs,
    not the plan; target: the instructions that the compiled engine uses, None for the other engines.
    """

    problem: Problem
    plan: Plan
    cost: Cost
    engine: str
    why: list[str]
    whole: bool
    target: str | None

    def __str__(self):
        asked = self.problem
        B, H, G, Q, K, D, E = (asked.dims[name] for name in "BHGQKDE")
        starts = sorted(set(asked.query_start.tolist()))
        place = (
            f"{starts[0]:,}"
            if len(starts) == 1
            else f"{starts[0]:,} … {starts[-1]:,}, by batch entry"
            if starts
            else "0"
        )
        dropped = (
            ""
            if asked.dropout is None
            else f"; then {asked.dropout.rate:g} of the weights fall out (seed {asked.dropout.seed})"
        )
        sinks = "" if asked.sinks is None else f", {asked.sinks.shape[1]} in the denominator besides (sinks)"
        whole = " (it visits the whole matrix; the plan is what the compiled engine would visit)" if self.whole else ""
        return "\n".join(
            [
                f"asked   q ({B}, {H}, {Q}, {D}) · k ({B}, {G}, {K}, {D}) · v ({B}, {G}, {K}, {E}), {asked.dtype}; "
                f"row 0 at position {place}",
                f"mask    {'everything' if asked.mask is None else asked.mask}",
                (
                    f"score   {'score' if asked.score is None else asked.score}, where score = {asked.scale:.6g} "
                    f"· q·k{sinks}{dropped}"
                ),
                f"engine  {self.engine}: {'; '.join(self.why)}{whole}",
                *([] if self.target is None else [f"target  {self.target}"]),
                str(self.plan),
                str(self.cost),
                *self._picture(),
            ]
        )

    def _picture(self) -> list[str]:
        drawn = self.plan.diagram()
        if not drawn:
            return []
        which = "batch entry 0, head 0: " if self.plan.groups > 1 else ""
        return ["", f"{which}queries down, keys across; █ all allowed, ▒ some visited, · none", drawn]


def explain(
    q: Any,
    k: Any,
    v: Any,
    *,
    mask: Any = None,
    score: Any = None,
    scale: SupportsFloat | None = None,
    query_start: Any = None,
    sinks: Any = None,
    dropout: SupportsFloat = 0.0,
    seed: SupportsIndex | None = None,
    engine: str = "auto",
) -> Explanation:
    """What `attention` with the same arguments would do: its plan, its engine and why, tiles, FLOPs and bytes; nothing
    is computed.

    Arguments and refusals as for `attention`; q (…, H, Q, D) · k (…, G, K, D) · v (…, G, K, E).

    >>> import numpy as np, regard as rg
    >>> q = k = v = np.zeros((1000, 64), np.float32)
    >>> explain(q, k, v, mask=rg.causal()).cost.allowed
    500500
    """
    call = dispatch.explained(q, k, v, Arguments(mask, score, scale, query_start, sinks, dropout, seed), engine)
    found = plan(call.problem, *call.tile)
    work = cost(call.problem, found)
    return Explanation(call.problem, found, work, call.engine, call.why, whole=not call.skips, target=call.target)
