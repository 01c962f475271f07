"""What each real process computes in test_processes.py."""

import os
import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

import regard as rg
import regard.parallel as rp
from regard.language.checks.arguments import Arguments
from regard.parallel.context import on_devices

__all__ = ["CASES", "cases", "fails", "is_late", "trained", "whole"]

CASES = {
    "causal": {"mask": rg.causal()},
    "documents": {"mask": rg.causal() & rg.documents(lengths=[700, 1800]), "score": rg.alibi(4)},
    "window, dropout": {"mask": rg.causal() & rg.window(300), "dropout": 0.1, "seed": 3},
}


def whole(shape=(1, 4, 2500, 16)):
    """q, k, v and the gradient of the output, of all tokens."""
    torch.manual_seed(0)
    B, H, N, D = shape
    return [torch.randn(B, heads, N, D) for heads in (H, H // 2, H // 2, H)]


def cases(dtype):
    """For each case: (out, dq, dk, dv) of the tokens of this rank, and their positions."""
    found = {}
    q, k, v, dout = (each.to(getattr(torch, dtype)) for each in whole())
    rank = dist.get_rank()
    for name, rules in CASES.items():
        for placement in ("contiguous", "zigzag", "excess"):
            place = rp.place(2500, ranks=dist.get_world_size(), mask=rules["mask"], heads=4, among=placement)
            mine = [place.shard(each, axis=2, rank=rank).requires_grad_() for each in (q, k, v)]
            out = rp.attention(*mine, place=place, **rules)
            out.backward(place.shard(dout, axis=2, rank=rank))
            found[name, placement] = place.positions(rank), out.detach(), *(each.grad for each in mine)
    if dist.get_world_size() == 2:
        found["window, dropout", "of GPUs"] = of_gpus((q, k, v, dout))
    if dist.get_world_size() == 4:
        found["causal", "DTensors"] = of_dtensors((q, k, v, dout))
        found["causal", "rows and heads"] = of_rows_and_heads((q, k, v, dout))
    return found


def of_gpus(tensors):
    """The same by the functions that GPUs use, on the CPU."""
    place = rp.place(2500, ranks=2, mask=rg.causal(), among="zigzag")
    q, k, v, dout = (place.shard(each, axis=2, rank=dist.get_rank()) for each in tensors)
    leaves = [each.clone().requires_grad_() for each in (q, k, v)]
    rules = Arguments(**CASES["window, dropout"])
    prepared, _ = on_devices.checked("attention", dist.get_rank(), place, tuple(leaves), rules)
    out, _ = on_devices.attend(prepared, None, tuple(leaves), rules)
    out.backward(dout)
    return prepared.positions, out.detach(), *(each.grad for each in leaves)


def of_dtensors(tensors):
    """The same of the shards of DTensors in their own order, which are moved to a zig-zag placement and back."""
    mesh = init_device_mesh("cpu", (4,))
    q, k, v, dout = (distribute_tensor(each, mesh, [Shard(2)]) for each in tensors)
    leaves = [each.detach().requires_grad_() for each in (q, k, v)]
    place = rp.place(2500, ranks=4, mask=rg.causal(), among="zigzag")
    out, lse = rp.attention_with_lse(*leaves, mask=rg.causal(), place=place)
    out.backward(dout)
    assert out.placements == (Shard(2),) and out.shape == dout.shape and lse.shape == dout.shape[:3]
    positions = torch.arange(2500).chunk(4)[dist.get_rank()]
    return positions.numpy(), out.detach().to_local(), *(each.grad.to_local() for each in leaves)


def of_rows_and_heads(tensors):
    """The same on a mesh of two dimensions."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("rows", "heads"))
    row, part = mesh.get_local_rank("rows"), mesh.get_local_rank("heads")
    place = rp.place(2500, ranks=2, mask=rg.causal())
    q, k, v, dout = (place.shard(each, axis=2, rank=row, part=part, parts=2) for each in tensors)
    leaves = [each.clone().requires_grad_() for each in (q, k, v)]
    out = rp.attention(*leaves, mask=rg.causal(), place=place, group=mesh["rows"], heads_group=mesh["heads"])
    out.backward(dout)
    return place.positions(row, part=part, parts=2), out.detach(), *(each.grad for each in leaves)


def trained(steps, alone=False):
    """The losses of a layer of attention of which each rank computes its tokens; or, alone, all of them."""
    torch.manual_seed(1)
    tokens, width = 1500, 32
    x, target = torch.randn(2, tokens, width)
    weights = [(torch.randn(width, width) / 6).requires_grad_() for _ in range(3)]
    place = None if alone else rp.place(tokens, ranks=dist.get_world_size(), mask=rg.causal())
    if place is not None:
        x, target = (place.shard(each, axis=0, rank=dist.get_rank()) for each in (x, target))
    losses = []
    for _ in range(steps):
        q, k, v = ((x @ each).unflatten(1, (4, 8)).transpose(0, 1) for each in weights)
        if place is None:
            out = rg.attention(q, k, v, mask=rg.causal())
        else:
            out = rp.attention(q, k, v, mask=rg.causal(), place=place)
        loss = ((out.transpose(0, 1).flatten(1) - target) ** 2).sum() / tokens
        loss.backward()
        total = [loss.detach().clone(), *(each.grad for each in weights)]
        if place is not None:
            for each in total:
                dist.all_reduce(each)
        losses.append(float(total[0]))
        with torch.no_grad():
            for each in weights:
                each -= 0.05 * each.grad
                each.grad = None
    return losses


def mine_of(place):
    """q, k and v of this rank."""
    return [place.shard(each, axis=2, rank=dist.get_rank()) for each in whole()[:3]]


def error_of(call):
    """(type, text, seconds) of the error that a call raises."""
    begin = time.monotonic()
    try:
        call()
    except Exception as error:  # whatever it is, the test looks at it
        return type(error).__name__, str(error), time.monotonic() - begin
    return None


def fails():
    """Rank 1 refuses its scale; then rank 2 has another mask; then all compute; then rank 1 ends."""
    rank, place = dist.get_rank(), rp.place(2500, ranks=dist.get_world_size(), mask=rg.causal())

    def call(mask=None, scale=None):
        return rp.attention(*mine_of(place), mask=rg.causal() if mask is None else mask, scale=scale, place=place)

    refused = error_of(lambda: call(scale=float("nan") if rank == 1 else None))
    disagreed = error_of(lambda: call(mask=rg.window(30) if rank == 2 else None))
    finite = bool(call().isfinite().all())
    if rank == 1:
        os._exit(7)
    return refused, disagreed, finite, error_of(call)


def is_late(seconds):
    """Rank 2 begins its second call too late."""
    place = rp.place(2500, ranks=dist.get_world_size(), mask=rg.causal())
    call = lambda: rp.attention(*mine_of(place), mask=rg.causal(), place=place, timeout=seconds)  # noqa: E731
    rp.attention(*mine_of(place), mask=rg.causal(), place=place)  # compiles, with the usual time to wait
    call()
    if dist.get_rank() == 2:
        time.sleep(seconds + 3)
    return error_of(call)
