"""Attention of one sequence over several ranks, for tensors and arrays, bit-identical to one process."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, SupportsFloat, SupportsIndex

from ...common.arrays import device_of, elsewhere, like
from ...common.compiled import outside_programs
from ...common.errors import Reason, refuse, refuse_all
from ...common.public import ArrayLike, ArrayT
from ...language.callables import Mask, Score
from ...language.checks.arguments import Arguments
from ..exchange import SECONDS, Alone, Transport, agreed, processes, redistribute
from ..heads import Division, division
from ..placement import Placement
from .forward import attend
from .prepare import Prepared, check_place, check_tokens, given_dtensors, local_of, prepared, whole_of

WHERE = "parallel.attention"


@outside_programs
def attention(
    q: ArrayT,
    k: ArrayT,
    v: ArrayT,
    *,
    place: Placement,
    mask: Mask | None = None,
    score: Score | None = None,
    scale: SupportsFloat | None = None,
    batch_start: SupportsIndex | None = None,
    head_start: SupportsIndex | None = None,
    sinks: ArrayLike | None = None,
    dropout: SupportsFloat = 0.0,
    seed: SupportsIndex | None = None,
    stripe: SupportsIndex | None = None,
    group: Any = None,
    heads_group: Any = None,
    timeout: float = SECONDS,
) -> ArrayT:
    """Exact self-attention of one sequence whose tokens are divided over the processes of torch.distributed.

    out = softmax(score(scale · q kᵀ) where mask) v, over the keys of all ranks.

    The result and the gradients equal those of `regard.attention` in one process bit for bit, for any placement and any
    number of ranks. Keys and values travel only to the ranks whose rows visit them, some heads at a time while those
    before are computed. Every rank calls it, with the same arguments except q, k and v.

    Args:
        q: (…, H, n, D) the queries of the n tokens that this rank holds: `place.positions(rank)`, in this order. Or a
            DTensor of the whole sequence with Shard(axis of tokens): its tokens are moved to the placement and back.
        k: (…, G, n, D) their keys; H is a multiple of G.
        v: (…, G, n, E) their values.
        place: who holds and who computes what, for the whole sequence. It may have been chosen for another mask.
        mask: which keys a row may attend to, as for `regard.attention`, over the positions of the whole sequence.
        score: changes the logits, likewise. Tables that it reads are whole on every rank; where they require gradients,
            every rank receives the sum over all ranks.
        scale: the factor of q·k, by default 1/√D.
        batch_start: the number of the first batch entry in a larger call.
        head_start: the number of the first query head in a larger call.
        sinks: extra logits in the denominator, (H,) or (H, n), the same on every rank, as are their gradients.
        dropout: the rate at which weights are dropped: the same ones on any number of ranks.
        seed: an integer in [0, 2**64), required with dropout.
        stripe: key heads that travel at a time, by default a quarter of them. Fewer need less memory.
        group: the process group, or a DeviceMesh of one dimension, whose ranks hold the sequence; None is all, or that
            of DTensors.
        heads_group: the group, or DeviceMesh of one dimension, whose ranks divide the heads of the tokens of one rank
            of `group`. Each holds a consecutive part of these tokens, `place.positions(rank, part=j, parts=n)`, with
            all heads; before the computation each gets all of them in its own heads (`regard.parallel.heads`). A
            placement of one rank then needs no `group`. Learned tables are not supported.
        timeout: seconds that a rank waits for the others.

    Returns:
        (…, H, n, E) for the tokens that this rank holds, in the type and dtype of `q`.

    Raises:
        Refused: as for `regard.attention`, on every rank what one of them refuses; arguments that differ between ranks.
        Lost: a rank ended, or did not take part within `timeout`; the message names it.

    Source:
        Liu et al. 2023 (ring attention, whose ranks pass all keys on); Milakov and Gimelshein 2018.

    Examples:
        >>> import torch, torch.distributed as dist, regard as rg, regard.parallel as rp
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # with torchrun: ("gloo")
        >>> place = rp.place(300, ranks=dist.get_world_size(), mask=rg.causal())
        >>> x = place.shard(torch.ones(2, 300, 8), axis=1, rank=dist.get_rank())
        >>> out = rp.attention(x, x, x, mask=rg.causal(), place=place)
        >>> torch.equal(out, rg.attention(x, x, x, mask=rg.causal()))
        True
        >>> dist.destroy_process_group()
    """
    arguments = Arguments(mask, score, scale, None, sinks, dropout, seed, batch_start, head_start)
    return _attended((q, k, v), place, arguments, stripe, (group, heads_group, timeout))[0]


@outside_programs
def attention_with_lse(
    q: ArrayT,
    k: ArrayT,
    v: ArrayT,
    *,
    place: Placement,
    mask: Mask | None = None,
    score: Score | None = None,
    scale: SupportsFloat | None = None,
    batch_start: SupportsIndex | None = None,
    head_start: SupportsIndex | None = None,
    sinks: ArrayLike | None = None,
    dropout: SupportsFloat = 0.0,
    seed: SupportsIndex | None = None,
    stripe: SupportsIndex | None = None,
    group: Any = None,
    heads_group: Any = None,
    timeout: float = SECONDS,
) -> tuple[ArrayT, ArrayT]:
    """Attention over several ranks, and the log-sum-exp of each row.

    lse = ln(Σ exp(score) over the allowed keys of all ranks + Σ exp(sinks))

    Args:
        q: (…, H, n, D) the queries of the tokens that this rank holds, as for `regard.parallel.attention`.
        k: (…, G, n, D) their keys.
        v: (…, G, n, E) their values.
        place: who holds and who computes what.
        mask: which keys a row may attend to.
        score: changes the logits.
        scale: the factor of q·k, by default 1/√D.
        batch_start: the number of the first batch entry in a larger call.
        head_start: the number of the first query head in a larger call.
        sinks: extra logits in the denominator, (H,) or (H, n).
        dropout: the rate at which weights are dropped; lse does not depend on it.
        seed: an integer in [0, 2**64), required with dropout.
        stripe: key heads that travel at a time.
        group: the process group, or a DeviceMesh of one dimension.
        heads_group: the group whose ranks divide the heads.
        timeout: seconds that a rank waits for the others.

    Returns:
        out (…, H, n, E) in the dtype of `q`, and lse (…, H, n) in nats: float32, for float64 inputs float64.

    Raises:
        Refused: as for `regard.parallel.attention`.
        Lost: likewise.

    Examples:
        >>> import torch, torch.distributed as dist, regard as rg, regard.parallel as rp
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # with torchrun: ("gloo")
        >>> place = rp.place(300, ranks=dist.get_world_size(), mask=rg.causal())
        >>> x = place.shard(torch.ones(2, 300, 8), axis=1, rank=dist.get_rank())
        >>> _, lse = rp.attention_with_lse(x, x, x, mask=rg.causal(), scale=0, place=place)
        >>> torch.allclose(lse[0], torch.arange(1, 301).log())
        True
        >>> dist.destroy_process_group()
    """
    arguments = Arguments(mask, score, scale, None, sinks, dropout, seed, batch_start, head_start)
    return _attended((q, k, v), place, arguments, stripe, (group, heads_group, timeout))


def _attended(
    tensors: tuple[Any, Any, Any], place: Placement, arguments: Arguments, stripe: Any, groups: tuple[Any, Any, float]
) -> tuple[Any, Any]:
    """(out, lse), after DTensors were moved to the placement, or the heads were divided."""
    group, heads_group, timeout = groups
    if given_dtensors(WHERE, tensors):
        if heads_group is not None:
            raise refuse(
                WHERE,
                "the heads of DTensors are not divided",
                "DTensors and heads_group=…",
                "plain tensors of the tokens of each rank",
                "pass tensor.to_local(), or omit heads_group",
            )
        mesh = processes(tensors[0].device_mesh if group is None else group, timeout)
        local = local_of(WHERE, mesh, place, tensors)
        out, lse = over(mesh, local, place, arguments, stripe)
        return whole_of(mesh, place, out, tensors[0]), whole_of(mesh, place, lse, tensors[0])
    alone = heads_group is not None and group is None and isinstance(place, Placement) and place.ranks == 1
    transport: Transport = Alone() if alone else processes(group, timeout)
    if elsewhere(tensors[0]):
        return _on_devices(transport, group, tensors, place, arguments, stripe, heads_group)
    if heads_group is None:
        return over(transport, tensors, place, arguments, stripe)
    return over_heads(transport, processes(heads_group, timeout), tensors, place, arguments, stripe)


def _on_devices(
    transport: Transport, group: Any, tensors: tuple[Any, Any, Any], place: Placement, arguments: Arguments, *rest: Any
) -> tuple[Any, Any]:
    """(out, lse) of tensors on GPUs, whose keys and values travel over the group itself."""
    from . import on_devices

    def prepare():
        check_place(WHERE, transport, place)
        check_tokens(WHERE, tensors, len(place.positions(transport.rank)), f"place.positions({transport.rank})")
        if any(each is not None for each in rest):
            raise refuse(
                WHERE,
                "only the CPU divides heads and stripes",
                f"tensors on {device_of(tensors[0])}, with stripe or heads_group",
                "neither of them",
                "omit both",
            )
        return on_devices.checked(WHERE, transport.rank, place, tensors, arguments)

    found = agreed(transport, WHERE, prepare)
    group = group.get_group() if hasattr(group, "get_group") else group
    return on_devices.attend(found, group, tensors, arguments)


def over_heads(
    transport: Transport,
    others: Transport,
    tensors: tuple[Any, Any, Any],
    place: Placement,
    arguments: Arguments,
    stripe: Any = None,
) -> tuple[Any, Any]:
    """(out, lse) of this rank's part of some tokens, whose heads the ranks of `others` divide."""
    q, k, v = tensors
    divided = agreed(others, WHERE, lambda: _divided(transport, others, tensors, place))
    local = redistribute(divided.queries, q), redistribute(divided.keys, k), redistribute(divided.keys, v)
    own = divided.shares[others.rank].query
    sinks = arguments.sinks
    if sinks is not None:
        if getattr(sinks, "requires_grad", False):
            from ..head_parallel import Ranks, entered

            sinks = entered(sinks, Ranks(others), "sinks")
        sinks = sinks[own.start : own.stop]
    start = operator.index(arguments.head_start or 0) + own.start
    arguments = arguments._replace(sinks=sinks, head_start=start)
    out, lse = over(transport, local, place, arguments, stripe, learns=False)
    out, lse = (redistribute(divided.queries, each, back=True) for each in (out, lse[..., None]))
    return out, lse[..., 0]


