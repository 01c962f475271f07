"""Explains a call without computing it: its arguments, the engine and the reasons, the tiles, the work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import SupportsFloat, SupportsIndex

from ..common.compiled import outside_programs
from ..common.public import ArrayLike, ArrayT, Engine
from ..common.text.terminal_text import printable
from ..engines import dispatch
from ..engines.cost import Cost, cost
from ..engines.plan import Plan, plan
from ..language.callables import Mask, Score
from ..language.checks.arguments import Arguments
from ..language.problem import Problem


@printable
@dataclass(frozen=True, eq=False)
class Explanation:
    """The result of `explain`: print it, or read its fields.

    Args:
        problem: the checked call, with its arrays and rules.
        plan: which tiles are empty, full or mixed.
        cost: the number of allowed and visited pairs, FLOPs and bytes.
        engine: the name of the engine that would run.
        why: the reasons for the engine.
        whole: whether the engine visits all pairs instead of the plan.
        target: the CPU instructions that the compiled engine uses; None for the other engines.

    Examples:
        >>> import numpy as np, regard as rg
        >>> q = k = v = np.zeros((8, 4), np.float32)
        >>> explanation = rg.explain(q, k, v, mask=rg.causal(), engine="reference")
        >>> explanation.engine, explanation.cost.allowed, explanation.target
        ('reference', 36, None)
    """

    problem: Problem
    plan: Plan
    cost: Cost
    engine: str
    why: list[str]
    whole: bool
    target: str | None

    def __str__(self):
        call = self.problem
        B, H, G, Q, K, D, E = (call.dims[name] for name in "BHGQKDE")
        starts = sorted(set(call.query_start.tolist()))
        place = (
            f"{starts[0]:,}"
            if len(starts) == 1
            else f"{starts[0]:,} … {starts[-1]:,}, by batch entry"
            if starts
            else "0"
        )
        dropped = (
            ""
            if call.dropout is None
            else f"; then {call.dropout.rate:g} of the weights are dropped (seed {call.dropout.seed})"
        )
        sinks = "" if call.sinks is None else f", plus {call.sinks.shape[1]} in the denominator (sinks)"
        part = f"; {call.starts} of the whole" if str(call.starts) else ""
        whole = " (it visits the whole matrix; the plan is what the compiled engine would visit)" if self.whole else ""
        return "\n".join(
            [
                f"call    q ({B}, {H}, {Q}, {D}) · k ({B}, {G}, {K}, {D}) · v ({B}, {G}, {K}, {E}), {call.dtype}; "
                f"row 0 at position {place}{part}",
                f"mask    {'everything' if call.mask is None else call.mask}",
                (
                    f"score   {'score' if call.score is None else call.score}, where score = {call.scale:.6g} "
                    f"· q·k{sinks}{dropped}"
                ),
                f"engine  {self.engine}: {'; '.join(self.why)}{whole}",
                *([] if self.target is None else [f"target  {self.target}"]),
                str(self.plan),
                str(self.cost),
                *self._drawing(),
            ]
        )

    def _drawing(self) -> list[str]:
        drawn = self.plan.diagram()
        if not drawn:
            return []
        which = "batch entry 0, head 0: " if self.plan.groups > 1 else ""
        return ["", f"{which}queries down, keys across; █ all allowed, ▒ some visited, · none", drawn]


@outside_programs
def explain(
    q: ArrayT,
    k: ArrayT,
    v: ArrayT,
    *,
    mask: Mask | None = None,
    score: Score | None = None,
    scale: SupportsFloat | None = None,
    query_start: SupportsIndex | ArrayLike | None = None,
    batch_start: SupportsIndex | None = None,
    head_start: SupportsIndex | None = None,
    sinks: ArrayLike | None = None,
    dropout: SupportsFloat = 0.0,
    seed: SupportsIndex | None = None,
    engine: Engine = "auto",
) -> Explanation:
    """What `attention` would do with the same arguments: engine and reasons, tiles, FLOPs and bytes.

    Attention itself is not computed.

    Args:
        q: (…, H, Q, D) queries, as for `attention`.
        k: (…, G, K, D) keys.
        v: (…, G, K, E) values.
        mask: which keys a row may attend to, as for `attention`.
        score: changes the logits, as for `attention`.
        scale: the factor of q·k, by default 1/√D.
        query_start: the position of the first row on the key axis, by default K - Q.
        batch_start: the number of the first batch entry in a larger call, as for `attention`.
        head_start: the number of the first query head in a larger call, as for `attention`.
        sinks: extra logits in the denominator, (H,) or (H, n).
        dropout: the rate at which weights are dropped.
        seed: an integer in [0, 2**64), required with dropout.
        engine: as for `attention`.

    Returns:
        An `Explanation`, which prints as text.

    Raises:
        Refused: as for `attention`.

    Examples:
        >>> import numpy as np, regard as rg
        >>> q = k = v = np.zeros((1000, 64), np.float32)
        >>> rg.explain(q, k, v, mask=rg.causal()).cost.allowed
        500500
    """
    call = dispatch.explained(
        q, k, v, Arguments(mask, score, scale, query_start, sinks, dropout, seed, batch_start, head_start), engine
    )
    found = plan(call.problem, *call.tile)
    work = cost(call.problem, found, call.read)
    return Explanation(call.problem, found, work, call.engine, call.why, whole=not call.skips, target=call.target)
