"""Models whose heads are divided over processes by transformers (tensor parallel): which heads a call computes.

Each process computes some heads of every layer and sees only these. What depends on the number of a head, dropout and
masks that read `h`, has to count from the first head of the process; everything else is the same for every head.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from ...common.errors import Reason, refuse
from ...language.expr import Expr, head, walk

WHERE = "regard, for transformers"
AXIS = "tp"  # the axis of transformers' device mesh over which heads are divided


def divided(module: torch.nn.Module):
    """The ranks over which the heads of an attention module are divided, an axis of a device mesh, or None.

    module: the attention module; its divided parameters are DTensors.
    """
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return None
    return next((mesh for mesh in map(_axis, module.parameters()) if mesh is not None), None)


def problems(module: torch.nn.Module, query, key) -> list[Reason]:
    """What would pair queries with keys of other heads, in a module whose heads are divided."""
    groups, heads, key_heads = getattr(module, "num_key_value_groups", None), query.shape[1], key.shape[1]
    if not isinstance(groups, int) or heads == key_heads * groups:
        return []
    fix = "divide the projections of queries, keys and values over the same number of ranks, a divisor of the key heads"
    return [
        Reason(
            "the heads of this rank do not have the groups of the model",
            f"{heads} query heads and {key_heads} key heads",
            f"{groups} query heads for each key head (num_key_value_groups)",
            fix,
        )
    ]


def head_start(mesh, module: torch.nn.Module, heads: int, rule: Any, dropout: float, *added: Any) -> int | None:
    """The number of the first query head of this rank, if a call depends on it; otherwise None.

    mesh: as `divided` returns it. heads: how many query heads the call has. rule: the mask of the model, which counts
    the heads of all ranks. added: tensors that have the heads of this rank only, or None.
    """
    by_head = isinstance(rule, Expr) and any(node is head for node in walk(rule))
    total = getattr(getattr(module, "config", None), "num_attention_heads", None)
    if not (by_head or dropout) or total == heads:  # equal: the outputs of divided projections were gathered
        return None
    ranks, rank = mesh.size(), mesh.get_local_rank()
    most = math.ceil(total / ranks) if isinstance(total, int) else heads
    if not isinstance(total, int) or heads != min(most, total - rank * most):
        raise refuse(
            WHERE,
            "dropout or a mask depends on the numbers of heads, and those of this rank are not known",
            f"{heads} query heads on rank {rank} of {ranks}, num_attention_heads={total}",
            f"consecutive heads, num_attention_heads / {ranks} on each rank",
            "set attention_dropout to 0, or divide the heads evenly",
        )
    if any(isinstance(tensor, torch.Tensor) and tensor.ndim > 2 and tensor.shape[-3] > 1 for tensor in added):
        raise refuse(
            WHERE,
            "a tensor by head, with dropout or a mask that depends on the numbers of heads, in tensor parallel",
            f"a mask or bias with {heads} heads, those of rank {rank}",
            "a mask or bias that is the same for all heads, or no dropout",
            "set attention_dropout to 0",
        )
    return rank * most


def _axis(parameter: torch.nn.Parameter):
    """The axis of its device mesh over which a parameter is divided by heads, or None."""
    mesh = getattr(parameter, "device_mesh", None)
    if mesh is None:
        return None
    names = mesh.mesh_dim_names or ()
    if len(names) > 1 and AXIS not in names:
        return None
    axis = names.index(AXIS) if AXIS in names else 0
    if not parameter.placements[axis].is_shard():
        return None
    return mesh[AXIS] if len(names) > 1 else mesh
