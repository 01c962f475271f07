"""DeviceCall: what one call of attention asks where its tensors lie: the checked problem without numbers, and the
tensors beside it.
"""

from __future__ import annotations

import math
import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ...common.arrays import as_tensor, device_of, is_tensor, read_array, stand_in
from ...common.dtypes import LISTED, torch_dtypes, torch_real
from ...common.errors import Reason, Refused
from ...language.expr import Expr, Table, tables_of
from ...language.problem import Problem

__all__ = ["DeviceCall", "tables_on"]

Tables = dict[Table, torch.Tensor]

_copies: weakref.WeakKeyDictionary[Table, dict[torch.device, torch.Tensor]] = weakref.WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class DeviceCall:
    """One checked call: q (B, H, Q, D) · k (B, G, K, D) · v (B, G, K, E) · sinks (H, S) or None, on one device.

    problem: the same call with stand-ins for q, k, v and sinks, arrays of their shapes without numbers: checks, rules,
    positions and plans are those of the CPU. tables: what the rules read, on the device.
    """

    problem: Problem
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    sinks: torch.Tensor | None
    tables: Tables

    @property
    def real(self) -> torch.dtype:
        """What sums are made in, and lse: float32, or float64 for float64 tensors."""
        return torch_real(self.q.dtype)

    @classmethod
    def of(cls, q, k, v, *, sinks=None, where="attention", **asked) -> DeviceCall:
        """The checked call, or `Refused` with all reasons at once; v=None asks about weights only."""
        reasons: list[Reason] = []
        for name, value in (("q", q), ("k", k), ("v", v), ("sinks", sinks)):
            if value is not None:
                _tensor(name, value, q, reasons)
        if reasons:
            raise Refused(where, reasons)
        device = device_of(q)
        problem = Problem.of(
            stand_in(q),
            stand_in(k),
            None if v is None else stand_in(v),
            where=where,
            device=device,
            sinks=None if sinks is None else stand_in(sinks),
            **asked,
        )
        batch = tuple(q.shape[:-3])
        if v is None:
            v = q.new_zeros(()).expand(*k.shape[:-1], 1)
        q, k, v = (_four_axes(tensor, batch) for tensor in (q, k, v))
        if sinks is not None and sinks.ndim == 1:
            sinks = sinks[:, None]
        return cls(problem, q, k, v, sinks, tables_on(q.device, problem.mask, problem.score))


def tables_on(device: torch.device, *rules: Expr | None) -> Tables:
    """What the rules read, on the device: tensors as they are, copies of everything else."""
    read = tables_of(*(rule for rule in rules if rule is not None))
    return {table: _table_on(device, table) for table in read.values()}


def _table_on(device: torch.device, table: Table) -> torch.Tensor:
    source: Any = table.source
    if is_tensor(source):
        if source.device.type != "cpu" and table.kind != "float":
            # Conditions and whole numbers were copied when the rule was built; the plan must see what they are now.
            np.copyto(table.array, read_array(source, "table"))
        return source.to(device)
    if not table.frozen:
        return _copied(table.array, device)
    known = _copies.setdefault(table, {})
    if device not in known:
        known[device] = _copied(table.array, device)
    return known[device]


def _copied(array: np.ndarray, device: torch.device) -> torch.Tensor:
    # torch knows little of unsigned numbers; those of 64 bits are no tables.
    return as_tensor(np.array(array, np.int64 if array.dtype.kind == "u" else array.dtype, order="C")).to(device)


def _tensor(name: str, value, q, reasons: list[Reason]) -> None:
    """Whether this is a tensor that torch's kernels could read beside q."""
    if not is_tensor(value):
        reasons.append(
            Reason(
                f"{name} is no tensor",
                given=type(value).__name__,
                expected=f"a tensor on {device_of(q)}, like q",
                fix=f"move it: torch.as_tensor({name}, device=q.device)",
            )
        )
    elif value.dtype not in torch_dtypes() or value.layout != torch.strided:
        reasons.append(
            Reason(
                f"{name} cannot be read",
                given=f"{value.dtype}, {value.layout}",
                expected=f"{LISTED}, with plain strides",
                fix=f"convert it: {name}.float(), {name}.to_dense()",
            )
        )
    elif value.device != q.device:
        reasons.append(
            Reason(
                f"{name} lies on another device",
                given=str(value.device),
                expected=f"{q.device}, like q",
                fix=f"move it: {name}.to(q.device)",
            )
        )


def _four_axes(tensor: torch.Tensor, batch: tuple[int, ...]) -> torch.Tensor:
    """(…, heads, rows, depth) as (B, heads, rows, depth), the axes before the heads broadcast to those of the
    queries.
    """
    heads = tensor.shape[-3] if tensor.ndim > 2 else 1
    inner = (heads, *tensor.shape[-2:])
    B = math.prod(batch)
    own = math.prod(tensor.shape[:-3])
    if own in (1, B):
        return tensor.reshape(own, *inner).expand(B, *inner)
    return tensor.expand(*batch, *inner).reshape(B, *inner)
