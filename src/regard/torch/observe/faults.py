"""Faults: what is wrong with one attention call: its numbers, its rows, its axes; each in a sentence."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ...common.arrays import as_tensor, is_tensor, read_array
from ...common.module_settings import number_of_heads
from ...engines.dispatch import solve
from ...language.expr import tables_of
from ...language.problem import Problem
from .observed_call import CACHE, ObservedCall

__all__ = ["Finding", "amiss", "empty_rows", "swapped_axes", "wrong_numbers"]

KINDS = ("shape", "number", "row")


@dataclass(frozen=True)
class Finding:
    """Something wrong. kind: "shape", "number" (NaN or infinity) or "row" (one that attends nothing). call: its index,
    if any.
    """

    kind: str
    call: int | None
    layer: str
    text: str

    def __str__(self) -> str:
        return f"{'' if self.call is None else f'call {self.call}, '}{self.layer}: {self.text}"


def amiss(value, below: bool = True) -> str | None:
    """What is wrong with the numbers of a tensor or array, in words; None if all is well. below: whether −infinity is
    wrong too.
    """
    if value is None or not hasattr(value, "shape"):
        return None
    tensor = value.detach() if is_tensor(value) else as_tensor(np.ascontiguousarray(read_array(value, "value")))
    if not tensor.is_floating_point() or tensor.device.type == "meta" or not tensor.numel():
        return None
    nan = torch.isnan(tensor)
    endless = torch.isinf(tensor) if below else tensor == torch.inf
    spoiled = nan | endless
    count = int(spoiled.sum())
    if not count:
        return None
    names = [name for name, some in (("NaN", nan), ("infinity", endless)) if bool(some.any())]
    first = spoiled.nonzero()[0].tolist()
    return f"{' and '.join(names)} in {count:,} of {tensor.numel():,} numbers, first at {first}"


def wrong_numbers(call: ObservedCall, problem: Problem | None) -> list[str]:
    """Where NaN or infinity is in a call: what it was given, or what becomes of it."""
    given = {"q": call.q, "k": call.k, "v": call.v, "the sinks": call.given.get("sinks")}
    given |= {"the added mask": call.given.get("attn_mask")} if amiss(call.given.get("attn_mask"), below=False) else {}
    if problem is not None and problem.score is not None:
        given |= {f"the score's table {table.name!r}": table.array for table in tables_of(problem.score).values()}
    below = {"the added mask": False}
    found = [
        f"{name} already holds {words}"
        for name, value in given.items()
        if (words := amiss(value, below.get(name, True)))
    ]
    words = amiss(call.out)
    if words and not found:
        scores = call.trail.scores if call.trail is not None else None
        inner = amiss(scores, below=False)
        if inner:
            found.append(
                f"the scores hold {inner}, of q and k that are finite: they leave the range of {_dtype(scores)}"
            )
        found.append(f"the output holds {words}, though q, k and v are finite")
    return found


def empty_rows(problem: Problem) -> list[str]:
    """Rows that no key is left for: by the mask, or because every score that the mask allows is −infinity."""
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
        found.append(f"{_place(empty)} attends nothing: the mask allows no key")
    if problem.score is not None and K:
        v = np.broadcast_to(np.zeros((), problem.dtype), (*problem.k.shape[:3], 1))
        _, sums = solve(dataclasses.replace(problem, v=v, sinks=None, dropout=None))
        swallowed = np.isneginf(sums) & ~empty
        if swallowed.any():
            found.append(
                f"{_place(swallowed)} attends nothing: its score is −infinity for every key that the mask allows"
            )
    return found


def swapped_axes(call: ObservedCall, module: Any) -> list[str]:
    """Rows and heads that changed places, where nothing but the module's own number of heads can tell."""
    heads = number_of_heads(module)
    sizes = tuple(call.q.shape)
    if call.kind == CACHE or heads is None or len(sizes) != 4 or sizes[1] == heads or sizes[2] != heads:
        return []
    return [
        f"q {sizes} has {sizes[1]} heads and {heads} rows, and the layer {heads} heads: the axes of heads "
        "and rows changed places; "
        "attention wants (batch, heads, rows, depth), so transpose(1, 2)"
    ]


def _place(rows: np.ndarray) -> str:
    """How many rows, and where the first of them is."""
    batch, head, row = (int(at) for at in np.argwhere(rows)[0])
    count = int(rows.sum())
    more = "" if count == 1 else f", the first of {count:,} of {rows.size:,} rows,"
    return f"row {row} of batch entry {batch}, head {head}{more}"


def _dtype(tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
