"""Splits a mask into causality, conditions on rows and conditions on keys, for layers that compute no pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch

from ...api.torch_operator.record import build, name_tensors
from ...common.call_hooks import compiling, intercepted
from ...common.errors import Refused, refuse
from ...language import rule_text
from ...language.analysis import evaluate
from ...language.callables import as_mask
from ...language.expr import Expr, Op, Var, batch, head, key, query, walk
from ...language.masks import causal, everything
from ...language.rule_text import without_numbers
from ...language.tree.traced import Traced, text

SYMBOLS = batch, head, query, key
CAUSAL, EVERYTHING = causal(), everything()  # built here, because torch.compile records calls of these functions


Part: TypeAlias = tuple[Expr, set[str]]  # a condition, and the names of its variables
Tensors: TypeAlias = list[torch.Tensor]
Span: TypeAlias = tuple[int, int]  # the first position, and the one after the last: sizes that a program may leave open


@dataclass(frozen=True)
class MaskParts:
    """A mask as a conjunction of causality, rows (B, H, Q, 1) and keys (B, H, K, 1), which are booleans or None.

    B and H are 1 where a condition is the same for all.

    >>> import regard as rg
    >>> parts = MaskParts.of("here", rg.causal() & rg.lengths(2), torch.zeros(1, 1, 3, 8), (0, 3), (0, 3))
    >>> parts.causal, parts.rows, parts.keys.flatten().tolist()
    (True, None, [True, True, False])
    """

    causal: bool
    rows: torch.Tensor | None
    keys: torch.Tensor | None

    @classmethod
    def of(cls, where: str, mask, q: torch.Tensor, rows: Span, keys: Span) -> MaskParts:
        """Splits a mask for q (B, H, Q, D) at these positions: None, an expression, or booleans (…, 1, K).

        Raises `Refused` for a condition on both query and key other than rg.causal().
        """
        if compiling() or intercepted(q):
            mask = build(mask, SYMBOLS)
        if compiling() and isinstance(mask, Expr):
            mask = Traced(*text(mask))
        if isinstance(mask, Traced):
            tensors: list[torch.Tensor] = []
            rule = name_tensors(mask, tensors)
            kinds, condition = _kinds_of(where, rule, [_outline(each) for each in tensors]), torch.ops.regard.condition
            return cls(
                bool(kinds & 1),
                condition(q, tensors, rule, "query", *rows) if kinds & 2 else None,
                condition(q, tensors, rule, "key", *keys) if kinds & 4 else None,
            )
        if isinstance(mask, list) or hasattr(mask, "shape"):
            return cls(False, None, _booleans(where, mask, q, keys[1] - keys[0]))
        mask = as_mask(mask)
        if mask is None or mask is EVERYTHING:
            return cls(False, None, None)
        order, of_rows, of_keys = _split(where, mask)
        return cls(order, _evaluated(of_rows, "query", rows, q), _evaluated(of_keys, "key", keys, q))

    def hide(self, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values (B, G, K, …) with 0 for masked keys, so that NaN in them has no effect."""
        if self.keys is None:
            return k, v
        if self.keys.shape[1] > 1:  # the condition differs between query heads
            k, v = (each.repeat_interleave(self.keys.shape[1] // each.shape[1], 1) for each in (k, v))
        return torch.where(self.keys, k, 0), torch.where(self.keys, v, 0)


def _outline(tensor: torch.Tensor) -> tuple[torch.dtype, tuple[int, ...]]:
    """What the form of a rule depends on: the dtype, and which axes have one element."""
    return tensor.dtype, tuple([1 if size == 1 else 2 for size in tensor.shape])


def _kinds_of(where: str, rule: str, outlines: list[tuple[torch.dtype, tuple[int, ...]]]) -> int:
    """Of a mask as text: 1 if it is causal, and 2 and 4 if it has conditions on rows and on keys."""
    tensors = [torch.empty(shape, dtype=dtype, device="meta") for dtype, shape in outlines]
    order, of_rows, of_keys = _split(where, without_numbers(rule, tensors))
    return 1 * order + 2 * bool(of_rows) + 4 * bool(of_keys)


_kinds_of._dynamo_marked_constant = True  # type: ignore[attr-defined] # torch.compile calls it while it traces


# The operator of programs that torch records: where the conditions of a mask hold, for any number of rows or keys.
library = torch.library.Library("regard", "FRAGMENT")
library.define("condition(Tensor q, Tensor[] tables, str rule, str name, SymInt start, SymInt stop) -> Tensor")


def _conditions(rule: Any, name: str) -> list[Part]:
    _, of_rows, of_keys = _split("mask", rule)
    return of_rows if name == "query" else of_keys


def _condition(
    q: torch.Tensor, tables: list[torch.Tensor], rule: str, name: str, start: int, stop: int
) -> torch.Tensor:
    found = _evaluated(_conditions(rule_text.read(rule, tables), name), name, (start, stop), q)
    assert found is not None  # the program calls it only where there are conditions
    return found


def _fake(q: torch.Tensor, tables: Tensors, rule: str, name: str, start: int, stop: int) -> torch.Tensor:
    mentioned = set().union(*(names for _, names in _conditions(without_numbers(rule, tables), name)))
    batch, heads = (size if each in mentioned else 1 for each, size in zip(("batch", "head"), q.shape))
    return q.new_empty((batch, heads, stop - start, 1), dtype=torch.bool)


for _device in ("CPU", "CUDA", "XPU"):
    library.impl("condition", _condition, _device)
torch.library.register_fake("regard::condition", _fake, lib=library)


def _split(where: str, given: Any) -> tuple[bool, list[Part], list[Part]]:
    """Whether a mask is causal, its conditions on rows, and those on keys."""
    mask, order = as_mask(given), False
    assert mask is not None
    of_rows: list[Part] = []
    of_keys: list[Part] = []
    for part in _conjuncts(mask):
        names = {node.name for node in walk(part) if isinstance(node, Var)}
        if part is CAUSAL:
            order = True
        elif {"query", "key"} <= names:
            raise _unsupported(where, str(part))
        else:
            (of_rows if "query" in names else of_keys).append((part, names))
    return order, of_rows, of_keys


def _conjuncts(mask: Expr) -> list[Expr]:
    if isinstance(mask, Op) and mask.name == "and":
        return [part for arg in mask.args for part in _conjuncts(arg)]
    return [mask]


def _evaluated(parts: list[Part], name: str, places: Span, q: torch.Tensor) -> torch.Tensor | None:
    """The conjunction of the conditions as booleans; None without conditions."""
    if not parts:
        return None
    mentioned = set().union(*(names for _, names in parts))
    batch = np.arange(q.shape[0] if "batch" in mentioned else 1).reshape(-1, 1, 1)
    head = np.arange(q.shape[1] if "head" in mentioned else 1).reshape(-1, 1)
    values = {"batch": batch, "head": head, name: np.arange(*places)}
    allowed = np.ones((len(batch), len(head), len(values[name])), bool)
    for part, _ in parts:
        allowed = allowed & evaluate(part, values)
    return torch.from_numpy(allowed).to(q.device)[..., None]


def _booleans(where: str, mask, q: torch.Tensor, keys: int) -> torch.Tensor:
    given = torch.as_tensor(mask, device=q.device)
    shape = (1,) * (4 - given.ndim) + tuple(given.shape)
    fits = len(shape) == 4 and all(size in (1, full) for size, full in zip(shape, (*q.shape[:2], 1, keys)))
    if given.dtype != torch.bool or not fits:
        raise _unsupported(where, f"{given.dtype} {tuple(given.shape)}")
    return given.reshape(shape).mT.expand(-1, -1, keys, 1)


def _unsupported(where: str, given: str) -> Refused:
    return refuse(
        where,
        "the mask depends on pairs of query and key, which this layer does not compute",
        given,
        "None, rg.causal(), conditions on keys or on rows such as rg.lengths(n), or booleans (…, 1, K)",
        "use regard.torch.layers.Attention, which supports every mask",
    )
