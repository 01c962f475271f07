"""Attention over ranks whose tensors are on GPUs: keys and values travel by NCCL, torch's kernels compute.

It has run on one GPU, never on several: the tests run it on CPU tensors over gloo. Each rank computes the rows that it
holds, and keeps keys and values of the length of the whole sequence. Results are those of one process to a rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from torch.autograd.function import once_differentiable

from ...api.attention import attention_with_lse
from ...common.errors import Reason, Refused
from ...language.checks.arguments import Arguments
from ...language.problem import Problem
from ..placement import Placement
from ..traffic import routes
from ..work import Sizes, Work


class Prepared(NamedTuple):
    """whole: the problem over all tokens. positions: of the tokens of each rank. sent, received: of the tokens that go
    to, or come from, each rank.
    """

    whole: Problem
    positions: np.ndarray
    sent: list[np.ndarray]
    received: list[np.ndarray]


def checked(
    where: str, rank: int, place: Placement, tensors: tuple[Any, Any, Any], arguments: Arguments
) -> tuple[Prepared, dict[str, str]]:
    """What this rank is about to do, and what has to be equal on all ranks."""
    tokens, device = place.sizes.tokens, str(tensors[0].device)
    shapes = [(*each.shape[:-2], tokens, each.shape[-1]) for each in tensors]
    q, k, v = (np.broadcast_to(np.zeros((), np.float32), shape) for shape in shapes)
    whole: Problem = Problem.of(q, k, v, **arguments._asdict(), where=where, gradients=True, device=device)
    _check(where, whole, arguments)
    dims = whole.dims
    sizes = Sizes(tokens, dims["H"], dims["G"], dims["D"], dims["E"], "float32")
    owner = place.owner.astype(np.int64)
    offsets, pages = routes(Work.seen(sizes, whole), owner, owner, place.ranks)

    def between(source: int, target: int) -> np.ndarray:
        pair = target * place.ranks + source
        found = (pages[offsets[pair] : offsets[pair + 1], None].astype(np.int64) * 128 + np.arange(128)).ravel()
        return found[found < tokens]

    ranks = range(place.ranks)
    prepared = Prepared(
        whole,
        place.positions(rank),
        [between(rank, other) for other in ranks],
        [between(other, rank) for other in ranks],
    )
    kept = {name: size for name, size in dims.items() if name not in "QK"}
    terms = {"the placement": place.digest, "the shapes": f"{kept}", "the mask": f"{whole.mask}"}
    return prepared, terms | {"the score": f"{whole.score}", "the dtype": f"{tensors[0].dtype}", "the rest": f"{whole}"}


def _check(where: str, whole: Problem, arguments: Arguments) -> None:
    """Refuses what would be wrong in silence: sums over ranks that nothing here makes, and numbers of other heads."""
    reasons = []
    tables = () if whole.score is None else whole.score.tables
    if any(getattr(each, "requires_grad", False) for each in (arguments.sinks, *(table.source for table in tables))):
        reasons.append(
            Reason(
                "only the CPU sums gradients of tables and sinks over ranks",
                "a table or sinks that require gradients, and tensors on a GPU",
                "tables and sinks without gradients",
                "pass tensor.detach()",
            )
        )
    if whole.dropout is not None and any(whole.starts):
        reasons.append(
            Reason(
                "only the CPU counts dropout from batch_start and head_start over ranks",
                f"dropout={arguments.dropout}, {whole.starts}",
                "dropout without them",
                "omit dropout, or batch_start and head_start",
            )
        )
    if reasons:
        raise Refused(where, reasons)


def attend(
    prepared: Prepared, group: Any, tensors: tuple[torch.Tensor, ...], arguments: Arguments
) -> tuple[torch.Tensor, torch.Tensor]:
    """(out, lse) of the rows that this rank holds; autograd brings gradients of keys and values to their owners."""
    q, k, v = tensors
    keys, values = (_Gathered.apply(prepared, group, each) for each in (k, v))
    rules = arguments._replace(mask=prepared.whole.mask, score=prepared.whole.score, batch_start=None, head_start=None)
    outs, begin = [], 0
    for run in np.split(prepared.positions, np.flatnonzero(np.diff(prepared.positions) > 1) + 1):
        given = rules._replace(query_start=int(run[0]) if len(run) else 0)._asdict()
        rows = q[..., begin : begin + len(run), :]
        outs.append(attention_with_lse(rows, keys, values, **given))
        begin += len(run)
    return torch.cat([out for out, _ in outs], -2), torch.cat([lse for _, lse in outs], -1)


class _Gathered(torch.autograd.Function):
    """Keys or values of this rank -> of all tokens that its rows visit, at their positions; others are zero."""

    @staticmethod
    def forward(ctx: Any, prepared: Prepared, group: Any, own: torch.Tensor) -> torch.Tensor:
        ctx.prepared, ctx.group = prepared, group
        local = [np.searchsorted(prepared.positions, each) for each in prepared.sent]
        found = own.new_zeros(*own.shape[:-2], prepared.whole.dims["K"], own.shape[-1])
        found[..., _index(prepared.positions, own), :] = own
        parts = [own[..., _index(each, own), :] for each in local]
        for positions, part in zip(prepared.received, _swapped(parts, prepared.received, group), strict=True):
            found[..., _index(positions, own), :] = part
        return found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor):
        prepared = ctx.prepared
        wide = torch.promote_types(gradient.dtype, torch.float32)
        total = gradient[..., _index(prepared.positions, gradient), :].to(wide)
        parts = [gradient[..., _index(each, gradient), :] for each in prepared.received]
        for positions, part in zip(prepared.sent, _swapped(parts, prepared.sent, ctx.group), strict=True):
            at = _index(np.searchsorted(prepared.positions, positions), gradient)
            total[..., at, :] += part.to(wide)
        return None, None, total.to(gradient.dtype)


def _index(numbers: np.ndarray, like: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(numbers)).to(like.device)


def _swapped(parts: Sequence[torch.Tensor], coming: Sequence[np.ndarray], group: Any) -> list[torch.Tensor]:
    """What each rank sends to this one: (…, its tokens, depth)."""
    *lead, _, depth = parts[0].shape
    sizes = [int(np.prod(lead)) * len(each) * depth for each in coming]
    sent = torch.cat([each.reshape(-1) for each in parts])
    found = sent.new_empty(sum(sizes))
    dist.all_to_all_single(found, sent, sizes, [each.numel() for each in parts], group=group)
    return [
        part.reshape(*lead, -1, depth) if part.numel() else part.reshape(*lead, 0, depth) for part in found.split(sizes)
    ]