def _divided(
    transport: Transport, others: Transport, tensors: tuple[Any, ...], place: Placement
) -> tuple[Division, dict[str, str]]:
    """How the heads are divided; refused: tensors that are not this rank's part of the tokens."""
    check_place(WHERE, transport, place)
    mine = place.positions(transport.rank, part=others.rank, parts=others.ranks)
    check_tokens(
        WHERE, tensors, len(mine), f"place.positions({transport.rank}, part={others.rank}, parts={others.ranks})"
    )
    H, G = tensors[0].shape[-3], tensors[1].shape[-3]
    terms = {"the placement": place.digest, "the heads": f"{H} over {G}", "the rank of the rows": f"{transport.rank}"}
    return division(others, len(place.positions(transport.rank)), H, G), terms


def over(
    transport: Transport,
    tensors: tuple[Any, Any, Any],
    place: Placement,
    arguments: Arguments,
    stripe: Any = None,
    *,
    learns: bool = True,
    reasons: Sequence[Reason] = (),
) -> tuple[Any, Any]:
    """(out, lse) of the tokens that this rank holds, over any transport. learns: whether tables may be learned.
    reasons: what this rank refuses already.
    """

    def prepare() -> tuple[Prepared, dict[str, str]]:
        refuse_all(WHERE, reasons)
        return prepared(WHERE, transport, place, tensors, arguments, stripe=stripe, learns=learns)

    found = agreed(transport, WHERE, prepare)
    if found.gradients:
        from .backward import recorded

        return recorded(found, tensors, arguments.sinks)
    out, lse, _ = attend(found.here, *found.arrays, keep=False)
    return like(tensors[0], out.reshape(*found.lead, out.shape[-1])), like(tensors[0], lse.reshape(found.lead))
