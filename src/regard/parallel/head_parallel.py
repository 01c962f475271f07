"""Heads over ranks: `HeadParallel`, a style of torch's `parallelize_module`, and attention layers with some heads.

Inputs of a divided layer are the same on every rank, and its output is the sum of those of all ranks, which every rank
adds in the order of the ranks, as a node of torch's autograd.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor.parallel import ParallelStyle

from ..common.arrays import bytes_of
from ..common.errors import refuse
from ..torch.functional import attention
from ..torch.layers import Attention, DifferentialAttention, MultiHeadAttention
from .exchange import Transport, agreed, linear, processes, swap_arrays
from .heads import Heads, heads

WHERE = "HeadParallel"
PROJECTIONS = ("q", "k", "v", "o")


class Ranks:
    """The ranks that divide the heads of layers. Copies of a layer share it; it cannot be saved."""

    def __init__(self, transport: Transport):
        self.transport = transport
        self.everyone = tuple(range(transport.ranks))

    def total(self, step: str, part: torch.Tensor, among: Sequence[int]) -> torch.Tensor:
        """The sum of the parts of some ranks, in the order of the ranks: ((part₀ + part₁) + part₂) + …

        Every rank has the same bits. Numbers of 16 bits are added in float32, and rounded once. step: what is added, in
        words. among: the ranks whose parts are added, this one included; all ranks have to call it.
        """
        sent = bytes_of(part)
        arrays = [[sent] if rank in among else [] for rank in self.everyone]
        found = swap_arrays(self.transport, step, arrays, arrays)()
        parts = (torch.from_numpy(found[rank][0]).view(part.dtype).reshape(part.shape) for rank in sorted(among))
        exact = torch.promote_types(part.dtype, torch.float32)
        total = next(parts).to(exact)
        for other in parts:
            total = total + other
        return total.to(part)

    def __deepcopy__(self, memo: dict) -> Ranks:
        return self

    def __reduce__(self):
        raise refuse(
            WHERE,
            "a layer whose heads are divided over ranks cannot be saved as an object",
            "pickle or torch.save of the layer",
            "its state_dict(), which has the heads of this rank",
            "save layer.state_dict() on each rank, or the whole layer before it is divided",
        )


def summed(part: torch.Tensor, ranks: Ranks, step: str) -> torch.Tensor:
    """The sum of the parts of all ranks, the same on each. Its gradient, the same on each, is that of every part."""
    return linear(part, lambda each: ranks.total(step, each, ranks.everyone), lambda gradient: gradient)


def entered(whole: torch.Tensor, ranks: Ranks, step: str, among: Sequence[int] | None = None) -> torch.Tensor:
    """A tensor that is the same on some ranks (None: on all), where each computes a part of what depends on it.

    Its gradient is the sum of those that these ranks compute. Every rank has to call it, and its backward pass.
    """
    some = ranks.everyone if among is None else among
    return linear(
        whole,
        lambda each: each.view_as(each),
        lambda gradient: ranks.total(f"gradient of {step}", gradient, some),
    )


class SummedLinear(torch.nn.Linear):
    """A linear layer with some columns of a whole one: Σ over ranks of x Wᵀ, in rank order, plus the bias."""

    ranks: Ranks

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The output of the whole layer, the same on every rank."""
        out = summed(torch.nn.functional.linear(x, self.weight), self.ranks, "the output of a layer")
        return out if self.bias is None else out + self.bias.to(out.dtype)


class _Divided(torch.nn.Module):
    """A layer with the heads `part` of a whole one."""

    part: Heads
    ranks: Ranks

    def extra_repr(self) -> str:
        """The settings that repr(layer) shows besides the submodules."""
        settings = super().extra_repr()
        return f"{settings}, {self.part}" if settings else f"{self.part}"


