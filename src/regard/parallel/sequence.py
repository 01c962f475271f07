"""A model whose tokens are divided over ranks: its attention, the sums of its gradients and losses in the order of the
ranks, and whole tables for its rules.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np

from ..common.arrays import as_tensor, device_of, elsewhere, is_tensor, name_of_dtype, read_array
from ..common.errors import Reason, refuse
from ..common.optional import requires_extra
from ..common.public import ArrayT
from ..language.checks.arguments import Arguments
from ..language.checks.numbers import whole as integer
from ..language.expr import Expr
from .context.attention import over
from .context.prepare import check_place
from .exchange import SECONDS, Transport, agreed, processes, swap_arrays
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


FIX = "pass the same tensors on every rank, such as [each.grad for each in model.parameters()]"


def sum_over_ranks(tensors: Iterable[torch.Tensor], *, group: Any = None, timeout: float = SECONDS) -> None:
    """Replaces tensors by their sums over all ranks, in place, for gradients and losses.

    tensor = tensor of rank 0 + … + tensor of rank R − 1, in this order, in float64, rounded once.

    Every rank computes a part of each sum and sends it to the others, so all have the same bits. The sums of a library
    for communication have another order, which depends on the number of ranks and on sizes.

    Args:
        tensors: floating-point tensors on the CPU, with the same shapes and dtypes on every rank.
        group: the process group, or a DeviceMesh of one dimension; None is all.
        timeout: seconds that a rank waits for the others.

    Returns:
        None.

    Raises:
        Refused: tensors that cannot be summed, or that differ between ranks; on every rank.
        Lost: a rank ended, or did not take part within `timeout`.

    Examples:
        >>> import regard.parallel as rp
        >>> # in each of several processes, after loss.backward():
        >>> # rp.sum_over_ranks([each.grad for each in model.parameters()])
    """
    add(processes(group, timeout), list(tensors), "parallel.sum_over_ranks")


def add(transport: Transport, tensors: list[torch.Tensor], step: str) -> None:
    """The same over any transport. step: what is summed, in words, for errors."""
    import torch

    def checked() -> tuple[None, dict[str, str]]:
        for each in tensors:
            if not isinstance(each, torch.Tensor) or not each.is_floating_point() or each.device.type != "cpu":
                given = f"{each.dtype} on {each.device}" if isinstance(each, torch.Tensor) else type(each).__name__
                raise refuse(step, "this cannot be summed", given, "floating-point tensors on the CPU", FIX)
        shapes = [(list(each.shape), name_of_dtype(each)) for each in tensors]
        return None, {"the tensors": ", ".join(f"{dtype} {shape}" for shape, dtype in shapes)}

    def added(flat: torch.Tensor) -> torch.Tensor:
        """The sum of a tensor of one axis: each rank adds one part of it."""
        ranks, numbers = transport.ranks, read_array(flat, step)
        parts = np.split(numbers, [len(flat) * rank // ranks for rank in range(1, ranks)])
        own = parts[transport.rank]
        total = torch.zeros(len(own), dtype=torch.float64)
        for (part,) in swap_arrays(transport, f"{step}: parts", [[each] for each in parts], [[own]] * ranks)():
            total += as_tensor(part)
        mine = read_array(total.to(flat.dtype), step)
        sums = swap_arrays(transport, f"{step}: sums", [[mine]] * ranks, [[each] for each in parts])()
        return torch.cat([as_tensor(part) for (part,) in sums])

    agreed(transport, step, checked)
    with torch.no_grad():
        for dtype in dict.fromkeys(each.dtype for each in tensors):
            alike = [each for each in tensors if each.dtype == dtype]
            found = added(torch.cat([each.detach().reshape(-1) for each in alike]))
            for each, part in zip(alike, found.split([each.numel() for each in alike]), strict=True):
                each.copy_(part.view(each.shape))


WHOLE = "parallel.whole"


def whole(
    part: ArrayT, place: Placement, *, axis: SupportsIndex = 0, group: Any = None, timeout: float = SECONDS
) -> ArrayT:
    """The array of all tokens, on every rank, of which each rank holds those of its placement: for tables of rules.

    whole[…, place.positions(r), …] = part of rank r, for every rank r.

    Rules of `regard.parallel.attention` read it like any table. If `part` requires gradients, it receives those of its
    tokens. Attention over ranks gives every rank the gradient of the whole table, so nothing is added here: an array
    that is used for something else than its rules receives the gradient of this rank's use only.

    Args:
        part: an array or tensor with the tokens of this rank, place.positions(rank), along `axis`; booleans, integers
            or floats, on the CPU.
        place: who holds which tokens.
        axis: the axis of tokens.
        group: the process group, or a DeviceMesh of one dimension; None is all.
        timeout: seconds that a rank waits for the others.

    Returns:
        An array or tensor of the same kind and dtype, with all tokens along `axis`.

    Raises:
        Refused: on every rank: other tokens than those of a rank; shapes, dtypes or placements that differ.
        Lost: a rank ended, or did not take part within `timeout`.

    Examples:
        >>> import regard as rg, regard.parallel as rp
        >>> place = rp.place(4096, ranks=2, mask=rg.causal())
        >>> # in each of two processes, with the document and a learned gate of each of its tokens:
        >>> # document, gate = rp.whole(document, place), rp.whole(gate, place)
        >>> # mask, score = rg.causal() & rg.documents(document), rg.score + rg.table(gate)[rg.key]
        >>> # out = rp.attention(q, k, v, mask=mask, score=score, place=place)
    """
    transport = processes(group, timeout)
    tensor: Any = part

    def prepare() -> tuple[tuple[np.ndarray, int], dict[str, str]]:
        array, at = _checked(transport, part, place, axis)
        rest = [size for number, size in enumerate(array.shape) if number != at]
        terms = {"the placement": place.digest, "the array": f"{array.dtype}, {rest} beside axis {at}"}
        return (np.moveaxis(array, at, 0), at), terms

    own: np.ndarray
    own, at = agreed(transport, WHOLE, prepare)
    positions = [place.positions(rank) for rank in range(transport.ranks)]
    like = [[np.empty((len(each), *own.shape[1:]), own.dtype)] for each in positions]
    found = np.empty((place.sizes.tokens, *own.shape[1:]), own.dtype)
    received = swap_arrays(transport, "an array of tokens", [[own]] * transport.ranks, like)()
    for where, (content,) in zip(positions, received, strict=True):
        found[where] = content
    result = np.ascontiguousarray(np.moveaxis(found, 0, at))
    if not is_tensor(part):
        return result
    if not tensor.requires_grad:
        return as_tensor(result)
    return as_tensor(result).index_copy(at, as_tensor(positions[transport.rank]), tensor)  # which autograd records


def _checked(transport: Transport, part: Any, place: Any, axis: SupportsIndex) -> tuple[np.ndarray, int]:
    """The array and the axis of tokens, counted from 0."""
    check_place(WHOLE, transport, place)
    if elsewhere(part):
        given, fix = device_of(part), "move it: part.cpu()"
        raise refuse(WHOLE, "only arrays on the CPU are exchanged", given, "the CPU", fix)
    array, at = read_array(part, WHOLE), integer(axis, WHOLE, "axis")
    if array.dtype.kind not in "biufV":
        fix = "convert it: part.astype(np.float32)"
        expected = "booleans, integers or floats"
        raise refuse(WHOLE, "the array has no numbers", f"{array.dtype}", expected, fix)
    if not -array.ndim <= at < array.ndim:
        expected = f"{-array.ndim} to {array.ndim - 1}" if array.ndim else "an array with an axis of tokens"
        raise refuse(WHOLE, "axis is out of range", f"{at}", expected, "axis=0 is the first one")
    at %= array.ndim
    tokens = len(place.positions(transport.rank))
    if array.shape[at] != tokens:
        raise refuse(
            WHOLE,
            "the array does not have the tokens of this rank",
            f"{list(array.shape)}, {array.shape[at]} along axis {at}",
            f"{tokens} along axis {at}: place.positions({transport.rank}), in this order",
            f"part = place.shard(array, axis={at}, rank=…) of the whole array",
        )
    return array, at
