"""What a call returns, and the gradients of what it is called with: on one rank, and in one process."""

import torch

import regard as rg
import regard.parallel as rp
from regard.parallel.context.attention import over, over_heads
from regard.parallel.exchange import Alone
from tests.parallel.ranks import on_mesh


def equal(one, other):
    """Whether two tensors are equal; NaN equals NaN."""
    return torch.equal(one.isnan(), other.isnan()) and torch.equal(one.nan_to_num(), other.nan_to_num())


def step(call, tensors, douts):
    """The results of `call(*tensors)`, the same where nothing is learned, and the gradients of the tensors."""
    leaves = [each.detach().clone().requires_grad_() for each in tensors]
    results = call(*leaves)
    torch.autograd.backward(results, douts)
    with torch.no_grad():
        assert all(map(equal, call(*leaves), results))
    return [*(each.detach() for each in results), *(each.grad for each in leaves)]


def in_one_process(q, k, v, arguments):
    """out and lse of the whole call."""
    named = arguments._asdict()
    del named["query_start"]
    return rg.attention_with_lse(q, k, v, **named)


def compared(ranks, placement, shape, dtype, rules, learned=(), mask=None, axes=(), poison=False, parts=1):
    """Fails unless every rank of ranks × parts, which divide the heads, has the bits of one process; dk and dv to a
    rounding where parts share a key head. rules(*learned) -> arguments; mask: of the placement; axes: of the tokens in
    what is learned, where each rank has its part of it.
    """
    B, H, G, N, D, E = shape
    torch.manual_seed(0)
    shapes = (B, H, N, D), (B, G, N, D), (B, G, N, E), (B, H, N, E)
    q, k, v, dout = (torch.randn(each).to(getattr(torch, dtype)) for each in shapes)
    dlse = torch.randn(B, H, N)
    if poison:
        k[..., 300, :], v[..., 400, 2] = float("nan"), float("inf")
    expected = step(lambda q, k, v, *more: in_one_process(q, k, v, rules(*more)), (q, k, v, *learned), (dout, dlse))
    sizes = {"heads": H, "key_heads": G, "depth": D, "value_depth": E}
    mask = rules(*learned).mask if mask is None else mask
    place = rp.place(N, ranks=ranks, mask=mask, among=placement and (placement,), **sizes)

    def shares(tensors, rank, part):
        return [place.shard(each, axis=2, rank=rank, part=part, parts=parts) for each in tensors]

    def held(tensors, rank):
        return [place.shard(each, axis=axis, rank=rank) for each, axis in zip(tensors, axes)] or [*tensors]

    def work(transport, others):
        mine = shares((q, k, v, dout, dlse), transport.rank, others.rank)
        rank = Alone() if ranks == 1 else transport

        def call(q, k, v, *more):
            more = [rp.whole(each, place, axis=axis, group=rank) for each, axis in zip(more, axes)] or more
            if parts == 1:
                return over(rank, (q, k, v), place, rules(*more))
            return over_heads(rank, others, (q, k, v), place, rules(*more))

        return step(call, (*mine[:3], *held(learned, transport.rank)), mine[3:])

    for (rank, part), found in on_mesh(ranks, parts, work).items():
        wanted = shares(expected[:5], rank, part) + held(expected[5:], rank)
        for number, (one, other) in enumerate(zip(found, wanted, strict=True)):
            near = parts > G and number in (3, 4) and torch.allclose(one, other, rtol=1e-5, atol=1e-5)
            assert near or equal(one, other), (rank, part, number, (one != other).sum())