class DividedAttention(_Divided, Attention):
    """An `Attention` with the heads `part` of a whole one."""

    def forward(self, x: torch.Tensor, memory=None, *, mask=None, cache=None, positions=None) -> torch.Tensor:
        """As `Attention.forward`; `cache` has the key heads of this rank, and so have keys from `remember`."""
        given = [x, *([] if memory is None else memory if isinstance(memory, tuple) else [memory])]
        _agree(self, given, lambda: self._check(x, memory, cache, positions))
        x = entered(x, self.ranks, "the input")
        if isinstance(memory, torch.Tensor):
            memory = entered(memory, self.ranks, "the memory")
        with _whole_gradients(self):
            return super().forward(x, memory, mask=mask, cache=cache, positions=positions)

    def remember(self, memory: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """As `Attention.remember`, with the key heads of this rank."""
        _agree(self, [memory], lambda: None)
        with _whole_gradients(self):
            return super().remember(entered(memory, self.ranks, "the memory"))


class DividedDifferentialAttention(_Divided, DifferentialAttention):
    """A `DifferentialAttention` with the heads `part` of a whole one."""

    def forward(self, x: torch.Tensor, *, mask=None, cache=None, positions=None) -> torch.Tensor:
        """As `DifferentialAttention.forward`; `cache` has the key heads of this rank."""
        _agree(self, [x], lambda: None)
        with _whole_gradients(self):
            x = entered(x, self.ranks, "the input")
            return super().forward(x, mask=mask, cache=cache, positions=positions)


class DividedMultiHeadAttention(_Divided, MultiHeadAttention):
    """A `MultiHeadAttention` with the heads `part` of a whole one; `num_heads` and masks are those of the whole."""

    def forward(
        self,
        query,
        key,
        value,
        key_padding_mask=None,
        need_weights=True,
        attn_mask=None,
        average_attn_weights=True,
        is_causal=False,
    ):
        """As `MultiHeadAttention.forward`, with need_weights=False: no rank has the weights of all heads."""

        def check() -> None:
            if need_weights or query.is_nested:
                raise refuse(
                    WHERE,
                    "weights or nested tensors, of a layer whose heads are divided over ranks",
                    "nested tensors" if query.is_nested else "need_weights=True, which is the default",
                    "need_weights=False, and padded tensors",
                    "pass need_weights=False",
                )

        _agree(self, [query, key, value], check)
        inside: dict[int, torch.Tensor] = {}
        for rows, name in ((query, "the query"), (key, "the key"), (value, "the value")):
            if id(rows) not in inside:  # the same tensor stays the same one
                inside[id(rows)] = entered(rows, self.ranks, name)
        q, k, v = (inside[id(rows)] for rows in (query, key, value))
        return super().forward(q, k, v, key_padding_mask, False, attn_mask, average_attn_weights, is_causal)


def _agree(layer: Any, given: list[torch.Tensor], check: Callable[[], None]) -> None:
    """Compares what the ranks are about to compute; a refusal on one is raised on all."""

    def prepare() -> tuple[None, dict[str, str]]:
        for rows in given:
            if type(rows) is not torch.Tensor and hasattr(rows, "device_mesh"):
                raise refuse(
                    WHERE,
                    "an input is a DTensor",
                    f"{type(rows).__name__} with {rows.placements}",
                    "a tensor with all rows, the same on every rank",
                    "pass x.full_tensor()",
                )
        check()
        shapes = ", ".join(f"{tuple(rows.shape)} {rows.dtype}" for rows in given)
        terms = {"the inputs": shapes, "training": f"{layer.training}", "gradients": f"{torch.is_grad_enabled()}"}
        needed = [rows.requires_grad for rows in given] + [each.requires_grad for each in layer.parameters()]
        return None, terms | {"what requires gradients": f"{needed}"}

    agreed(layer.ranks.transport, WHERE, prepare)


@contextlib.contextmanager
def _whole_gradients(layer: Any) -> Iterator[None]:
    """Inside, parameters that several ranks have get the sum of the gradients of these ranks."""
    replaced = [
        (owner._parameters, name, parameter, among)
        for owner, names, among in _held_by_several(layer)
        for name in names
        if (parameter := owner._parameters[name]) is not None and parameter.requires_grad and torch.is_grad_enabled()
    ]
    try:
        for held, name, parameter, among in replaced:
            held[name] = entered(parameter, layer.ranks, name, among)
        yield
    finally:
        for held, name, parameter, _ in replaced:
            held[name] = parameter
        if replaced:
            layer._build()  # the score reads the parameters themselves again


def _held_by_several(layer: Any) -> Iterator[tuple[torch.nn.Module, list[str], tuple[int, ...]]]:
    """Modules, names of their parameters, and the ranks that have these: the projections of a key head that several
    ranks share, and what belongs to no head, such as norms and learned positions.
    """
    if layer.part.ranks > layer.part.key_heads:
        for projection in (layer.k, layer.v):
            yield projection, [*projection._parameters], layer.part.sharers
    for name, child in layer.named_children():
        if name not in PROJECTIONS:
            for owner in child.modules():
                yield owner, [*owner._parameters], layer.ranks.everyone
    yield layer, [name for name in layer._parameters if name != "sinks"], layer.ranks.everyone


DIVIDED: dict[type, type] = {
    Attention: DividedAttention,
    DifferentialAttention: DividedDifferentialAttention,
    MultiHeadAttention: DividedMultiHeadAttention,
}


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
        ranks: Any = Ranks(transport)
        divide(module, part, ranks)
        module.part, module.ranks, module.__class__ = part, ranks, DIVIDED[type(module)]
    return module


def _known(module: torch.nn.Module) -> tuple[Callable[..., None], int, int]:
    """How a layer is divided, and its numbers of query heads and key heads."""
    if type(module) is MultiHeadAttention:
        plain = isinstance(module.out_proj, torch.nn.Linear) and not isinstance(module.out_proj, SummedLinear)
        found: Any = _multi_head, module.num_heads, module.num_heads
    elif type(module) in DIVIDED:
        plain = all(type(each) is torch.nn.Linear for each in (module.q, module.k, module.v, module.o))
        found = _projections, module.heads, module.kv_heads
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
        own = bytes_of(parameter)
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


def _multi_head(layer: Any, part: Heads, ranks: Ranks) -> None:
    """Leaves the heads of this rank in a `MultiHeadAttention`."""
    rows = _rows(part.query, layer.head_dim)
    packed = [third * layer.embed_dim + row for third in range(3) for row in rows]
    for names, indices, axis in (
        (("in_proj_weight", "in_proj_bias"), packed, 0),
        (("q_proj_weight", "k_proj_weight", "v_proj_weight"), rows, 0),
        (("bias_k", "bias_v"), rows, -1),
    ):
        for name in names:
            setattr(layer, name, _some(getattr(layer, name), indices, axis))
    _columns(layer.out_proj, rows, ranks)
    layer.attend = functools.partial(attention, head_start=part.query.start)


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
