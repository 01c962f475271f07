"""Where the tokens of a sequence are, and transformers models whose attention is `regard.parallel.attention`."""

from __future__ import annotations

import contextlib
import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..common.errors import Reason, refuse
from ..common.optional import requires_extra
from ..language.checks.arguments import Arguments
from ..language.expr import Expr
from .context.attention import over
from .context.pages import check_place
from .exchange.agreement import agreed
from .exchange.processes import SECONDS, processes
from .exchange.transport import Transport
from .placement import Placement

if TYPE_CHECKING:
    import torch

WHERE = "parallel.sequence"


@contextlib.contextmanager
def sequence(
    place: Placement, *, mask: Expr | None = None, group: Any = None, timeout: float = SECONDS
) -> Iterator[None]:
    """Inside, transformers models on regard compute one sequence whose tokens are divided over the ranks.

    Every rank calls the model with the tokens that it holds and their positions; attention, in the forward and the
    backward pass, equals that of one process bit for bit. Losses and gradients are parts, which have to be added:
    divide the sum of a rank's token losses by the number of all tokens, and call `regard.parallel.sum_over_ranks`.

    Args:
        place: who holds and who computes what; its positions are passed to the model as `position_ids`.
        mask: which keys may be attended to, over the positions of the whole sequence, in addition to the model's own
            mask; None is all.
        group: the process group, or a DeviceMesh of one dimension; None is all.
        timeout: seconds that a rank waits for the others.

    Yields:
        None.

    Raises:
        Refused: a placement for another number of ranks, or a mask that is not an expression. In the model's call, on
            every rank: other position_ids than those of the rank, padding, caches, weights as outputs, position
            biases, sinks, masks that depend on the tokens of one rank, and models whose attention does not receive
            position_ids. Only the dropout of attention is that of one process.
        Lost: a rank ended, or did not take part within `timeout`.

    Examples:
        >>> import regard as rg, regard.parallel as rp
        >>> place = rp.place(4096, ranks=2, mask=rg.causal())
        >>> # in each of two processes, with a model of transformers on attn_implementation="regard":
        >>> # with rp.sequence(place):
        >>> #     logits = model(place.shard(tokens, axis=1, rank=rank), position_ids=positions[None]).logits
    """
    transport = processes(group, timeout)

    def prepare() -> tuple[None, dict[str, str]]:
        check_place(WHERE, transport, place)
        passed: Any = mask
        if passed is not None and not isinstance(passed, Expr):
            raise refuse(
                WHERE,
                "the mask is not an expression",
                type(passed).__name__,
                "a rule over positions, such as rg.documents(lengths=…)",
                "build it with regard's masks",
            )
        return None, {"the placement": place.digest, "the mask": f"{mask}"}

    agreed(transport, WHERE, prepare)
    with requires_extra(WHERE, "hf"):
        import torch

        from ..torch.hf.divided import current
    token = current.set(_Sequence(torch.from_numpy(place.positions(transport.rank)), mask, transport, place))
    try:
        yield
    finally:
        current.reset(token)


@dataclass(eq=False)
class _Sequence:
    """`regard.torch.hf.divided.Sequence`, over a transport."""

    positions: torch.Tensor
    mask: Expr | None
    transport: Transport
    place: Placement

    def attention(self, tensors: tuple[torch.Tensor, ...], rules: Arguments, reasons: list[Reason]) -> torch.Tensor:
        q, k, v = tensors
        return over(self.transport, (q, k, v), self.place, rules, reasons=reasons)[0]


CHUNK = 8  # pages that `balanced` moves together, where every rank gets at least one such chunk


def contiguous(pairs: np.ndarray, ranks: int) -> np.ndarray:
    """Consecutive pages, as many for each rank as for the others, or one more. pairs: of each block of rows.

    >>> contiguous(np.ones(8), 2).tolist()
    [0, 0, 0, 0, 1, 1, 1, 1]
    """
    return np.arange(len(pairs)) * ranks // len(pairs)


def zigzag(pairs: np.ndarray, ranks: int) -> np.ndarray:
    """Two parts for each rank, one from the start and its mirror image from the end.

    >>> zigzag(np.ones(8), 2).tolist()
    [0, 0, 1, 1, 1, 1, 0, 0]
    """
    part = contiguous(pairs, 2 * ranks)
    return np.minimum(part, 2 * ranks - 1 - part)


def striped(pairs: np.ndarray, ranks: int) -> np.ndarray:
    """Page i at rank i modulo the number of ranks.

    >>> striped(np.ones(5), 2).tolist()
    [0, 1, 0, 1, 0]
    """
    return np.arange(len(pairs)) % ranks


def balanced(pairs: np.ndarray, ranks: int) -> np.ndarray:
    """Chunks of pages from the most work to the least, each to the rank with the least so far that has room.

    pairs: of each block of rows. A rank holds at most ⌈chunks / ranks⌉ chunks.

    >>> balanced(np.array([5, 1, 1, 3]), 2).tolist()
    [0, 0, 1, 1]
    """
    size = max(1, min(CHUNK, len(pairs) // ranks))
    work = np.add.reduceat(pairs, np.arange(0, len(pairs), size))
    most = -(-len(work) // ranks)
    waiting = [(0, rank, 0) for rank in range(ranks)]  # pairs, rank, chunks: already a heap
    owner = np.zeros(len(work), np.int64)
    for chunk in np.argsort(-work, kind="stable").tolist():
        total, rank, chunks = heapq.heappop(waiting)
        owner[chunk] = rank
        if chunks + 1 < most:
            heapq.heappush(waiting, (total + int(work[chunk]), rank, chunks + 1))
    return np.repeat(owner, size)[: len(pairs)]
