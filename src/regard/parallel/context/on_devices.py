"""Attention over ranks whose tensors are on GPUs: keys and values travel by NCCL, torch's kernels compute.

It has run on one GPU, never on several: the tests run it on CPU tensors over gloo. Each rank computes the rows that it
holds, and keeps keys and values of the length of the whole sequence. Results are those of one process to a rounding.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist

from ...api.attention import attention_with_lse
from ...common.errors import Reason, refuse_all
from ...language.checks.arguments import Arguments
from ...language.problem import Problem
from ..exchange import linear
from ..placement import Placement
from ..work import Work, positions_of, routes


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
    refuse_all(where, _problems(where, whole, arguments))
    owner, ranks = place.owner.astype(np.int64), range(place.ranks)
    offsets, pages = routes(Work.over(whole), owner, owner, place.ranks)

    def between(source: int, target: int) -> np.ndarray:
        pair = target * place.ranks + source
        return positions_of(pages[offsets[pair] : offsets[pair + 1]], tokens)

    sent, received = [between(rank, other) for other in ranks], [between(other, rank) for other in ranks]
    prepared = Prepared(whole, place.positions(rank), sent, received)
    kept = {name: size for name, size in whole.dims.items() if name not in "QK"}
    terms = {"the placement": place.digest, "the shapes": f"{kept}", "the mask": f"{whole.mask}"}
    return prepared, terms | {"the score": f"{whole.score}", "the dtype": f"{tensors[0].dtype}", "the rest": f"{whole}"}


def _problems(where: str, whole: Problem, arguments: Arguments) -> Iterator[Reason]:
    """What would be wrong in silence: sums over ranks that nothing here makes, and numbers of other heads."""
    tables = () if whole.score is None else whole.score.tables
    if any(getattr(each, "requires_grad", False) for each in (arguments.sinks, *(table.source for table in tables))):
        yield Reason(
            "only the CPU sums gradients of tables and sinks over ranks",
            "a table or sinks that require gradients, and tensors on a GPU",
            "tables and sinks without gradients",
            "pass tensor.detach()",
        )
    if whole.dropout is not None and any(whole.starts):
        yield Reason(
            "only the CPU counts dropout from batch_start and head_start over ranks",
            f"dropout={arguments.dropout}, {whole.starts}",
            "dropout without them",
            "omit dropout, or batch_start and head_start",
        )


def attend(
    prepared: Prepared, group: Any, tensors: tuple[torch.Tensor, ...], arguments: Arguments
) -> tuple[torch.Tensor, torch.Tensor]:
    """(out, lse) of the rows that this rank holds; autograd brings gradients of keys and values to their owners."""
    q, k, v = tensors
    keys, values = (_gathered(prepared, group, each) for each in (k, v))
    rules = arguments._replace(mask=prepared.whole.mask, score=prepared.whole.score, batch_start=None, head_start=None)
    outs, begin = [], 0
    for run in np.split(prepared.positions, np.flatnonzero(np.diff(prepared.positions) > 1) + 1):
        given = rules._replace(query_start=int(run[0]) if len(run) else 0)._asdict()
        rows = q[..., begin : begin + len(run), :]
        outs.append(attention_with_lse(rows, keys, values, **given))
        begin += len(run)
    return torch.cat([out for out, _ in outs], -2), torch.cat([lse for _, lse in outs], -1)


def _gathered(prepared: Prepared, group: Any, own: torch.Tensor) -> torch.Tensor:
    """Keys or values of this rank -> of all tokens that its rows visit, at their positions; others are zero.

    Gradients return to the ranks that hold the tokens, and are added there in the order of the ranks.
    """
    here = prepared.positions
    going, coming = ([len(each) for each in side] for side in (prepared.sent, prepared.received))
    local = np.searchsorted(here, np.concatenate(prepared.sent))
    at_own, at_sent, at_received = (
        torch.from_numpy(each).to(own.device) for each in (here, local, np.concatenate(prepared.received))
    )

    def exchanged(rows: torch.Tensor, going: list[int], coming: list[int]) -> torch.Tensor:
        found = rows.new_empty(sum(coming), *rows.shape[1:])
        dist.all_to_all_single(found, rows.contiguous(), coming, going, group=group)
        return found

    def forward(own: torch.Tensor) -> torch.Tensor:
        found, rows = own.new_zeros(*own.shape[:-2], prepared.whole.dims["K"], own.shape[-1]), own.movedim(-2, 0)
        into = found.movedim(-2, 0)
        into[at_own], into[at_received] = rows, exchanged(rows[at_sent], going, coming)
        return found

    def backward(gradient: torch.Tensor) -> torch.Tensor:
        rows = gradient.movedim(-2, 0)
        total = rows[at_own].to(torch.promote_types(rows.dtype, torch.float32))
        parts = exchanged(rows[at_received], coming, going).split(going)
        for at, part in zip(at_sent.split(going), parts, strict=True):
            total[at] += part.to(total.dtype)
        return total.movedim(0, -2).to(gradient.dtype)

    return linear(own, forward, backward)
