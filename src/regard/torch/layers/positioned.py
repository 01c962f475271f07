"""A layer whose rows stand somewhere: which positions they have, and what that makes of the scores."""

from __future__ import annotations

from typing import Any

import torch

from ...language.expr import Expr, tables_of
from ...language.expr import score as the_score
from ..positions import Position
from .parts import Checks

__all__ = ["Placed"]


class Placed(torch.nn.Module):
    """What layers with positions have in common.

    positions: a kind of `Position`, or None. score: the rule for the logits before the positions have had their say, or
    None.
    """

    positions: Position | None
    score: Expr | None
    _rule: Expr | None
    _over: list[torch.nn.Parameter] | None

    def place(self, check: Checks, positions: Position | None, score: Expr | None = None) -> None:
        """Take positions and a score, or refuse with the reasons found so far."""
        check.need(
            positions is None or isinstance(positions, Position),
            "positions is no kind of position",
            given=f"{positions!r}",
            expected="a module from regard.torch.positions",
            fix="the places themselves go to the call: layer(x, positions=…)",
        )
        check.need(
            score is None or isinstance(score, Expr),
            "score is no expression",
            given=f"{score!r}",
            expected="a rule such as rg.softcap(50)",
            fix="learned numbers are added by a Position",
        )
        read = tables_of(score) if isinstance(score, Expr) else {}
        learned = [name for name, table in read.items() if getattr(table.source, "requires_grad", False)]
        check.need(
            not learned,
            "the score reads a parameter that the layer would not own",
            given=", ".join(learned),
            expected="numbers that are not learned",
            fix="make it a Position: its parameters are saved and copied with the layer",
        )
        check.done()
        self.positions, self.score = positions, score
        self._build()

    def rule(self) -> Expr | None:
        """The score of a call; None where it is the logit itself."""
        if self.positions is None:
            return self.score
        # A compiled program reads a rule that is there already, if it was built over the parameters that the layer has
        # now.
        if not torch.compiler.is_compiling() or not self._current():
            self._build()
        return self._rule

    def places(self, x: torch.Tensor, cache, positions: torch.Tensor | None) -> torch.Tensor | None:
        """The positions of the rows x (B, n, d_model): those given, or counted from 0, or on from what the cache
        holds.
        """
        if positions is not None or self.positions is None:
            return positions
        counted = torch.arange(x.shape[1], device=x.device)
        return counted if cache is None else torch.as_tensor(cache.lengths, device=x.device)[:, None] + counted

    def turned(self, rows: torch.Tensor, places: torch.Tensor | None) -> torch.Tensor:
        """Queries or keys (B, heads, n, depth), told where they stand."""
        return rows if self.positions is None or places is None else self.positions.rotate(rows, places)

    def check_rows(self, check: Checks, x: torch.Tensor, d_model: int, dropout: float, cache, positions) -> None:
        """Rows that fit the layer, and no argument that would have no meaning."""
        check.need(
            x.ndim == 3 and x.shape[-1] == d_model,
            "x does not fit the layer",
            given=f"{tuple(x.shape)}",
            expected=f"(B, n, {d_model})",
            fix="the layout is (batch, rows, d_model)",
        )
        check.need(
            positions is None or self.positions is not None,
            "the layer has no use for positions",
            given="positions of rows, and a layer without a kind of position",
            expected="positions=None",
            fix="make the layer with positions=Rotary(…), or another kind",
        )
        check.need(
            cache is None or not (self.training and dropout),
            "dropout over a cache",
            given="a layer in training, with dropout",
            expected="a layer that writes, not one that trains",
            fix="call layer.eval()",
        )

    def _build(self) -> None:
        """The rule over the parameters that the positions have now, unless they have no numbers yet."""
        self._rule, self._over = self.score, None
        if self.positions is None:
            return
        own = list(self.positions.parameters())
        if not any(parameter.is_meta for parameter in own):
            rule = self.positions.score(the_score if self.score is None else self.score)
            self._rule, self._over = None if rule is the_score else rule, own

    def _current(self) -> bool:
        assert self.positions is not None
        own = list(self.positions.parameters())
        return self._over is not None and len(own) == len(self._over) and all(a is b for a, b in zip(own, self._over))

    def _apply(self, fn, recurse=True):
        super()._apply(fn, recurse)
        self._build()  # parameters may lie elsewhere now
        return self

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_rule": None, "_over": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._build()
