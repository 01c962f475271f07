"""Over: what a model costs at several numbers of tokens, as a table with bars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..common.errors import refuse
from .report import aligned, seconds, unit

BAR = 20  # characters of a whole bar


def lengths(text: str) -> list[int]:
    """Numbers of tokens.

    >>> lengths("512, 2048")
    [512, 2048]
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and int(part) for part in parts):
        expected = "numbers of tokens, such as 512,2048,8192"
        raise refuse("cost", "the numbers of tokens cannot be read", repr(text), expected, "correct it")
    return [int(part) for part in parts]


def over(costs: Sequence[Any]) -> str:
    """A line for each `ModelCost`: operations, bytes that are held, the least time on a machine, and the shares of
    attention (dark) and of everything else in the operations.
    """
    timed = ["time at least"] if costs[0].time is not None else []
    rows = [["tokens", "operations", "held", *timed, "attention, everything else"], *map(_row, costs)]
    return f"{costs[0].name}, {costs[0].phase}, over the number of tokens\n\n{aligned(rows, last_left=True)}"


def attention_operations(cost: Any) -> int:
    """Operations of the products with q, k, weights and v, forward and backward."""
    return sum(line.forward.value + line.backward for line in cost.lines if line.part == "attention")


def _row(found: Any) -> list[str]:
    share = attention_operations(found) / found.flops if found.flops else 0.0
    dark = round(BAR * share)
    time = [] if found.time is None else [seconds(found.time.bound)]
    bar = f"{'█' * dark}{'░' * (BAR - dark)} {share:.1%}"
    return [f"{found.tokens:,}", unit(found.flops, "").strip(), unit(found.memory.held, "B"), *time, bar]
