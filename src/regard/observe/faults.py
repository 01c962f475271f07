"""Checks of one attention call: NaN and infinity, fully masked rows, swapped axes; each fault is one sentence."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ..common.arrays import as_tensor, is_tensor, read_array
from ..common.module_settings import number_of_heads
from ..common.text.terminal_text import printable
from ..engines.dispatch import solve
from ..language.expr import tables_of
from ..language.problem import Problem
from .observed_call import CACHE, ObservedCall

KINDS = ("shape", "number", "row")


@printable
@dataclass(frozen=True)
class Finding:
    """A fault. kind: "shape", "number" (NaN or infinity) or "row" (fully masked). call: the call's index, if any."""

    kind: str
    call: int | None
    layer: str
    text: str

    def __str__(self) -> str:
        return f"{'' if self.call is None else f'call {self.call}, '}{self.layer}: {self.text}"


def non_finite(value, below: bool = True) -> str | None:
    """The number and first index of NaN and infinity in a tensor or array, as text; None if all values are finite.

    below: whether −infinity counts too.
    """
    if value is None or not hasattr(value, "shape"):
        return None
    tensor = value.detach() if is_tensor(value) else as_tensor(np.ascontiguousarray(read_array(value, "value")))
    if not tensor.is_floating_point() or tensor.device.type == "meta" or not tensor.numel():
        return None
    nan = torch.isnan(tensor)
    infinite = torch.isinf(tensor) if below else tensor == torch.inf
    wrong = nan | infinite
    count = int(wrong.sum())
    if not count:
        return None
    names = [name for name, some in (("NaN", nan), ("infinity", infinite)) if bool(some.any())]
    first = wrong.nonzero()[0].tolist()
    return f"{' and '.join(names)} in {count:,} of {tensor.numel():,} numbers, first at {first}"


def wrong_numbers(call: ObservedCall, problem: Problem | None) -> list[str]:
    """Where a call has NaN or infinity: in its inputs, or otherwise in its scores and output."""
    given = {"q": call.q, "k": call.k, "v": call.v, "the sinks": call.given.get("sinks")}
    mask = call.given.get("attn_mask")
    given |= {"the added mask": mask} if non_finite(mask, below=False) else {}
    if problem is not None and problem.score is not None:
        given |= {f"the score's table {table.name!r}": table.array for table in tables_of(problem.score).values()}
    below = {"the added mask": False}
    found = [
        f"{name} already holds {text}"
        for name, value in given.items()
        if (text := non_finite(value, below.get(name, True)))
    ]
    text = non_finite(call.out)
    if text and not found:
        scores = call.trail.scores if call.trail is not None else None
        inner = non_finite(scores, below=False)
        if inner:
            found.append(
                f"the scores hold {inner}, though q and k are finite: they exceed the range of {_dtype(scores)}"
            )
        found.append(f"the output holds {text}, though q, k and v are finite")
    return found


def empty_rows(problem: Problem) -> list[str]:
    """Fully masked rows: the mask allows no key, or every allowed score is −infinity."""
    B, H, Q, K = (problem.dims[name] for name in "BHQK")
    if 0 in (B, H, Q):
        return []
    found = []
    empty = np.full((B, H, Q), K == 0)
    if problem.mask is not None and K:
        flat = {
            name: np.zeros((B, heads, rows, 1), np.float32)
            for name, heads, rows in (("q", H, Q), ("k", 1, K), ("v", 1, K))
        }
        _, sums = solve(dataclasses.replace(problem, **flat, score=None, sinks=None, dropout=None))  # type: ignore[arg-type]
        empty = np.isneginf(sums)
    if empty.any():
        found.append(f"{_place(empty)} is fully masked: the mask allows no key")
    if problem.score is not None and K:
        v = np.broadcast_to(np.zeros((), problem.dtype), (*problem.k.shape[:3], 1))
        _, sums = solve(dataclasses.replace(problem, v=v, sinks=None, dropout=None))
        by_score = np.isneginf(sums) & ~empty
        if by_score.any():
            found.append(
                f"{_place(by_score)} is fully masked: its score is −infinity for every key that the mask allows"
            )
    return found


def swapped_axes(call: ObservedCall, module: Any) -> list[str]:
    """Swapped axes of rows and heads, which only the module's own number of heads reveals."""
    heads = number_of_heads(module)
    sizes = tuple(call.q.shape)
    if call.kind == CACHE or heads is None or len(sizes) != 4 or sizes[1] == heads or sizes[2] != heads:
        return []
    return [
        f"q {sizes} has {sizes[1]} heads and {heads} rows, and the layer {heads} heads: the axes of heads "
        "and rows are swapped; the layout is (batch, heads, rows, depth), so call transpose(1, 2)"
    ]


def _place(rows: np.ndarray) -> str:
    """The first of these rows, and how many there are."""
    batch, head, row = (int(at) for at in np.argwhere(rows)[0])
    count = int(rows.sum())
    more = "" if count == 1 else f", the first of {count:,} of {rows.size:,} rows,"
    return f"row {row} of batch entry {batch}, head {head}{more}"


def _dtype(tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
