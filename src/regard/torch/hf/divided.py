"""Models whose sequence is divided over ranks: the masks and attention calls inside `regard.parallel.sequence`.

A rank sees only its tokens. So the rule of a mask is taken over the positions of the whole sequence, which is right for
rules that capture numbers only; anything else raises Refused, and so do calls that do not show the positions.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, Protocol

import torch

from ...common.errors import Reason, refuse
from ...language.callables import as_mask
from ...language.checks.arguments import Arguments
from ...language.expr import Expr, head, walk
from .lazy_mask import EVERYTHING, OWN, LazyMask, between_graphs, lazy_mask

PACKED = "packed_sequence_mask_function.<locals>.inner_mask", "remap_positions_for_packed_sequence.<locals>.inner_mask"


class Sequence(Protocol):
    """A sequence of which this rank holds some tokens.

    positions: (n,) of the tokens that this rank holds. mask: which keys may be attended to, apart from the model's
    mask; None is all.
    """

    positions: torch.Tensor
    mask: Any

    def attention(self, tensors: tuple[torch.Tensor, ...], rules: Arguments, reasons: list[Reason]) -> torch.Tensor:
        """(B, H, n, E) from q, k and v of the tokens that this rank holds; what one rank refuses is raised on all."""


current: ContextVar[Sequence | None] = ContextVar("the sequence that is divided over ranks", default=None)


class DividedMask(LazyMask):
    """The mask of a whole sequence, for the tokens that a rank holds. reasons: why it cannot be used, if it cannot."""

    def __init__(self, rule: Expr, shape: tuple[int, int, int, int], device: torch.device | str, reasons: list[Reason]):
        super().__init__(rule, shape, 0, device)
        self.reasons = reasons


@between_graphs
def mask_for(batch_size: int, q_length: int, kv_length: int, q_offset=0, kv_offset=0, **rest: Any) -> LazyMask:
    """The mask function that is registered with transformers: `lazy_mask`, and the whole mask of a divided sequence."""
    sequence = current.get()
    if sequence is None and torch.compiler.is_exporting():
        from transformers.masking_utils import sdpa_mask

        return sdpa_mask(batch_size, q_length, kv_length, q_offset, kv_offset, **rest | {"allow_is_causal_skip": False})
    if sequence is None:
        return lazy_mask(batch_size, q_length, kv_length, q_offset, kv_offset, **rest)
    given = rest.get("attention_mask")
    if isinstance(given, DividedMask):
        return given
    reasons = []
    if int(q_offset) or int(kv_offset) or int(q_length) != int(kv_length):
        reasons.append(
            _reason(
                "a cache holds a part of a divided sequence",
                f"{q_length} rows from {q_offset}, {kv_length} keys from {kv_offset}",
                "call the model without past_key_values, and with use_cache=False",
            )
        )
    if given is not None and not bool(torch.as_tensor(given).all()):
        reasons.append(
            _reason(
                "padding of a divided sequence",
                f"attention_mask {list(given.shape)}, which hides keys",
                "omit attention_mask, and pass the rule of the whole sequence to rp.sequence, such as "
                "mask=rg.lengths(…)",
            )
        )
    function = rest.get("mask_function")
    rule = EVERYTHING if function is None else _everywhere(function, sequence.positions)
    if rule is None:
        reasons.append(
            _reason(
                "the model's mask depends on the tokens of one rank",
                getattr(function, "__qualname__", repr(function)),
                "pass position_ids = place.positions(rank); or its rule as mask= of rp.sequence",
            )
        )
    rule = EVERYTHING if rule is None else rule
    if sequence.mask is not None:
        rule = sequence.mask if rule is EVERYTHING else rule & sequence.mask
    return DividedMask(rule, (batch_size, 1, int(q_length), int(kv_length)), rest.get("device", "cpu"), reasons)


def divided_reasons(
    sequence: Sequence, mask: Any, kwargs: Mapping[str, Any], uncomputed: Mapping[str, Any]
) -> list[Reason]:
    """Why a call cannot be computed over ranks. uncomputed: by name, arguments that have to be absent."""
    reasons = [
        _reason(
            f"{name} of a divided sequence",
            f"{name} of shape {list(each.shape)}" if isinstance(each, torch.Tensor) else f"{name}={each}",
            "omit it, or train on one rank",
        )
        for name, each in uncomputed.items()
        if each is not None and each is not False
    ]
    if isinstance(mask, DividedMask):
        reasons += mask.reasons
    else:
        reasons.append(
            _reason(
                "the mask was not made for a divided sequence",
                "no mask" if mask is None else f"{type(mask).__name__} {list(mask.shape)}",
                "let the model build its mask inside rp.sequence: omit attention_mask",
            )
        )
    positions = kwargs.get("position_ids")
    if positions is None or not _same(positions, sequence.positions):
        given = (
            f"{list(positions.shape)} from {positions.flatten()[:3].tolist()}"
            if positions is not None
            else ("none: the model's attention does not receive them")
        )
        reasons.append(
            _reason(
                "position_ids are not those of the tokens of this rank",
                given,
                "position_ids=torch.from_numpy(place.positions(rank))[None], or a model whose attention receives "
                "them, such as Llama",
            )
        )
    return reasons


def _reason(what: str, given: str, fix: str) -> Reason:
    return Reason(what, given, "self-attention of a whole sequence without a cache", fix)


def _same(given: torch.Tensor, positions: torch.Tensor) -> bool:
    """Whether every row of position_ids (B, n) or (n,) is the positions."""
    return given.shape[-1] == len(positions) and bool((given == positions.to(given.device)).all())


def _everywhere(function: Callable, positions: torch.Tensor) -> Expr | None:
    """The rule of a mask function of transformers over positions, or None where it depends on tensors.

    transformers takes positions with gaps for packed documents; where they are the positions of this rank, the gaps are
    those of the placement, and the function inside is meant.
    """
    captured = inspect.getclosurevars(function).nonlocals
    parts = captured.get("mask_functions", ())
    if tuple(getattr(part, "__qualname__", "") for part in parts) == PACKED:
        inner = inspect.getclosurevars(parts[1]).nonlocals
        return _everywhere(inner["mask_function"], positions) if _same(inner["position_ids"], positions) else None
    return as_mask(function) if _of_numbers(function) else None


def _of_numbers(function: Any) -> bool:
    """Whether a function of transformers captures numbers only, or functions that do."""
    if getattr(function, "__module__", "") != OWN:
        return False
    captured = [*inspect.getclosurevars(function).nonlocals.values()]
    inner = [part for each in captured for part in (each if isinstance(each, tuple) else (each,))]
    return all(isinstance(each, int) or (callable(each) and _of_numbers(each)) for each in inner)


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
