"""DeviceCall: one checked call of attention on a device: the problem without data, and the tensors."""

from __future__ import annotations

import math
import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ...common.arrays import as_tensor, device_of, is_tensor, read_array, stand_in
from ...common.dtypes import LISTED, torch_dtypes, torch_real
from ...common.errors import Reason, Refused, refuse
from ...language.expr import Expr, Table, tables_of
from ...language.problem import Problem

Tables = dict[Table, torch.Tensor]

_copies: weakref.WeakKeyDictionary[Table, dict[torch.device, torch.Tensor]] = weakref.WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class DeviceCall:
    """One checked call: q (B, H, Q, D) · k (B, G, K, D) · v (B, G, K, E) · sinks (H, S) or None, on one device.

    problem: the same call with placeholders for q, k, v and sinks, arrays of their shapes without data, so that checks,
    rules, positions and plans are those of the CPU. tables: the tables that the rules read, on the device.
    """

    problem: Problem
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    sinks: torch.Tensor | None
    tables: Tables

    @property
    def real(self) -> torch.dtype:
        """The dtype of sums and lse: float32, or float64 for float64 tensors."""
        return torch_real(self.q.dtype)

    @classmethod
    def of(cls, q, k, v, *, sinks=None, where="attention", **arguments) -> DeviceCall:
        """The checked call; raises `Refused`, listing every problem. v=None: a call for the weights only."""
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
            **arguments,
        )
        batch = tuple(q.shape[:-3])
        if v is None:
            v = q.new_zeros(()).expand(*k.shape[:-1], 1)
        q, k, v = (_four_axes(tensor, batch) for tensor in (q, k, v))
        if sinks is not None and sinks.ndim == 1:
            sinks = sinks[:, None]
        return cls(problem, q, k, v, sinks, tables_on(q.device, problem.mask, problem.score))


def tables_on(device: torch.device, *rules: Expr | None) -> Tables:
    """The tables that the rules read, on the device: tensors themselves, copies of everything else."""
    read = tables_of(*(rule for rule in rules if rule is not None))
    return {table: _table_on(device, table) for table in read.values()}


def _table_on(device: torch.device, table: Table) -> torch.Tensor:
    source: Any = table.source
    if is_tensor(source):
        if source.device.type != "cpu" and table.kind != "float":
            # Booleans and integers were copied when the rule was built; the plan needs their current values.
            _refuse_capture(source.device)
            np.copyto(table.array, read_array(source, "table"))
        return source.to(device)
    if not table.frozen:
        return _copied(table.array, device)
    known = _copies.setdefault(table, {})
    if device not in known:
        known[device] = _copied(table.array, device)
    return known[device]


def _copied(array: np.ndarray, device: torch.device) -> torch.Tensor:
    # torch supports few operations on unsigned integers; 64-bit ones are rejected as tables.
    held = as_tensor(np.array(array, np.int64 if array.dtype.kind == "u" else array.dtype, order="C"))
    return on_device(held, device)


def on_device(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A tensor of the CPU on the device; refused while a CUDA graph is captured, which cannot hold the copy."""
    _refuse_capture(device)
    return tensor.to(device)


def capturing(device: torch.device) -> bool:
    """Whether a CUDA graph is captured, in which nothing can be copied or compared between CPU and GPU."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def _refuse_capture(device: torch.device) -> None:
    if capturing(device):
        raise refuse(
            "attention",
            "CUDA graph capture cannot copy what the rules need between CPU and GPU",
            "rules, positions or shapes that were not used before the capture, or arrays that may change",
            "a call like one before the capture, whose rules read arrays that regard made, or float tensors",
            "make the call once before the capture, with the same rules",
        )


def _tensor(name: str, value, q, reasons: list[Reason]) -> None:
    """Adds a reason unless this is a strided tensor of a supported dtype on the device of q."""
    if not is_tensor(value):
        reasons.append(
            Reason(
                f"{name} is not a tensor",
                type(value).__name__,
                f"a tensor on {device_of(q)}, like q",
                f"move it: torch.as_tensor({name}, device=q.device)",
            )
        )
    elif value.dtype not in torch_dtypes() or value.layout != torch.strided:
        reasons.append(
            Reason(
                f"{name} cannot be read",
                f"{value.dtype}, {value.layout}",
                f"{LISTED}, with plain strides",
                f"convert it: {name}.float(), {name}.to_dense()",
            )
        )
    elif value.device != q.device:
        reasons.append(
            Reason(
                f"{name} is on a different device",
                str(value.device),
                f"{q.device}, like q",
                f"move it: {name}.to(q.device)",
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
