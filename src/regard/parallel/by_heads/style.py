"""`HeadParallel`: a style of torch's `parallelize_module` that divides the heads of attention layers over ranks."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor.parallel import ParallelStyle

from ...common.errors import refuse
from ...torch.functional import attention
from ...torch.layers import Attention, DifferentialAttention, MultiHeadAttention
from ..exchange.agreement import agreed
from ..exchange.processes import processes
from ..exchange.transport import Transport, swap_arrays
from .layers import (
    WHERE,
    DividedAttention,
    DividedDifferentialAttention,
    DividedMultiHeadAttention,
    SummedLinear,
)
from .split import Heads, heads
from .sums import Ranks

DIVIDED = {Attention: DividedAttention, DifferentialAttention: DividedDifferentialAttention}


class HeadParallel(ParallelStyle):
    """Divides the heads of attention layers over the ranks of a mesh: tensor parallel.

    out = o(concat over h of head_h) = Σ over ranks, in rank order, of o_r(concat over the rank's h of head_h) + bias

    A style for torch.distributed.tensor.parallel.parallelize_module, for `Attention`, `DifferentialAttention` and
    `MultiHeadAttention` of regard.torch. Each rank keeps the rows of q, k and v, the columns of o, and the sinks, of
    the heads that `rp.heads` gives it: whole groups, also uneven numbers of them; with more ranks than key heads,
    several ranks have the same key head. Before that, the parameters of rank 0 are sent to all (src_data_rank=None
    keeps each rank's own).

    Inputs have to be the same on every rank, and so are outputs, bit for bit. Gradients of inputs, and of parameters
    that several ranks have, are sums over these ranks in rank order, also with the same bits. Dropout, score rules and
    masks count the heads of the whole layer; with the same torch.manual_seed on every rank, dropout is that of one
    process. A cache has `layer.kv_heads` heads, those of the rank. state_dict() has the parameters of the rank: load a
    checkpoint before dividing.

    Args:
        seconds: how long a rank waits for the others before it raises `rp.Lost`.

    Raises:
        Refused: on every rank, when the style is applied: another kind of layer, or more ranks than query heads.

    Source:
        Shoeybi et al. 2019, section 3.

    Examples:
        >>> import regard.parallel as rp
        >>> from torch.distributed.device_mesh import init_device_mesh
        >>> from torch.distributed.tensor.parallel import parallelize_module
        >>> def divide(model):  # on each rank, started by torchrun
        ...     mesh = init_device_mesh("cpu", (2,))
        ...     return parallelize_module(model, mesh, {"layers.*.attention": rp.HeadParallel()})
    """

    def __init__(self, *, seconds: float = 60.0):
        self.seconds = seconds

    def _apply(self, module: torch.nn.Module, device_mesh: DeviceMesh) -> torch.nn.Module:
        return divided(module, processes(device_mesh, self.seconds), self.src_data_rank)


def divided(module: torch.nn.Module, transport: Transport, source: int | None) -> torch.nn.Module:
    """The layer, with the heads of this rank. source: the rank whose parameters count; None keeps each rank's own."""

    def prepare() -> tuple[tuple[Callable[..., None], Heads], dict[str, str]]:
        divide, H, G = _known(module)
        part = heads(transport.rank, ranks=transport.ranks, heads=H, key_heads=G)
        shapes = {name: tuple(each.shape) for name, each in module.named_parameters()}
        return (divide, part), {"the layer": f"{module}", "its parameters": f"{shapes}"}

    divide, part = agreed(transport, WHERE, prepare)
    if source is not None:
        _send(module, transport, source)
    if transport.ranks > 1:
        divide(module, part, Ranks(transport))
    return module


def _known(module: torch.nn.Module) -> tuple[Callable[..., None], int, int]:
    """How a layer is divided, and its numbers of query heads and key heads."""
    if type(module) in DIVIDED:
        plain = all(type(each) is torch.nn.Linear for each in (module.q, module.k, module.v, module.o))
        found: Any = _projections, module.heads, module.kv_heads
    elif type(module) is MultiHeadAttention:
        plain = isinstance(module.out_proj, torch.nn.Linear) and not isinstance(module.out_proj, SummedLinear)
        found = _multi_head, module.num_heads, module.num_heads
    else:
        raise refuse(
            WHERE,
            "the heads of this layer cannot be divided",
            type(module).__name__,
            "Attention, DifferentialAttention or MultiHeadAttention of regard.torch, undivided",
            "name such layers in the plan, or leave this one whole on every rank",
        )
    if not plain or module.attend is not attention:
        raise refuse(
            WHERE,
            "the layer was changed",
            "projections of another type, or another function `attend`",
            "the layer as it was constructed",
            "divide it first, and change it then",
        )
    return found


def _send(module: torch.nn.Module, transport: Transport, source: int) -> None:
    """Gives every rank the parameters of one."""
    for name, parameter in module.named_parameters():
        own = parameter.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        outgoing = [[own] if transport.rank == source else []] * transport.ranks
        like = [[own] if rank == source else [] for rank in range(transport.ranks)]
        (found,) = swap_arrays(transport, f"parameter {name}", outgoing, like)()[source]
        parameter.data.copy_(torch.from_numpy(found).view(parameter.dtype).reshape(parameter.shape))


def _projections(layer: Any, part: Heads, ranks: Ranks) -> None:
    """Leaves the heads of this rank in an `Attention` or a `DifferentialAttention`."""
    for projection, of, count in (
        (layer.q, part.query, layer.heads),
        (layer.k, part.key, layer.kv_heads),
        (layer.v, part.key, layer.kv_heads),
    ):
        rows = _rows(of, projection.out_features // count)
        projection.weight, projection.bias = _some(projection.weight, rows, 0), _some(projection.bias, rows, 0)
        projection.out_features = len(rows)
    _columns(layer.o, _rows(part.query, layer.o.in_features // layer.heads), ranks)
    if isinstance(layer, Attention):
        layer.sinks = _some(layer.sinks, list(part.query), 0)
    layer.heads, layer.kv_heads, layer.head_start = len(part.query), len(part.key), part.query.start
    layer.part, layer.ranks, layer.__class__ = part, ranks, DIVIDED[type(layer)]


def _multi_head(layer: Any, part: Heads, ranks: Ranks) -> None:
    """Leaves the heads of this rank in a `MultiHeadAttention`."""
    rows = _rows(part.query, layer.head_dim)
    packed = [third * layer.embed_dim + row for third in range(3) for row in rows]
    layer.in_proj_weight, layer.in_proj_bias = (
        _some(each, packed, 0) for each in (layer.in_proj_weight, layer.in_proj_bias)
    )
    for name in ("q_proj_weight", "k_proj_weight", "v_proj_weight"):
        setattr(layer, name, _some(getattr(layer, name), rows, 0))
    layer.bias_k, layer.bias_v = (_some(each, rows, -1) for each in (layer.bias_k, layer.bias_v))
    _columns(layer.out_proj, rows, ranks)
    layer.attend = functools.partial(attention, head_start=part.query.start)
    layer.part, layer.ranks, layer.__class__ = part, ranks, DividedMultiHeadAttention


def _columns(projection: Any, columns: Sequence[int], ranks: Ranks) -> None:
    """Leaves some columns in an output projection, whose output becomes the sum over the ranks."""
    projection.weight = _some(projection.weight, columns, 1)
    projection.in_features, projection.ranks, projection.__class__ = len(columns), ranks, SummedLinear


def _rows(of: range, depth: int) -> list[int]:
    """The rows of a projection that belong to some heads."""
    return list(range(of.start * depth, of.stop * depth))


def _some(parameter: torch.nn.Parameter | None, indices: Sequence[int], axis: int) -> torch.nn.Parameter | None:
    """Some rows or columns of a parameter, as a parameter of its own; None for none."""
    if parameter is None:
        return None
    chosen = torch.tensor(indices, device=parameter.device)
    return torch.nn.Parameter(parameter.detach().index_select(axis, chosen), parameter.requires_grad)
